from pathlib import Path

import pytest

from widemargin.data.dataset import Dataset
from widemargin.data.local_files import Table

pa = pytest.importorskip("pyarrow")


parquet = pytest.importorskip("pyarrow.parquet")


def _csv(folder: Path, text: str, label: str = "label") -> Dataset:
    (folder / "own.csv").write_text(text, encoding="utf-8")
    return Table(str(folder / "own.csv"), label).read()


def _parquet(folder: Path, columns: dict[str, object]) -> Dataset:
    parquet.write_table(pa.table(columns), folder / "own.parquet")
    return Table(str(folder / "own.parquet")).read()


@pytest.mark.parametrize(
    ("labels", "names"),
    [
        (["01", "1", "01", "1"], ("01", "1")),
        (["1", "+1", "1", "+1"], ("+1", "1")),
        (["a\0", "a", "a\0", "a"], ("a", "a\0")),
        (["1", "٢", "1", "٢"], ("1", "٢")),
        (["inf", "sup", "inf", "sup"], ("inf", "sup")),
        (["-9223372036854775808", "9223372036854775807"], (-(2**63), 2**63 - 1)),
    ],
    ids=["zero", "plus", "nul", "arabic", "names", "largest"],
)
def test_different_labels_are_different_classes(tmp_path: Path, labels: list[str], names: tuple[object, ...]) -> None:
    tables = (
        _csv(tmp_path, "a,label\n" + "".join(f"1,{label}\n" for label in labels)),
        _parquet(tmp_path, {"a": [1.0] * len(labels), "label": labels}),
    )
    for read in tables:
        assert read.names == names
        assert [str(read.names[k]) for k in read.labels.tolist()] == labels


@pytest.mark.parametrize(
    ("labels", "message"),
    [
        ([str(10**30), "1", "2"], "must hold whole numbers below 9223372036854775808 or names, got '1000000"),
        (
            ["inf", "1", "2"],
            "must hold finite numbers or names, got 'inf': name the column of the classes with --label",
        ),
        (["1e999", "1", "2"], "must hold finite numbers or names"),
        ([f"{k / 3:.4f}" for k in range(40)], "got 40 different values in 40 rows: name the column .* with --label"),
        (["x" * 20_000, "y"], "names of at most 1,000 characters, got 20,000"),
    ],
    ids=["large", "infinite", "overflowing", "continuous", "long"],
)
def test_labels_that_are_no_classes(tmp_path: Path, labels: list[str], message: str) -> None:
    for make in (
        lambda: _csv(tmp_path, "a,label\n" + "".join(f"1,{label}\n" for label in labels)),
        lambda: _parquet(tmp_path, {"a": [1.0] * len(labels), "label": labels}),
    ):
        with pytest.raises(ValueError, match=message) as refusal:
            make()
        assert len(str(refusal.value)) < 1_000


def test_as_many_classes_as_rows_if_these_are_few(tmp_path: Path) -> None:
    assert _csv(tmp_path, "a,label\n" + "".join(f"1,{k}\n" for k in range(19))).classes == 19
