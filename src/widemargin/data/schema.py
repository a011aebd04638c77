"""The schema of a table: its columns, what their values were in training, and how they become features."""

from __future__ import annotations

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
from widemargin.data.columns import CategoryColumn, Columns, NumberColumn, SchemaColumn
from widemargin.data.encoding import RowEncoder
from widemargin.data.frames import Frame, Selection, missing
from widemargin.data.limits import MOST_COLUMNS, check_unpacked, listed, quoted, size_of

_APART = 100.0
"""Spreads of numbers that differ by more are worth a warning."""
_TOLD_APART = 1e-5
"""Spreads that are less than so much of a number are lost in its rounding."""


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
            is_category = values.dtype == object
            if is_category and name in units:
                raise ValueError(f"--eps-column must name columns of numbers, got {quoted(name)}, which holds texts")
            made.append((CategoryColumn if is_category else NumberColumn).fit(name, rows, columns, frame))
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
        return [place for place, column in enumerate(self.columns) if column.may_be_missing]

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
            _check_missing(column, at, frame)
            raw[:, place] = column.raw(at, frame)
        return torch.from_numpy(raw)

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
        like_numbers = [(column.name, text) for _, column in self.categories if (text := column.like_number())]
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


def _check_missing(column: SchemaColumn, at: NDArray[np.int64], frame: Frame) -> None:
    empty = missing(frame.columns[column.name][at])
    if empty.any() and not column.may_be_missing:
        raise ValueError(
            f"column {quoted(column.name)} of {frame.path} must have a value in every row, since no training row "
            f"lacks one, got none in row {int(at[empty.argmax()]) + 1}: fill or drop such rows"
        )
