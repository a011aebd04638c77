"""Numbers with decimal commas and marks between thousands: read as they are meant, or refused."""

from itertools import permutations, product
from pathlib import Path

import numpy as np
import pytest

from widemargin.data.frames import Selection, read_frame
from widemargin.data.local_files import Table
from widemargin.data.numerals import Decimal, is_number, is_numeral, number_reader, with_comma, with_point

OWN = Path("own.csv")


@pytest.mark.parametrize(
    ("text", "point", "comma"),
    [
        ("12", 12, 12),
        ("-1e-3", -0.001, -0.001),
        ("1.5", 1.5, None),
        ("1,5", None, 1.5),
        ("0,125", None, 0.125),
        ("0.125", 0.125, None),
        ("1,234", 1234, 1.234),
        ("1.234", 1.234, 1234),
        (" -1,234 ", -1234, -1.234),
        ("1234,567", None, 1234.567),
        ("1,234,567", 1234567, None),
        ("1.234.567", None, 1234567),
        ("1,234.5", 1234.5, None),
        ("1.234,5", None, 1234.5),
        ("1,23,456", None, None),
        ("1,2345.5", None, None),
        (",5", None, 0.5),
        ("1,5e3", None, 1500),
        ("red", None, None),
        ("", None, None),
        (",", None, None),
    ],
)
def test_both_ways(text: str, point: float | None, comma: float | None) -> None:
    for number, wanted in ((with_point, point), (with_comma, comma)):
        assert is_number(text, number) == (wanted is not None)
        assert wanted is None or number(text) == pytest.approx(wanted)
    assert is_numeral(text) == (point is not None or comma is not None)


def read(cells: list[str], decimal: Decimal | None = None) -> list[float]:
    number = number_reader(cells, "price", decimal, OWN)
    return [number(cell) for cell in cells]


@pytest.mark.parametrize(
    ("cells", "numbers"),
    [
        (["1,234", "12", "0,5"], [1.234, 12, 0.5]),
        (["1,234", "1,234,567"], [1234, 1234567]),
        (["1,234", "12.5"], [1234, 12.5]),
        (["1.234", "2,5"], [1234, 2.5]),
        (["1.234", "2.5"], [1.234, 2.5]),
        (["1.234", "1.234.567"], [1234, 1234567]),
        (["1.234", "2.345"], [1.234, 2.345]),
        # Each can be read in one way only.
        (["1,5", "3.5"], [1.5, 3.5]),
    ],
)
def test_all_cells_of_a_column_decide(cells: list[str], numbers: list[float]) -> None:
    for order in (1, -1):
        assert read(cells[::order]) == pytest.approx(numbers[::order])


@pytest.mark.parametrize(
    "cells",
    [
        ["12", "1,234"],
        ["1.234", "1,234"],
        ["1,234", "2,5", "3.5"],
        # Points are between thousands in the first, and decimal in the second.
        ["1.234.567", "0.5", "1.234"],
        ["0.5", "2,5", "1.234"],
    ],
)
def test_what_stays_open_is_refused_unless_it_is_said(cells: list[str]) -> None:
    for order in permutations(cells):
        with pytest.raises(
            ValueError,
            match=r"'price' of own.csv must show what is decimal in its numbers, got '1[,.]234' in row \d, which may "
            r"be 1.234 or 1234: give --decimal . or --decimal , to say which",
        ):
            read(list(order))
    for cell in {"1,234", "1.234"} & {*cells}:
        assert with_comma(cell) in read(cells, ",")
        assert with_point(cell) in read(cells, ".")


def test_no_number_is_wrong_whatever_a_program_writes() -> None:
    """Columns as programs write them, in both ways, with and without marks between thousands."""
    rng = np.random.default_rng(0)
    refused = 0
    for comma, grouped, digits, size in product((False, True), (False, True), (0, 1, 3), (10.0, 5e6)):
        numbers = np.round(rng.uniform(-size, size, 4), digits)
        cells = [f"{number:{',' if grouped else ''}.{digits}f}" for number in numbers]
        if comma:
            cells = [cell.translate(str.maketrans(",.", ".,")) for cell in cells]
        try:
            assert read(cells) == pytest.approx(list(numbers)), cells
        except ValueError:
            refused += 1
            assert read(cells, "," if comma else ".") == pytest.approx(list(numbers))
    assert 0 < refused < 6


@pytest.mark.parametrize("suffix", [".csv", ".parquet"])
def test_in_files(tmp_path: Path, suffix: str) -> None:
    columns = {"weight": ["3,14", "2,5", "1,234"], "people": ["1,234,567", "12", "900"], "kind": ["a", "b", "a"]}
    path = tmp_path / f"own{suffix}"
    if suffix == ".parquet":
        arrow, parquet = pytest.importorskip("pyarrow"), pytest.importorskip("pyarrow.parquet")
        parquet.write_table(arrow.table(columns), path)
    else:
        rows = [",".join(f'"{cell}"' for cell in row) for row in zip(*columns.values(), strict=True)]
        path.write_text("\n".join([",".join(columns), *rows]))
    frame = read_frame(path, Selection("kind"))
    assert frame.columns["weight"].tolist() == [3.14, 2.5, 1.234]
    assert frame.columns["people"].tolist() == [1234567, 12, 900]
    wanted = np.array([[3.14, 1234567], [2.5, 12], [1.234, 900]], np.float32)
    assert np.array_equal(Table(str(path), "kind").read().stored.numpy(), wanted)


@pytest.mark.parametrize(
    ("text", "is_open"),
    [
        ("a,b,kind\n1.234,1,x\n2.345,2,y\n", False),
        ('a,b,kind\n1.234,"1,5",x\n2.345,2,y\n', True),
        ("a;b;kind\n1.234;1;x\n2.345;2;y\n", True),
        ("a;b;kind\n1.234;.5;x\n2.345;2;y\n", False),
        ("a;b;kind\n1.234;1,5;x\n2.345;2;y\n", True),
        ("a\tb\tkind\n1.234\t.5\tx\n2.345\t1,5\ty\n", True),
    ],
)
def test_points_alone(tmp_path: Path, text: str, is_open: bool) -> None:
    """They are decimal, unless commas seem to be."""
    path = tmp_path / "own.csv"
    path.write_text(text)
    decimals: tuple[Decimal | None, ...] = (None, ",", ".")
    for decimal in decimals:
        table = Table(str(path), "kind", decimal)
        if is_open and decimal is None:
            for reading in (table.read, lambda table=table: table.frame(Selection("kind"))):
                with pytest.raises(ValueError, match=r"'a' of .* must show what is decimal .* 1.234 or 1234"):
                    reading()
            continue
        wanted = [1234.0, 2345.0] if decimal == "," else [1.234, 2.345]
        assert table.frame(Selection("kind")).columns["a"].tolist() == wanted
        assert table.read().stored[:, 0].tolist() == pytest.approx(wanted)


@pytest.mark.usefixtures("untyped")
def test_other_marks_are_refused() -> None:
    with pytest.raises(ValueError, match=r"--decimal must be , or ., got ;"):
        Table("own.csv", decimal=";")  # type: ignore[arg-type]
