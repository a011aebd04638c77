"""Columns one by one; what a whole table makes of them is in test_schema."""

from pathlib import Path

import numpy as np
import pytest

from widemargin.data.columns import CategoryColumn, Columns, NumberColumn
from widemargin.data.frames import Frame

ROWS = np.arange(4)
"""Those of training."""


def frame(*values: float | str) -> Frame:
    cells = np.array(values, object if isinstance(values[0], str) else np.float64)
    return Frame(Path("own.csv"), np.zeros(len(values)), {"x": cells}, ())


def test_numbers_are_those_of_training_rows_and_missing_those_of_all() -> None:
    column = NumberColumn.fit("x", ROWS, Columns(), frame(1, 2, 3, 6, 99, np.nan))
    assert (column.low, column.high, column.shift, column.median) == (1, 6, 3, 2.5)
    assert column.scale == column.spread == pytest.approx(np.std([1, 2, 3, 6]))
    assert column.may_be_missing
    assert not NumberColumn.fit("x", ROWS, Columns(), frame(1, 2, 3, 6)).may_be_missing


def test_units_and_plain_numbers() -> None:
    numbers = frame(1, 2, 3, 6)
    assert NumberColumn.fit("x", ROWS, Columns(units=(("x", 50.0),)), numbers).scale == 50
    plain = NumberColumn.fit("x", ROWS, Columns(standardize=False), numbers)
    assert (plain.shift, plain.scale) == (0, 1)
    assert plain.raw(np.array([3, 0]), numbers).tolist() == [6, 1]


def test_categories_are_those_of_all_rows_and_read_by_number() -> None:
    texts = frame("b", "a", "b", "b", "", "c")
    column = CategoryColumn.fit("x", ROWS, Columns(), texts)
    assert column == CategoryColumn("x", ("a", "b", "c"), missing=True)
    assert column.may_be_missing
    codes = column.raw(np.array([5, 4, 0]), texts)
    assert codes[[0, 2]].tolist() == [2, 1]
    assert np.isnan(codes[1])
    with pytest.raises(ValueError, match="must hold categories that the training file has, a, b, c, got 'd' in row 2"):
        column.raw(np.array([0, 1]), frame("a", "d"))


@pytest.mark.parametrize("kind", [NumberColumn, CategoryColumn])
def test_missing_values_are_refused_if_asked_for(kind: type[NumberColumn] | type[CategoryColumn]) -> None:
    table = frame("b", "", "b", "b") if kind is CategoryColumn else frame(1, np.nan, 3, 6)
    with pytest.raises(ValueError, match=r"'x' of own.csv must have a value in every row, got '' in row 2"):
        kind.fit("x", ROWS, Columns(missing="refuse"), table)


def test_a_column_without_numbers_is_refused() -> None:
    with pytest.raises(ValueError, match="must have a number in some training row, got none"):
        NumberColumn.fit("x", ROWS, Columns(), frame(*[np.nan] * 4, 1))


@pytest.mark.parametrize(
    ("texts", "like"), [(("12 %", "13 %"), "12 %"), (("a", "1"), None), (("1", "2"), None), (("-", "1", "2"), "-")]
)
def test_texts_that_may_be_numbers(texts: tuple[str, ...], like: str | None) -> None:
    assert CategoryColumn("x", texts).like_number() == like
