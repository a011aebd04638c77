"""Frames: numbers, texts and missing values, in .csv and .parquet alike."""

from pathlib import Path

import numpy as np
import pytest

from widemargin.data.frames import Frame, Selection, read_frame

TEXT = "id,age,colour,size,label\n1,30,red,1,a\n2,NA,,2,b\n3,?,none,null,a\n4,41.5, red ,3,\n"


def read(path: Path, text: str, **chosen: tuple[str, ...]) -> Frame:
    path.write_text(text)
    return read_frame(path, Selection("label", **chosen))


def test_kinds_follow_from_the_values(tmp_path: Path) -> None:
    frame = read(tmp_path / "own.csv", TEXT)
    assert list(frame.columns) == ["id", "age", "colour", "size"]
    np.testing.assert_array_equal(frame.columns["age"], [30, np.nan, np.nan, 41.5])
    np.testing.assert_array_equal(frame.columns["size"], [1, 2, np.nan, 3])
    # A category may be called none.
    assert frame.columns["colour"].tolist() == ["red", "", "none", "red"]
    assert frame.labels.tolist() == ["a", "b", "a", ""]


def test_columns_are_chosen(tmp_path: Path) -> None:
    dropped = read(tmp_path / "own.csv", TEXT, drop=("id", "colour"))
    assert (list(dropped.columns), dropped.left_out) == (["age", "size"], ("id", "colour"))
    only = read(tmp_path / "own.csv", TEXT, only=("size", "age"), texts=("size",))
    assert list(only.columns) == ["age", "size"]
    assert only.columns["size"].tolist() == ["1", "2", "", "3"]
    for option, message in (
        ({"drop": ("ago",)}, "--drop must name columns of .* got 'ago': it has id, age, colour, size"),
        ({"only": ("label",)}, "--only must name columns of .* other than its labels, got 'label'"),
        ({"drop": ("id", "age", "colour", "size")}, "at least one column besides 'label', got none that is left"),
    ):
        with pytest.raises(ValueError, match=message):
            read(tmp_path / "own.csv", TEXT, **option)


def test_a_few_texts_among_numbers_are_mistakes(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match=r"column 'a' of .* must hold numbers, got 'x' in row 3"):
        read(tmp_path / "own.csv", "a,label\n1,0\n2,1\nx,0\n")
    # As many texts as not are a category's.
    assert read(tmp_path / "own.csv", "a,label\n1,0\ny,1\nx,0\n").columns["a"].tolist() == ["1", "y", "x"]
    with pytest.raises(ValueError, match="must hold numbers, got 'y' in row 2"):
        read(tmp_path / "own.csv", "a,label\n1,0\ny,1\nx,0\n", numbers=("a",))


def test_a_column_without_a_name_gets_one(tmp_path: Path) -> None:
    """As pandas writes the numbers of rows."""
    frame = read(tmp_path / "own.csv", ",a,label\n0,5,x\n1,6,y\n")
    assert list(frame.columns) == ["column 1", "a"]
    assert list(read(tmp_path / "own.csv", ",a,label\n0,5,x\n1,6,y\n", drop=("column 1",)).columns) == ["a"]


def test_decimal_commas(tmp_path: Path) -> None:
    frame = read(tmp_path / "own.csv", "a;b;label\n1,5;x;0\n-2,25;y;1\n3.5;x;1\n")
    assert frame.columns["a"].tolist() == [1.5, -2.25, 3.5]


def test_parquet_and_csv_agree(tmp_path: Path) -> None:
    arrow, parquet = pytest.importorskip("pyarrow"), pytest.importorskip("pyarrow.parquet")
    columns = {
        "when": np.array(["2020", "2021", "2022", "2023"], "M8[s]"),
        "age": [30, None, None, 41.5],
        "colour": ["red", None, "none", "red"],
        "size": ["1", "2", "null", "3"],
        "label": ["a", "b", "a", None],
    }
    parquet.write_table(arrow.table(columns), tmp_path / "own.parquet")
    # A column of another kind is in nobody's way if it is left out.
    frame = read_frame(tmp_path / "own.parquet", Selection("label", drop=("when",)))
    wanted = read(tmp_path / "own.csv", TEXT, drop=("id",))
    assert list(frame.columns) == list(wanted.columns)
    for name, values in wanted.columns.items():
        np.testing.assert_array_equal(frame.columns[name], values)
    assert frame.labels.tolist() == wanted.labels.tolist()
    with pytest.raises(ValueError, match=r"column 'when' of .* must hold numbers, got timestamp"):
        read_frame(tmp_path / "own.parquet", Selection("label"))


def test_codes_keep_all_their_digits(tmp_path: Path) -> None:
    pytest.importorskip("pyarrow")
    import pyarrow
    from pyarrow import parquet

    table = pyarrow.table(
        {"code": [1234567, 1234568, 1234569], "part": [0.5, 1.0, float("nan")], "label": ["a", "b", "a"]}
    )
    parquet.write_table(table, tmp_path / "own.parquet")
    frame = read_frame(tmp_path / "own.parquet", Selection("label", texts=("code", "part")))
    assert frame.columns["code"].tolist() == ["1234567", "1234568", "1234569"]
    assert frame.columns["part"].tolist() == ["0.5", "1", ""]


def test_rows_of_separators_alone_are_none(tmp_path: Path) -> None:
    frame = read(tmp_path / "own.csv", "age,label\n1,a\n2,b\n,\n,\n")
    assert len(frame) == 2
