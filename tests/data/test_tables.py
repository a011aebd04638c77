"""Tables: numbers and a column of labels; whatever else is there is refused by its column's name."""

import tracemalloc
from pathlib import Path

import numpy as np
import pytest
import torch

from widemargin.data.checks import UNLABELLED
from widemargin.data.dataset import Dataset
from widemargin.data.limits import UnpackLimit
from widemargin.data.local_files import Table
from widemargin.data.tables import parquet_columns

pa = pytest.importorskip("pyarrow")


parquet = pytest.importorskip("pyarrow.parquet")


def test_csv(tmp_path: Path) -> None:
    read = _csv(tmp_path, "\ufeffheight, kind,wide\n1.5,oak,2\n\n-3e1,ash,4\n0, oak ,-1\n", label="kind")
    assert read.points.dtype == torch.float32
    assert read.points.tolist() == [[1.5, 2], [-30, 4], [0, -1]]
    assert read.labels.tolist() == [1, 0, 1]
    assert read.names == ("ash", "oak")
    assert read.origin.official is None


@pytest.mark.parametrize(
    ("labels", "names"),
    [
        (["10", "2", "1"], (1, 2, 10)),
        (["-1", "1", "1"], (-1, 1)),
        (["0.5", "1", "2"], ("0.5", "1", "2")),
        (["none", "NA", "yes"], ("NA", "none", "yes")),
        (["True", "False", "True"], ("False", "True")),
    ],
)
def test_labels_of_any_kind(tmp_path: Path, labels: list[str], names: tuple[object, ...]) -> None:
    read = _csv(tmp_path, "a,label\n" + "".join(f"1,{label}\n" for label in labels))
    assert read.names == names
    assert [str(read.names[k]) for k in read.labels.tolist()] == labels


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "a line of names and at least one row, got 0 lines"),
        ("a,label\n", "a line of names and at least one row, got 1 lines"),
        ("a,b\n1,2\n", "must have the column 'label' of labels, got a, b: name yours"),
        ("a,a,label\n1,2,3\n", "different names, got 'a' more than once"),
        ("label\n1\n2\n", "one column besides 'label'"),
        ("a,label\n1,0\n2\n", "must have 2 values, got 1 in row 2"),
        ("a,bb,label\n1,2,0\n1,,1\n", "column 'bb' of .* must have a value in every row, got '' in row 2"),
        ("a,bb,label\n1,2,0\n1,NA,1\n", "column 'bb' of .* must have a value in every row, got 'NA' in row 2"),
        ("a,bb,label\n1,nan,0\n1,1,1\n", "column 'bb' of .* must have a value in every row, got 'nan' in row 1"),
        (
            "a,bb,label\n1,2,0\n1,red,1\n",
            "column 'bb' of .* must hold numbers, got 'red' in row 2: leave it out with --drop",
        ),
        ("a,bb,label\n1,2,0\n1,inf,1\n", "column 'bb' of .* must hold finite 32-bit numbers, got inf in row 2"),
        ("a,bb,label\n1,2,0\n1,1e300,1\n", "column 'bb' of .* must hold finite 32-bit numbers, got 1e\\+300 in row 2"),
        ("a,label\n1,0\n1,\n", "column 'label' of .* must have at least 2 classes, got 0"),
        ("a,label\n1,\n1,\n", "column 'label' of .* must have at least 2 classes, got none"),
        ("a,label\n1,0\n1,0\n", "at least 2 classes, got 0"),
    ],
)
def test_csv_refused(tmp_path: Path, text: str, message: str) -> None:
    with pytest.raises(ValueError, match=message) as refusal:
        _csv(tmp_path, text)
    assert "\n" not in str(refusal.value)


def test_csv_that_is_none(tmp_path: Path) -> None:
    (tmp_path / "own.csv").write_bytes(b"a,label\n\xff\xfe,1\n")
    with pytest.raises(ValueError, match="must be a text file of separated values"):
        Table(str(tmp_path / "own.csv")).read()


def test_parquet(tmp_path: Path) -> None:
    columns = {"a": [1.5, 2.5, 3.5], "b": [1, 2, 3], "c": [True, False, True], "label": ["x", "y", "x"]}
    read = _parquet(tmp_path, columns)
    assert read.points.tolist() == [[1.5, 1, 1], [2.5, 2, 0], [3.5, 3, 1]]
    assert read.labels.tolist() == [0, 1, 0]
    assert read.names == ("x", "y")


def test_parquet_of_categories(tmp_path: Path) -> None:
    read = _parquet(tmp_path, {"a": [1.0, 2.0, 3.0], "label": pa.array(["x", "y", "x"]).dictionary_encode()})
    assert read.labels.tolist() == [0, 1, 0]
    assert read.names == ("x", "y")


@pytest.mark.parametrize(
    ("labels", "names"),
    [
        (["b", None, "a", "b"], ("a", "b")),
        ([10, None, 9, 10], (9, 10)),
        ([True, None, False, True], (0, 1)),
        ([2.5, None, 1.5, 2.5], (1.5, 2.5)),
        ([2.5, float("nan"), 1.5, 2.5], (1.5, 2.5)),
    ],
    ids=["text", "whole", "bool", "float", "nan"],
)
def test_an_empty_cell_is_no_label(tmp_path: Path, labels: list[object], names: tuple[object, ...]) -> None:
    read = _parquet(tmp_path, {"a": [1.0, 2.0, 3.0, 4.0], "label": labels})
    assert read.has_unlabelled
    assert read.names == names
    assert read.labels.tolist() == [1, UNLABELLED, 0, 1]
    assert read.known.tolist() == [0, 2, 3]
    if isinstance(labels[0], str | int):
        cells = ["" if label is None else str(int(label) if isinstance(label, bool) else label) for label in labels]
        other = _csv(tmp_path, "a,label\n" + "".join(f"{i + 1},{cell}\n" for i, cell in enumerate(cells)))
        assert (other.names, other.labels.tolist(), other.has_unlabelled) == (names, read.labels.tolist(), True)


def test_parquet_and_csv_agree(tmp_path: Path) -> None:
    a, b = _parquet(tmp_path, {"a": [1.0, 2.0], "label": [10, 9]}), _csv(tmp_path, "a,label\n1,10\n2,9\n")
    assert torch.equal(a.points, b.points)
    assert torch.equal(a.labels, b.labels)
    assert a.names == b.names == (9, 10)


@pytest.mark.parametrize(
    ("columns", "message"),
    [
        ({"a": [1.0, None], "label": [0, 1]}, "column 'a' of .* must have a value in every row, got 'nan' in row 2"),
        ({"a": ["1", None], "label": [0, 1]}, "column 'a' of .* must have a value in every row, got '' in row 2"),
        ({"a": [1.0, 2.0], "label": [None, "x"]}, "column 'label' of .* must have at least 2 classes, got x"),
        ({"a": [1.0, np.nan], "label": [0, 1]}, "column 'a' of .* must have a value in every row, got 'nan' in row 2"),
        ({"a": ["x", "y"], "label": [0, 1]}, "column 'a' of .* must hold numbers, got 'x'"),
        ({"a": [[1], [2]], "label": [0, 1]}, "column 'a' of .* must hold numbers"),
        ({"a": [b"1", b"2"], "label": [0, 1]}, "column 'a' of .* must hold numbers"),
        ({"a": np.array(["2020", "2021"], "M8[s]"), "label": [0, 1]}, "column 'a' of .* must hold numbers"),
        ({"a": [1.0, 2.0], "label": [b"0", b"1"]}, "column 'label' of .* must hold numbers or text"),
    ],
)
def test_parquet_refused(tmp_path: Path, columns: dict[str, object], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        _parquet(tmp_path, columns)


@pytest.mark.parametrize("kept", [0, 3, 100, -1])
def test_parquet_cut_off(tmp_path: Path, kept: int) -> None:
    _parquet(tmp_path, {"a": [1.0, 2.0], "label": [0, 1]})
    path = tmp_path / "own.parquet"
    path.write_bytes(path.read_bytes()[:kept])
    with pytest.raises(ValueError, match=r"must be a whole \.parquet file") as refusal:
        Table(str(path)).read()
    assert "\n" not in str(refusal.value)


def test_a_table_of_another_kind_is_refused(tmp_path: Path) -> None:
    (tmp_path / "own.xlsx").write_text("")
    with pytest.raises(ValueError, match=r"a table must be a \.csv, \.tsv or \.parquet file, got .*xlsx"):
        Table(str(tmp_path / "own.xlsx")).read()


def _csv(folder: Path, text: str, label: str = "label") -> Dataset:
    (folder / "own.csv").write_text(text, encoding="utf-8")
    return Table(str(folder / "own.csv"), label).read()


def _parquet(folder: Path, columns: dict[str, object]) -> Dataset:
    parquet.write_table(pa.table(columns), folder / "own.parquet")
    return Table(str(folder / "own.parquet")).read()


def test_a_wide_table_and_a_long_cell(tmp_path: Path) -> None:
    names = ",".join(f"f{k}" for k in range(20_000))
    read = _csv(tmp_path, f"{names},label\n" + "".join(f"{'1,' * 20_000}{k % 2}\n" for k in range(3)))
    assert read.points.shape == (3, 20_000)
    many = "".join(f"{k},{k % 2}\n" for k in range(20_000))
    tracemalloc.start()
    read = _csv(tmp_path, f"a,label\n{many}0.{'0' * 20_000}1,1\n")
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert read.points[-1] == 0
    # As numpy's own texts, the column would take 1.6 GB.
    assert peak < 50e6


def test_parquet_in_pieces(tmp_path: Path) -> None:
    columns = {"a": list(range(10)), "b": [True, False] * 5, "label": ["x", "y", None, "x", "y"] * 2}
    parquet.write_table(pa.table(columns), tmp_path / "own.parquet")
    whole, pieces = (parquet_columns(tmp_path / "own.parquet", "label", rows=rows) for rows in (100, 3))
    assert list(whole) == list(pieces) == ["a", "b", "label"]
    for name, values in whole.items():
        assert len(values) == 10
        assert np.array_equal(values, pieces[name])


def test_parquet_that_unpacks_to_more_than_its_metadata_say(tmp_path: Path) -> None:
    labels = [f"{'x' * 900}{k}" for k in range(100)] * 2
    parquet.write_table(pa.table({"a": [1.0] * 200, "label": labels}), tmp_path / "own.parquet")
    assert len(parquet_columns(tmp_path / "own.parquet", "label")["label"]) == 200
    with pytest.raises(ValueError, match=r"own\.parquet must unpack to at most 50,000 bytes or 1 times its size"):
        parquet_columns(tmp_path / "own.parquet", "label", limit=UnpackLimit(50_000, 1))
