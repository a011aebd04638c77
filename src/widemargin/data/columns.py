"""The columns of a table: what is made of them, what their values were in training, and how they are read."""

from __future__ import annotations

import re
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from widemargin.data.frames import Frame, Selection, missing
from widemargin.data.limits import MOST_COLUMNS, MOST_NAME, listed, quoted
from widemargin.data.numerals import is_numeral
from widemargin.data.tables import Column, unfit
from widemargin.parts import part

_FEW = 20
"""Rows from which on values that are all different may name them, and half as many categories are too many."""
_LEAST = float(np.finfo(np.float32).tiny)
"""Scales below it become 0, or lose their digits."""
_LARGEST = float(np.finfo(np.float32).max)
_ID = re.compile(r"(^|[^a-z])(id|ids|idx|index|uuid|guid|key|no|nr|number|row)([^a-z]|$)", re.IGNORECASE)
_MARKS = re.compile(r"[\s'\u2019%$\u20ac\u00a3\u00a5]")
"""Beside the digits of numbers: between thousands, percent and currencies."""
_WHOLE_ID = re.compile(r"[a-z]+(Id|ID)")


@part
@dataclass(frozen=True)
class Columns:
    """What is made of a table's columns.  Texts, and `categories`, become a feature for each category."""

    drop: tuple[str, ...] = ()
    only: tuple[str, ...] = ()
    categories: tuple[str, ...] = ()
    missing: str = "median"
    """What stands for a missing number, beside a feature that says so; or `refuse`."""
    standardize: bool = True
    """Numbers have mean 0 and standard deviation 1 over the training rows."""
    units: tuple[tuple[str, float], ...] = ()
    """By column: how much of it is 1 after standardising, instead of its standard deviation."""
    fixed: tuple[str, ...] = ()
    """Columns that a perturbation must not change, beside the categories and what is missing."""
    category_changes: int = 0
    """How many categories of a row a perturbation may change at once, each to another of its column."""
    perturbed: tuple[str, ...] = ()
    """The columns whose category may change then, all of categories if empty; those that are `fixed` stay."""

    def __post_init__(self) -> None:
        if self.missing not in ("median", "refuse"):
            raise ValueError(f"--missing must be median or refuse, got {self.missing}")
        if self.category_changes < 0:
            raise ValueError(f"--category-changes must be a whole number of at least 0, got {self.category_changes}")
        for name, unit in self.units:
            if not _LEAST <= unit <= _LARGEST:
                raise ValueError(
                    f"the unit of column {quoted(name)} must be between {_LEAST:.2g} and {_LARGEST:.2g}, got {unit}"
                )

    def selection(self, label: str) -> Selection:
        return Selection(label, self.drop, self.only, self.categories)


@dataclass(frozen=True)
class NumberColumn:
    name: str
    low: float
    high: float
    spread: float
    """Standard deviation over the training rows."""
    shift: float
    scale: float
    """A feature is (number - shift) / scale."""
    median: float | None = None
    """What stands for a missing number; None if training had none missing."""
    is_id: bool = False
    """Whole numbers, all different, under the name of an id or one after the other."""

    @staticmethod
    def fit(name: str, rows: NDArray[np.int64], columns: Columns, frame: Frame) -> NumberColumn:
        values, unit = frame.columns[name], dict(columns.units).get(name)
        empty = _missing(name, columns, frame)
        _check_finite(name, values, frame)
        known = values[rows][~empty[rows]]
        if len(known) == 0:
            raise ValueError(
                f"column {quoted(name)} of {frame.path} must have a number in some training row, got none: leave it "
                "out with --drop"
            )
        mean = float(known.mean())
        # Of a constant, rounding may leave a little.
        spread = float(known.std()) if known.min() < known.max() else 0.0
        if known.min() < known.max() and spread < _LEAST:
            raise ValueError(
                f"column {quoted(name)} of {frame.path} must vary by at least {_LEAST:.2g}, the least that 32-bit "
                f"numbers can tell apart, got numbers from {known.min():g} to {known.max():g}: multiply it, or leave "
                "it out with --drop"
            )
        return NumberColumn(
            name,
            float(known.min()),
            float(known.max()),
            spread,
            mean if columns.standardize else 0.0,
            unit or ((spread or 1.0) if columns.standardize else 1.0),
            # Of all rows: whether a column may have missing values follows from the file that is trained on.
            float(np.median(known)) if empty.any() else None,
            _names_rows(name, known),
        )

    @property
    def may_be_missing(self) -> bool:
        return self.median is not None

    def raw(self, at: NDArray[np.int64], frame: Frame) -> Column:
        """Of these rows of a table."""
        _check_finite(self.name, frame.columns[self.name], frame)
        return frame.columns[self.name][at].astype(np.float32)


@dataclass(frozen=True)
class CategoryColumn:
    name: str
    values: tuple[str, ...]
    missing: bool = False
    """Whether training had missing ones."""

    @staticmethod
    def fit(name: str, rows: NDArray[np.int64], columns: Columns, frame: Frame) -> CategoryColumn:
        values = frame.columns[name]
        empty = _missing(name, columns, frame)
        # Of all rows: a category that only the test rows have must have a feature too, which training leaves at 0.
        distinct = sorted(set(values[~empty]))
        if len(distinct) > MOST_COLUMNS or (len(values) >= _FEW and 2 * len(distinct) > len(values)):
            raise ValueError(
                f"column {quoted(name)} of {frame.path} must hold numbers, or categories that are each in several "
                f"rows, got {len(distinct):,} different texts in {len(values):,} rows, such as {quoted(distinct[0])}: "
                "leave it out with --drop"
            )
        if len(name) > MOST_NAME:
            # It stands in the name of the feature of each category.
            raise ValueError(
                f"the name of a column of categories in {frame.path} must have at most {MOST_NAME:,} characters, got "
                f"{len(name):,} in {quoted(name)}: give it a shorter one"
            )
        longest = max(distinct, key=len, default="")
        if len(longest) > MOST_NAME:
            raise ValueError(
                f"column {quoted(name)} of {frame.path} must hold categories of at most {MOST_NAME:,} characters, got "
                f"{len(longest):,} in {quoted(longest)}: leave it out with --drop"
            )
        return CategoryColumn(name, tuple(distinct), bool(empty.any()))

    @property
    def may_be_missing(self) -> bool:
        return self.missing

    def raw(self, at: NDArray[np.int64], frame: Frame) -> Column:
        """Of these rows of a table: the number of each category, NaN where there is none."""
        values = frame.columns[self.name][at]
        places: dict[str, float] = {value: number for number, value in enumerate(self.values)}
        places[""] = np.nan
        strange = next((row for row, value in zip(at, values, strict=True) if value not in places), None)
        if strange is not None:
            raise ValueError(
                f"column {quoted(self.name)} of {frame.path} must hold categories that the training file has, "
                f"{listed(self.values)}, got {quoted(frame.columns[self.name][strange])} in row {int(strange) + 1}: "
                "leave such rows out"
            )
        return np.array([places[value] for value in values], np.float32)

    def like_number(self) -> str | None:
        """One of its texts that is no number, if most are but for marks, or are; where all are, they were named."""
        others = [text for text in self.values if not is_numeral(text)]
        like = sum(is_numeral(_MARKS.sub("", text)) for text in self.values)
        return others[0] if others and 2 * like > len(self.values) else None


SchemaColumn = NumberColumn | CategoryColumn


def _names_rows(name: str, known: Column) -> bool:
    if len(known) < _FEW or bool((known % 1 != 0).any()) or len(np.unique(known)) != len(known):
        return False
    named = _ID.search(name) is not None or _WHOLE_ID.fullmatch(name) is not None
    return named or float(known.max() - known.min()) < 2 * len(known)


def _check_finite(name: str, values: Column, frame: Frame) -> None:
    with np.errstate(over="ignore"):
        wrong = np.isinf(values.astype(np.float32))
    if wrong.any():
        row = int(wrong.argmax())
        raise unfit(f"{values[row]:g}", row + 1, name, frame.path)


def _missing(name: str, columns: Columns, frame: Frame) -> NDArray[np.bool_]:
    """In which rows nothing is, if that may be."""
    empty = missing(frame.columns[name])
    if empty.any() and columns.missing == "refuse":
        raise unfit("", int(empty.argmax()) + 1, name, frame.path)
    return empty
