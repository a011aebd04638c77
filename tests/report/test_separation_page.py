import torch

from widemargin.data.dataset import Dataset
from widemargin.measure.separation import contradictions, duplicates, separation
from widemargin.report.separation_page import Separated, page


def separated(rows: int | None = None) -> Separated:
    x = torch.tensor([[0.0, 1.0], [0.0, 1.0], [3.0, 1.0], [3.0, 7.0]])
    data = Dataset(x, torch.tensor([0, 0, 1, 0]), ("cat", "dog"))
    groups = duplicates(data)
    norms = {norm: separation(data, norm, rows) for norm in ("l2", "linf")}
    return Separated("pets", data, norms, groups, contradictions(data, groups), (1, 2, 5, 6))


def test_tables_name_rows_classes_and_columns() -> None:
    report = page(separated())
    quantiles, radii, pairs, _, copies = report.tables
    assert [row[0] for row in quantiles.rows] == ["l2", "linf"]
    assert radii.rows[0] == ("l2", "1.5", "1.5", "1.5")
    assert pairs.rows[0] == ("1 and 5", "cat, dog", "3", "x1 0, 3")
    assert copies.rows == (("1, 2", "cat"),)
    assert [remark.word for remark in report.verdicts] == ["copies"]
    assert "1.5 in l2, 1.5 in linf." in report.summary
    assert "exact." in report.settings
    assert report.lead is not None, "the picture that answers comes first"


def test_of_a_sample_the_radius_is_an_upper_bound() -> None:
    report = page(separated(rows=2))
    assert "at most" in report.summary
    assert "2 of 4 examples, drawn" in report.settings


def test_the_summary_for_programs_counts_rows_as_the_file_does() -> None:
    content = separated().summary()
    assert content["norms"][0]["closest"][0] == {"rows": [1, 5], "classes": ["cat", "dog"], "distance": 3.0}
    assert content["duplicates"] == [{"rows": [1, 2], "classes": ["cat", "cat"]}]
    assert content["contradictions"] == []


def test_many_groups_of_copies_are_listed_in_no_time() -> None:
    """A search of every group among all would take minutes."""
    count = 20_000
    data = Dataset(torch.arange(2 * count)[:, None] // 2 * 1.0, torch.arange(2 * count) % 3 % 2, ("cat", "dog"))
    groups = duplicates(data)
    result = Separated("pets", data, {}, groups, contradictions(data, groups))
    assert len(result.copies) + len(result.contradictions) == count
    assert result.first[3] == 2
