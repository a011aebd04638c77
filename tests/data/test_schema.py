"""Schemas: fitted on training rows, and held against every other file."""

import json
from pathlib import Path

import pytest
import torch

from widemargin.data.columns import CategoryColumn, Columns, NumberColumn
from widemargin.data.frames import read_frame
from widemargin.data.limits import quoted
from widemargin.data.local import SchemaData, TableData
from widemargin.data.local_files import Table
from widemargin.data.schema import Schema, apart

ROWS = [
    (f"{1000 + 7 * k}", "" if k % 9 == 4 else f"{20 + k % 11}", f"{0.001 * (k % 5)}", ["red", "green", "blue"][k % 3])
    for k in range(60)
]


def table(path: Path, rows: list[tuple[str, ...]] = ROWS, names: str = "price,age,share,colour") -> Table:
    lines = [",".join([*row, "yn"[k % 2]]) for k, row in enumerate(rows)]
    path.write_text("\n".join([f"{names},bought", *lines]) + "\n")
    return Table(str(path), "bought")


def slow(schema: Schema, row: tuple[str, ...], names: tuple[str, ...]) -> list[float]:
    """Row by row and cell by cell, the twin of the encoder."""
    cells = dict(zip(names, row, strict=True))
    numbers, one_hot, unknown = [], [], []
    for column in schema.columns:
        cell = cells[column.name]
        if isinstance(column, NumberColumn):
            number = column.median if cell == "" else float(cell)
            assert number is not None
            numbers.append((number - column.shift) / column.scale)
            unknown += [float(cell == "")] if column.median is not None else []
        else:
            one_hot += [float(cell == value) for value in column.values]
            unknown += [float(cell == "")] if column.missing else []
    return [*numbers, *one_hot, *unknown]


def test_training_rows_alone_decide(tmp_path: Path) -> None:
    splits = TableData(table(tmp_path / "own.csv")).draw()
    schema, train = splits.train.schema, splits.train.points
    assert schema is not None
    assert (schema.label, schema.classes) == ("bought", ("n", "y"))
    assert schema.features == (
        *("price", "age", "share"),
        *("colour=blue", "colour=green", "colour=red"),
        "age is missing",
    )
    # Categories and what is missing are nobody's to change.
    assert schema.fixed == (3, 4, 5, 6)
    for place in (0, 2):
        assert float(train[:, place].mean()) == pytest.approx(0, abs=1e-5)
        assert float(train[:, place].std(correction=0)) == pytest.approx(1, abs=1e-5)
    known = train[train[:, 6] == 0, 1]
    assert float(known.mean()) == pytest.approx(0, abs=1e-5)
    # Not those of the other parts, which therefore differ.
    assert abs(float(splits.test.points[:, 0].mean())) > 1e-4
    assert (len(splits.train), len(splits.validation), len(splits.test)) == (42, 6, 12)
    assert splits.test.features == schema.features


def test_the_encoder_agrees_with_its_twin(tmp_path: Path) -> None:
    splits = TableData(table(tmp_path / "own.csv")).draw()
    schema = splits.train.schema
    assert schema is not None
    frame = read_frame(tmp_path / "own.csv", schema.selection)
    wanted = torch.tensor([slow(schema, row, ("price", "age", "share", "colour")) for row in ROWS])
    torch.testing.assert_close(schema.encoded(frame), wanted, rtol=1e-4, atol=1e-4)


def test_options(tmp_path: Path) -> None:
    file = table(tmp_path / "own.csv")
    plain = TableData(file, Columns(only=("price", "share"), standardize=False)).draw()
    assert plain.train.points[:, 0].min() >= 1000
    assert plain.train.schema is not None
    assert plain.train.schema.fixed == ()
    assert "standard deviations of the features differ" in plain.notes[0]
    units = TableData(file, Columns(drop=("colour",), units=(("price", 50.0),), fixed=("age",))).draw().train.schema
    assert units is not None
    assert units.columns[0].scale == 50  # type: ignore[union-attr]
    assert units.fixed == (1, 3)
    coded = TableData(file, Columns(only=("share", "price"), categories=("share",))).draw().train.schema
    assert coded is not None
    assert coded.columns[1] == CategoryColumn("share", ("0.0", "0.001", "0.002", "0.003", "0.004"))


@pytest.mark.parametrize(
    ("columns", "message"),
    [
        (Columns(missing="refuse"), "column 'age' of .* must have a value in every row, got '' in row 5"),
        (Columns(fixed=("size",)), "--fixed must name columns that are used, got 'size'"),
        (Columns(units=(("colour", 2.0),)), "--eps-column must name columns of numbers, got 'colour'"),
        (
            Columns(only=("colour",)),
            "at least one column of numbers that may change, got colour: add columns of numbers",
        ),
    ],
)
def test_options_that_cannot_be(tmp_path: Path, columns: Columns, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        TableData(table(tmp_path / "own.csv"), columns).draw()
    with pytest.raises(ValueError, match="--missing must be median or refuse"):
        Columns(missing="mean")
    with pytest.raises(ValueError, match=r"unit of column 'price' must be between 1.2e-38 and 3.4e\+38, got 1e\+39"):
        Columns(units=(("price", 1e39),))


def test_columns_that_say_nothing(tmp_path: Path) -> None:
    """Ids and constants are named, not dropped; texts of which each row has its own are refused."""
    rows = [(str(k + 1), "7", f"{k % 4}", f"name {k}") for k in range(60)]
    file = table(tmp_path / "own.csv", rows, "customer_id,same,x,name")
    with pytest.raises(
        ValueError, match="got 60 different texts in 60 rows, such as 'name 0': leave it out with --drop"
    ):
        TableData(file).draw()
    drawn = TableData(file, Columns(drop=("name",))).draw()
    assert drawn.train.features == ("customer_id", "same", "x")
    assert "'customer_id' may be an id" in drawn.notes[0]
    assert "'same' is the same in all training rows" in drawn.notes[1]
    assert not drawn.train.points[:, 1].any()


def test_times_in_seconds_are_too_coarse(tmp_path: Path) -> None:
    rows = [(str(1_700_000_000 + k % 7), str(k % 4), "1", "x") for k in range(60)]
    drawn = TableData(table(tmp_path / "own.csv", rows), Columns(only=("price", "age"))).draw()
    assert drawn.notes == (
        "'price' varies too little for its size to be told apart in 32-bit numbers: subtract a number from the column "
        "first",
    )


@pytest.mark.parametrize("texts", [["12 %", "13 %"], ["1'200", "3'400", "900"], ["$5", "$ 7.50"], ["-", "1.5", "2.5"]])
def test_numbers_that_become_categories(tmp_path: Path, texts: list[str]) -> None:
    cells = [texts[0] if k % 5 else texts[k // 5 % len(texts)] for k in range(60)]
    rows = [(str(k % 4), cell) for k, cell in enumerate(cells)]
    notes = TableData(table(tmp_path / "own.csv", rows, "age,rate")).draw().notes
    assert len(notes) == 1
    assert f"'rate' may be numbers, but is taken for categories, such as {quoted(min(texts))}: write digits" in notes[0]
    named = [(str(k % 4), str(k % 3)) for k in range(60)]
    assert TableData(table(tmp_path / "own.csv", named, "age,rate"), Columns(categories=("rate",))).draw().notes == ()


def test_another_file_is_read_by_name(tmp_path: Path) -> None:
    schema = TableData(table(tmp_path / "own.csv"), Columns(drop=("share",))).draw().train.schema
    assert schema is not None
    rows = [(row[3], row[1], row[0], "5", row[2]) for row in ROWS]
    other = table(tmp_path / "other.csv", rows, "colour,age,price,extra,share")
    drawn = SchemaData(other, schema, test=None).draw()
    whole = read_frame(tmp_path / "own.csv", schema.selection)
    assert torch.equal(drawn.test.points, schema.encoded(whole))
    # `share` was there in training, and left out.
    assert drawn.notes == ("columns of other.csv that training had not are left out: extra",)
    part = SchemaData(other, schema).draw()
    assert len(part.test) == 12


@pytest.mark.parametrize(
    ("names", "row", "message"),
    [
        ("price,share,colour,more", ("1", ".1", "red", "1"), "trained on, got none called 'age': add or rename"),
        (
            "price,age,share,colour",
            ("1", "2", ".1", "pink"),
            "categories that the training file has, .* got 'pink' in row 1",
        ),
        (
            "price,age,share,colour",
            ("1", "2", "", "red"),
            "'share' of .* since no training row lacks one, got none in row 1",
        ),
        ("price,age,share,colour", ("1", "x", ".1", "red"), "'age' of .* must hold numbers, got 'x' in row 1"),
        ("price,age,share,colour", ("1", "inf", ".1", "red"), "'age' of .* must hold finite 32-bit numbers"),
    ],
)
def test_another_file_that_does_not_fit(tmp_path: Path, names: str, row: tuple[str, ...], message: str) -> None:
    schema = TableData(table(tmp_path / "own.csv")).draw().train.schema
    assert schema is not None
    other = table(tmp_path / "other.csv", [row, row], names)
    with pytest.raises(ValueError, match=message) as refusal:
        SchemaData(other, schema, test=None).draw()
    assert "\n" not in str(refusal.value)


def test_beyond_training(tmp_path: Path) -> None:
    schema = TableData(table(tmp_path / "own.csv")).draw().train.schema
    assert schema is not None
    other = table(tmp_path / "other.csv", [("99999", "25", ".001", "red"), *ROWS[:3]])
    assert "in 1 of 4 rows of other.csv 'price' is beyond the" in SchemaData(other, schema, test=None).draw().notes[0]


@pytest.mark.parametrize("size", [1e-60, 1e-200])
def test_columns_that_32_bit_numbers_cannot_tell_apart(tmp_path: Path, size: float) -> None:
    rows = [(f"{k}", f"{size * (k % 7):g}") for k in range(60)]
    with pytest.raises(ValueError, match=r"'tiny' of .* must vary by at least 1.2e-38, .* got numbers from 0 to"):
        TableData(table(tmp_path / "own.csv", rows, "a,tiny")).draw()
    rows = [(f"{k}", f"{size:g}") for k in range(60)]
    notes = TableData(table(tmp_path / "own.csv", rows, "a,tiny")).draw().notes
    assert any("'tiny' is the same in all training rows" in note for note in notes)


def test_it_is_written_and_read(tmp_path: Path) -> None:
    schema = TableData(table(tmp_path / "own.csv"), Columns(fixed=("age",))).draw().train.schema
    assert schema is not None
    assert Schema.from_dict(json.loads(json.dumps(schema.to_dict()))) == schema
    for damaged in ({}, {**schema.to_dict(), "columns": [{"kind": "own"}]}, {**schema.to_dict(), "more": 1}):
        with pytest.raises(ValueError, match="it is no schema"):
            Schema.from_dict(damaged)


def test_scales_apart() -> None:
    assert apart({"a": 1.0, "b": 99.0, "c": 0.0}) == []
    assert "200-fold (a: 0.5, b: 100)" in apart({"a": 0.5, "b": 100.0})[0]


def test_categories_that_may_change(tmp_path: Path) -> None:
    shapes = [(*row, ["round", "square"][k % 2]) for k, row in enumerate(ROWS)]
    file = table(tmp_path / "own.csv", shapes, "price,age,share,colour,shape")

    def schema(columns: Columns) -> Schema:
        made = TableData(file, columns).draw().train.schema
        assert made is not None
        return made

    plain, both = schema(Columns()), schema(Columns(category_changes=5))
    assert plain.places("colour") == (3, 4, 5)
    assert plain.places("shape") == (6, 7)
    with pytest.raises(ValueError, match="no column of categories named 'age'"):
        plain.places("age")
    # More changes than columns are all of them; what is fixed stays, whatever is asked.
    assert (both.category_changes, both.perturbed_columns) == (2, ("colour", "shape"))
    assert schema(Columns(category_changes=1, perturbed=("shape",))).perturbed_columns == ("shape",)
    one = schema(Columns(category_changes=1, perturbed=("colour", "shape"), fixed=("colour",)))
    assert one.perturbed_columns == ("shape",)
    # In a ball they are held as ever.
    assert plain.fixed == both.fixed == tuple(range(3, 9))
    assert both.changing(0) == plain
    assert plain.changing(1, ("shape",)) == schema(Columns(category_changes=1, perturbed=("shape",)))
    assert Schema.from_dict(json.loads(json.dumps(both.to_dict()))) == both
    assert not {"category_changes", "perturbed_columns"} & set(plain.to_dict())
    for columns, message in (
        (Columns(category_changes=1, perturbed=("age",)), "got 'age', which holds numbers: name it in --categories"),
        (Columns(category_changes=1, perturbed=("size",)), "got 'size', which is not used"),
        (Columns(category_changes=1, fixed=("colour", "shape")), "that --fixed does not hold, got 'colour', 'shape'"),
        (Columns(category_changes=1, drop=("colour", "shape")), "that --fixed does not hold, got none"),
    ):
        with pytest.raises(ValueError, match=message):
            schema(columns)
    with pytest.raises(ValueError, match="--category-changes must be a whole number of at least 0, got -1"):
        Columns(category_changes=-1)
