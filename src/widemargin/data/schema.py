"""The schema of a table: its columns, what their values were in training, and how they become features."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import asdict, dataclass, replace
from functools import cached_property
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from widemargin.data.checks import ClassName
from widemargin.data.classes import numbered_as
from widemargin.data.encoding import RowEncoder
from widemargin.data.frames import Frame, Selection, missing
from widemargin.data.limits import MOST_COLUMNS, MOST_NAME, check_unpacked, listed, quoted, size_of
from widemargin.data.numerals import is_numeral
from widemargin.data.tables import Column, unfit
from widemargin.parts import part

_FEW = 20
"""Rows from which on values that are all different may name them, and half as many categories are too many."""
_APART = 100.0
"""Spreads of numbers that differ by more are worth a warning."""
_TOLD_APART = 1e-5
"""Spreads that are less than so much of a number are lost in its rounding."""
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


@dataclass(frozen=True)
class CategoryColumn:
    name: str
    values: tuple[str, ...]
    missing: bool = False
    """Whether training had missing ones."""


SchemaColumn = NumberColumn | CategoryColumn


@dataclass(frozen=True)
class Schema:
    """Fitted on the training rows alone; every file that is given later is read by it."""

    label: str
    classes: tuple[ClassName, ...]
    columns: tuple[SchemaColumn, ...]
    fixed_columns: tuple[str, ...] = ()
    standardized: bool = True
    dropped: tuple[str, ...] = ()
    """Columns that were there and are not used."""
    category_changes: int = 0
    """How many categories of a row a perturbation may change at once."""
    perturbed_columns: tuple[str, ...] = ()
    """The columns whose category may change then."""

    @staticmethod
    def fit(frame: Frame, rows: NDArray[np.int64], columns: Columns, label: str, classes: tuple[Any, ...]) -> Schema:
        units = dict(columns.units)
        for option, names in (("--fixed", columns.fixed), ("--eps-column", units)):
            strange = [name for name in names if name not in frame.columns]
            if strange:
                raise ValueError(
                    f"{option} must name columns that are used, got {quoted(strange[0])}: {listed(frame.columns)}"
                )
        made: list[SchemaColumn] = []
        for name, values in frame.columns.items():
            if values.dtype == object:
                if name in units:
                    raise ValueError(
                        f"--eps-column must name columns of numbers, got {quoted(name)}, which holds texts"
                    )
                made.append(_category(name, values, rows, columns, frame))
            else:
                made.append(_number(name, values, rows, columns, units.get(name), frame))
        schema = Schema(label, classes, tuple(made), columns.fixed, columns.standardize, frame.left_out)
        if schema.feature_count > MOST_COLUMNS:
            raise ValueError(
                f"{frame.path} must give at most {MOST_COLUMNS:,} features, got {schema.feature_count:,}: leave out "
                "columns of many categories with --drop"
            )
        if len(schema.fixed) == schema.feature_count:
            raise ValueError(
                f"{frame.path} must have at least one column of numbers that may change, got "
                f"{listed(frame.columns)}: {'leave out --fixed, or ' if columns.fixed else ''}add columns of numbers"
            )
        return schema.changing(columns.category_changes, columns.perturbed)

    def changing(self, category_changes: int, perturbed: tuple[str, ...] = ()) -> Schema:
        """The same schema, with so many changes of category in a row, in these columns or in all that are not fixed."""
        if category_changes == 0:
            return replace(self, category_changes=0, perturbed_columns=())
        known = [column.name for _, column in self.categories]
        strange = [name for name in perturbed if name not in known]
        if strange:
            numbers = [column.name for _, column in self.numbers]
            what = "which holds numbers: name it in --categories" if strange[0] in numbers else "which is not used"
            raise ValueError(f"--perturb-categories must name columns of categories, got {quoted(strange[0])}, {what}")
        free = tuple(name for name in known if name in (perturbed or known) and name not in self.fixed_columns)
        if not free:
            raise ValueError(
                f"--perturb-categories needs a column of categories that --fixed does not hold, got "
                f"{listed(map(quoted, known)) or 'none'}"
            )
        return replace(self, category_changes=min(category_changes, len(free)), perturbed_columns=free)

    @property
    def numbers(self) -> list[tuple[int, NumberColumn]]:
        return [(place, column) for place, column in enumerate(self.columns) if isinstance(column, NumberColumn)]

    @property
    def categories(self) -> list[tuple[int, CategoryColumn]]:
        return [(place, column) for place, column in enumerate(self.columns) if isinstance(column, CategoryColumn)]

    @property
    def missing(self) -> list[int]:
        """Places of the columns that may have missing values."""
        return [
            place
            for place, column in enumerate(self.columns)
            if (column.missing if isinstance(column, CategoryColumn) else column.median is not None)
        ]

    @property
    def feature_count(self) -> int:
        """Without their names, which may be long: how many there are is checked first."""
        one_hot = sum(len(column.values) for _, column in self.categories)
        return len(self.numbers) + one_hot + len(self.missing)

    @cached_property
    def features(self) -> tuple[str, ...]:
        """Names, in the order of the encoding."""
        one_hot = [f"{column.name}={value}" for _, column in self.categories for value in column.values]
        unknown = [f"{self.columns[place].name} is missing" for place in self.missing]
        return (*(column.name for _, column in self.numbers), *one_hot, *unknown)

    @cached_property
    def fixed(self) -> tuple[int, ...]:
        """Places of the features that a perturbation must not change."""
        numbers, chosen = [column.name for _, column in self.numbers], set(self.fixed_columns)
        held = [place for place, name in enumerate(numbers) if name in chosen]
        return (*held, *range(len(numbers), self.feature_count))

    def places(self, name: str) -> tuple[int, ...]:
        """Of the features of a column of categories."""
        first = len(self.numbers)
        for _, column in self.categories:
            if column.name == name:
                return tuple(range(first, first + len(column.values)))
            first += len(column.values)
        raise ValueError(f"there is no column of categories named {quoted(name)}")

    @property
    def names(self) -> tuple[str, ...]:
        """Of the columns of a raw row, in its order."""
        return tuple(column.name for column in self.columns)

    def with_label(self, label: str | None) -> Schema:
        """For a file whose column of labels may have another name."""
        return self if label is None else replace(self, label=label)

    def encoder(self) -> RowEncoder:
        return RowEncoder(
            len(self.columns),
            [(place, column.shift, column.scale, column.median) for place, column in self.numbers],
            [(place, number) for place, column in self.categories for number in range(len(column.values))],
            self.missing,
        )

    @property
    def selection(self) -> Selection:
        """How another file is read: the same columns as the same kinds, in whatever order they are there."""
        texts, numbers = (tuple(column.name for _, column in kind) for kind in (self.categories, self.numbers))
        return Selection(self.label, (), self.names, texts, numbers, as_trained=True)

    def encoded(self, frame: Frame, rows: NDArray[np.int64] | None = None) -> Tensor:
        """Features [N, F] of a table's rows."""
        raw = self.raw(frame, rows)
        check_unpacked(frame.path, 4 * len(raw) * len(self.features), size_of(frame.path))
        with torch.no_grad():
            features: Tensor = self.encoder()(raw)
        return features

    def raw(self, frame: Frame, rows: NDArray[np.int64] | None = None) -> Tensor:
        """Raw rows [N, columns]: numbers, categories by their number, NaN where nothing is known."""
        at = np.arange(len(frame)) if rows is None else rows
        raw = np.empty((len(at), len(self.columns)), np.float32)
        for place, column in enumerate(self.columns):
            values = frame.columns[column.name][at]
            self._check_missing(column, values, at, frame)
            raw[:, place] = (
                _codes(column, values, at, frame)
                if isinstance(column, CategoryColumn)
                else _float32(column, values, at, frame)
            )
        return torch.from_numpy(raw)

    def _check_missing(self, column: SchemaColumn, values: Column, at: NDArray[np.int64], frame: Frame) -> None:
        may = column.missing if isinstance(column, CategoryColumn) else column.median is not None
        empty = missing(values)
        if empty.any() and not may:
            raise ValueError(
                f"column {quoted(column.name)} of {frame.path} must have a value in every row, since no training row "
                f"lacks one, got none in row {int(at[empty.argmax()]) + 1}: fill or drop such rows"
            )

    def labels(self, frame: Frame) -> NDArray[np.int64]:
        return numbered_as(frame.labels, self.classes, f"column {quoted(self.label)} of {frame.path}")

    def notes(self) -> list[str]:
        """What is worth a warning of the training rows."""
        said = []
        ids = [column.name for _, column in self.numbers if column.is_id]
        if ids:
            said.append(
                f"{listed(map(quoted, ids))} may be an id, which says nothing of other rows: leave it out with --drop"
            )
        like_numbers = [(column.name, text) for _, column in self.categories if (text := _like_number(column))]
        if like_numbers:
            names = listed(quoted(name) for name, _ in like_numbers)
            said.append(
                f"{names} may be numbers, but is taken for categories, such as {quoted(like_numbers[0][1])}: write "
                "digits, sign and decimal mark alone, or leave it out with --drop"
            )
        if not self.standardized:
            said += apart({column.name: column.spread for _, column in self.numbers if column.scale == 1})
        coarse = [
            column.name for _, column in self.numbers if 0 < column.spread < _TOLD_APART * max(-column.low, column.high)
        ]
        if coarse:
            said.append(
                f"{listed(map(quoted, coarse))} varies too little for its size to be told apart in 32-bit numbers: "
                "subtract a number from the column first"
            )
        constant = [column.name for _, column in self.numbers if column.low == column.high]
        if constant:
            said.append(f"{listed(map(quoted, constant))} is the same in all training rows: leave it out with --drop")
        return said

    def notes_on(self, frame: Frame) -> list[str]:
        """What is worth a warning of another file."""
        said = []
        strange = [name for name in frame.left_out if name not in self.dropped]
        if strange:
            said.append(f"columns of {frame.path.name} that training had not are left out: {listed(strange)}")
        for _, column in self.numbers:
            values = frame.columns[column.name]
            beyond = int(((values < column.low) | (values > column.high)).sum())
            if beyond:
                said.append(
                    f"in {beyond:,} of {len(frame):,} rows of {frame.path.name} {quoted(column.name)} is beyond the "
                    f"{column.low:g} to {column.high:g} of training"
                )
        return said if len(said) <= _MOST_NOTES else [*said[:_MOST_NOTES], f"and {len(said) - _MOST_NOTES} such more"]

    def to_dict(self) -> dict[str, Any]:
        columns = [{"kind": _KIND[type(column)], **asdict(column)} for column in self.columns]
        content = {**asdict(self), "classes": list(self.classes), "columns": columns}
        if not self.category_changes:
            # As it was before there were such changes.
            del content["category_changes"], content["perturbed_columns"]
        return content

    @staticmethod
    def from_dict(content: Mapping[str, Any]) -> Schema:
        kinds = {name: kind for kind, name in _KIND.items()}
        try:
            columns = tuple(
                kinds[column["kind"]](**{name: _plain(value) for name, value in column.items() if name != "kind"})
                for column in content["columns"]
            )
            return Schema(**{**{name: _plain(value) for name, value in content.items()}, "columns": columns})
        except (KeyError, TypeError, AttributeError) as problem:
            raise ValueError(f"it is no schema ({type(problem).__name__})") from None


_KIND: dict[type, str] = {NumberColumn: "number", CategoryColumn: "category"}
_MOST_NOTES = 5


def apart(spreads: Mapping[str, float]) -> list[str]:
    """A sentence if features are of very different scales, which one radius cannot fit."""
    varying = {name: spread for name, spread in spreads.items() if spread > 0}
    if not varying:
        return []
    least, most = min(varying, key=lambda name: varying[name]), max(varying, key=lambda name: varying[name])
    if varying[most] <= _APART * varying[least]:
        return []
    return [
        f"standard deviations of the features differ {varying[most] / varying[least]:,.0f}-fold ({least}: "
        f"{varying[least]:.3g}, {most}: {varying[most]:.3g}), so one radius cannot fit them all: give "
        "--standardize, or the radius of each with --eps-column"
    ]


def _plain(value: Any) -> Any:
    return tuple(value) if isinstance(value, list) else value


def _number(
    name: str, values: Column, rows: NDArray[np.int64], columns: Columns, unit: float | None, frame: Frame
) -> NumberColumn:
    empty = missing(values)
    if empty.any() and columns.missing == "refuse":
        raise unfit("", int(empty.argmax()) + 1, name, frame.path)
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
            f"column {quoted(name)} of {frame.path} must vary by at least {_LEAST:.2g}, the least that 32-bit numbers "
            f"can tell apart, got numbers from {known.min():g} to {known.max():g}: multiply it, or leave it out with "
            "--drop"
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


def _category(name: str, values: Column, rows: NDArray[np.int64], columns: Columns, frame: Frame) -> CategoryColumn:
    empty = missing(values)
    if empty.any() and columns.missing == "refuse":
        raise unfit("", int(empty.argmax()) + 1, name, frame.path)
    # Of all rows: a category that only the test rows have must have a feature too, which training leaves at 0.
    distinct = sorted(set(values[~empty]))
    if len(distinct) > MOST_COLUMNS or (len(values) >= _FEW and 2 * len(distinct) > len(values)):
        raise ValueError(
            f"column {quoted(name)} of {frame.path} must hold numbers, or categories that are each in several rows, "
            f"got {len(distinct):,} different texts in {len(values):,} rows, such as {quoted(distinct[0])}: "
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


def _like_number(column: CategoryColumn) -> str | None:
    """One of its texts that is no number, if most are but for marks, or are; where all are, they were named."""
    others = [text for text in column.values if not is_numeral(text)]
    like = sum(is_numeral(_MARKS.sub("", text)) for text in column.values)
    return others[0] if others and 2 * like > len(column.values) else None


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


def _float32(column: NumberColumn, values: Column, at: NDArray[np.int64], frame: Frame) -> Column:
    _check_finite(column.name, frame.columns[column.name], frame)
    return values.astype(np.float32)


def _codes(column: CategoryColumn, values: Column, at: NDArray[np.int64], frame: Frame) -> Column:
    places: dict[str, float] = {value: number for number, value in enumerate(column.values)}
    places[""] = np.nan
    strange = next((row for row, value in zip(at, values, strict=True) if value not in places), None)
    if strange is not None:
        raise ValueError(
            f"column {quoted(column.name)} of {frame.path} must hold categories that the training file has, "
            f"{listed(column.values)}, got {quoted(frame.columns[column.name][strange])} in row {int(strange) + 1}: "
            "leave such rows out"
        )
    return np.array([places[value] for value in values], np.float32)
