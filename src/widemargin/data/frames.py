"""Tables as they are: columns of numbers and of texts, with missing values, and a column of labels."""

from __future__ import annotations

from array import array
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from widemargin.data.limits import listed, quoted
from widemargin.data.numerals import Decimal, Number, is_number, is_numeral, number_reader, number_readers
from widemargin.data.separators import Rows, header, text_rows
from widemargin.data.tables import (
    MISSING,
    Column,
    check_names,
    is_parquet,
    parquet_columns,
    unfit,
)

_NO_TEXT = tuple(text for text in MISSING if text != "none")
"""What stands for no text: `none` may be a category."""


@dataclass(frozen=True)
class Selection:
    """Which columns of a table are read, and as what: those that are neither named here nor there, by their content."""

    label: str
    drop: tuple[str, ...] = ()
    only: tuple[str, ...] = ()
    """All, if empty."""
    texts: tuple[str, ...] = ()
    numbers: tuple[str, ...] = ()
    as_trained: bool = False
    """Whether these are the columns that a run was trained on, rather than what an option says."""

    def of(self, names: Sequence[str], path: Path) -> list[str]:
        """The features among the names, in the order of the file."""
        there = set(names)
        lacking = [name for name in self.only if name not in there]
        if self.as_trained and lacking:
            raise ValueError(
                f"{path} must have the columns that the run was trained on, got none called "
                f"{listed(map(quoted, lacking))}: add or rename them"
            )
        if self.as_trained and self.label in self.only:
            raise ValueError(
                f"--label must name another column of {path} than those that the run was trained on, got "
                f"{quoted(self.label)}"
            )
        for option, wanted in (("--drop", self.drop), ("--only", self.only), ("--categories", self.texts)):
            strange = [name for name in wanted if name not in there or name == self.label]
            if strange:
                raise ValueError(
                    f"{option} must name columns of {path} other than its labels, got {quoted(strange[0])}: it has "
                    f"{listed(name for name in names if name != self.label)}"
                )
        dropped, only = {self.label, *self.drop}, set(self.only)
        features = [name for name in names if name not in dropped and (not only or name in only)]
        if not features:
            raise ValueError(
                f"{path} must have at least one column besides {quoted(self.label)}, got none that is left"
            )
        return features


@dataclass(frozen=True, eq=False)
class Frame:
    """Columns by name: numbers (float64, NaN where nothing is) or texts (objects, "" where nothing is)."""

    path: Path
    labels: Column
    columns: dict[str, Column]
    left_out: tuple[str, ...]
    """Names of the columns that were not read."""

    def __len__(self) -> int:
        return len(self.labels)


def read_frame(path: Path, selection: Selection, decimal: Decimal | None = None) -> Frame:
    """`decimal` is the mark in numbers that may be read in two ways."""
    return (_from_parquet if is_parquet(path) else _from_text)(path, selection, decimal)


def _from_text(path: Path, selection: Selection, decimal: Decimal | None) -> Frame:
    """Read twice: first what each column holds, then its values, so that no cell takes more room than it needs."""
    with text_rows(path) as (rows, separator):
        names, _ = header(rows, path)
    check_names(names, path, selection.label)
    features = selection.of(names, path)
    mostly_texts, marked = _scanned(path, [name for name in features if name not in selection.texts])
    texts = {*selection.texts, *(mostly_texts - {*selection.numbers})}
    readers: dict[str, Number] = {}
    if marked or separator != "," or decimal is not None:
        readers = number_readers(path, [name for name in features if name not in texts], decimal)
    with text_rows(path) as (rows, _):
        again, rows = header(rows, path)
        if again != names:
            raise ValueError(f"{path} must stay as it is while it is read, but it has changed: try again")
        columns, labels = _values(rows, names, features, texts, selection.label, path, readers)
    return Frame(path, labels, columns, _left_out(names, features, selection))


def array_frame(path: Path, points: NDArray[Any], labels: Column, selection: Selection) -> Frame:
    """Rows and columns of an array, which are called x0, x1 and so on."""
    places = {f"x{place}": place for place in range(points.shape[1])}
    features = selection.of(list(places), path)
    columns = {name: _column(points[:, places[name]], name, selection, None, path) for name in features}
    return Frame(path, labels, columns, _left_out(list(places), features, selection))


def _left_out(names: Sequence[str], features: Collection[str], selection: Selection) -> tuple[str, ...]:
    known = {*features, selection.label}
    return tuple(name for name in names if name not in known)


def _scanned(path: Path, features: list[str]) -> tuple[set[str], bool]:
    """The columns in which most values are no numbers, and whether there are numbers with a decimal comma or marks
    between thousands.  Where only a few values are no numbers, these are mistakes."""
    if not features:
        return set(), False
    others: dict[int, int] = {}
    marked = False
    with text_rows(path) as (rows, _):
        names, rows = header(rows, path)
        place_of = {name: place for place, name in enumerate(names)}
        places = [place_of[name] for name in features]
        known, whole = dict.fromkeys(places, 0), 0
        for row in rows:
            try:
                for place in places:
                    float(row[place])
                whole += 1
            except ValueError:
                for place in places:
                    if is_numeral(row[place]):
                        known[place] += 1
                        marked = marked or not is_number(row[place])
                    elif not _is_missing(row[place]):
                        others[place] = others.get(place, 0) + 1
    return {names[place] for place, count in others.items() if count > known[place] + whole}, marked


def _values(
    rows: Rows,
    names: list[str],
    features: list[str],
    texts: Collection[str],
    label: str,
    path: Path,
    readers: Mapping[str, Number],
) -> tuple[dict[str, Column], Column]:
    places = {name: place for place, name in enumerate(names)}
    of_numbers = [places[name] for name in features if name not in texts]
    numbered = [(place, readers.get(names[place], float)) for place in of_numbers]
    of_texts = [places[name] for name in (*(name for name in features if name in texts), label)]
    numbers, shared = array("d"), dict[str, str]()
    cells: list[list[str]] = [[] for _ in of_texts]
    for at, row in enumerate(rows, 1):
        try:
            numbers.extend([number(row[place]) for place, number in numbered])
        except ValueError:
            numbers.extend([_number(row[place], number, at, names[place], path) for place, number in numbered])
        for place, column in zip(of_texts, cells, strict=True):
            text = row[place].strip()
            # Equal texts share their memory.
            column.append(shared.setdefault(text, text))
    table = np.frombuffer(numbers).reshape(-1, len(of_numbers)) if of_numbers else np.empty((len(cells[0]), 0))
    columns: dict[str, Column] = {names[place]: table[:, k] for k, place in enumerate(of_numbers)}
    columns |= {names[place]: _known_texts(cell) for place, cell in zip(of_texts[:-1], cells[:-1], strict=True)}
    return {name: columns[name] for name in features}, np.array(cells[-1], object)


def _number(cell: str, number: Number, row: int, name: str, path: Path) -> float:
    if _is_missing(cell):
        return np.nan
    if is_number(cell, number):
        return number(cell)
    raise unfit(cell.strip(), row, name, path)


def _from_parquet(path: Path, selection: Selection, decimal: Decimal | None) -> Frame:
    all_names: list[str] = []

    def choose(names: list[str]) -> list[str]:
        all_names.extend(names)
        return [*selection.of(names, path), selection.label]

    values = parquet_columns(path, selection.label, choose)
    labels = values.pop(selection.label)
    columns = {name: _column(column, name, selection, decimal, path) for name, column in values.items()}
    return Frame(path, labels, columns, _left_out(all_names, columns, selection))


def _column(values: Column, name: str, selection: Selection, decimal: Decimal | None, path: Path) -> Column:
    if values.dtype != object:
        if name in selection.texts:
            return _known_texts([_as_text(value) for value in values.tolist()])
        return values.astype(np.float64)
    if name in selection.texts:
        return _known_texts(values.tolist())
    numbers = sum(is_numeral(value) for value in values)
    others = sum(not is_numeral(value) and not _is_missing(value) for value in values)
    if name in selection.numbers or numbers >= others:
        number = number_reader(values, name, decimal, path)
        return np.array([_number(value, number, row, name, path) for row, value in enumerate(values, 1)])
    return _known_texts(values.tolist())


def _as_text(value: float) -> str:
    """Of a code all its digits."""
    if value != value:
        return ""
    return str(int(value)) if value % 1 == 0 else repr(value)


def _known_texts(cells: Sequence[str]) -> Column:
    return np.array(["" if cell.strip().lower() in _NO_TEXT else cell.strip() for cell in cells], object)


def _is_missing(cell: str) -> bool:
    return cell.strip().lower() in MISSING


def missing(values: Column) -> NDArray[np.bool_]:
    """Where nothing is known."""
    return np.asarray(values == "" if values.dtype == object else np.isnan(values))
