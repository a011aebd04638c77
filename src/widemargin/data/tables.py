"""What does a table hold?  One column of labels and otherwise numbers; every refusal names the column."""

from __future__ import annotations

import csv
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from widemargin.data.checks import UNLABELLED
from widemargin.data.extras import needed
from widemargin.data.labelled import ClassName

_MISSING = ("", "na", "n/a", "nan", "null", "none", "?")


def table(path: Path, label: str) -> tuple[NDArray[np.float32], NDArray[np.generic]]:
    """Features [N, F] and labels [N]."""
    readers = {".csv": _csv_columns, ".parquet": _parquet_columns}
    if path.suffix not in readers:
        raise ValueError(f"a table must be a {' or '.join(readers)} file, got {path}")
    columns = readers[path.suffix](path)
    if label not in columns:
        raise ValueError(f"{path} must have the column {label!r} of labels, got {', '.join(columns)}: name yours")
    labels = columns.pop(label)
    if not columns or len(labels) == 0:
        raise ValueError(f"{path} must have at least one row and one column besides {label!r}, got none")
    return np.stack([_numbers(values, name, path) for name, values in columns.items()], 1), labels


def numbered(labels: NDArray[np.generic], what: str) -> tuple[NDArray[np.int64], tuple[ClassName, ...]]:
    """Classes 0..C-1 in the order of their names, whole numbers in the order of numbers; else UNLABELLED.

    A class may be called "none" or "NA": only nothing at all, an empty text or NaN, is no label.
    """
    if labels.dtype.kind not in "biufU":
        raise ValueError(f"{what} must hold numbers or text, got {labels.dtype}")
    empty = labels == "" if labels.dtype.kind == "U" else labels != labels
    found = np.full(len(labels), UNLABELLED, dtype=np.int64)
    names, classes = np.unique(_whole_if_all_are(labels[~empty]), return_inverse=True)
    if len(names) < 2:
        raise ValueError(f"{what} must have at least 2 classes, got {', '.join(map(str, names.tolist())) or 'none'}")
    found[~empty] = classes.reshape(-1)
    return found, tuple(names.tolist())


def _csv_columns(path: Path) -> dict[str, NDArray[Any]]:
    try:
        # Spreadsheets begin a file with a mark that is no part of the first name.
        with path.open(newline="", encoding="utf-8-sig") as file:
            rows = [row for row in csv.reader(file) if row]
    except (UnicodeDecodeError, csv.Error) as problem:
        raise ValueError(f"{path} must be a text file of comma-separated values, got {problem}") from None
    if len(rows) < 2:
        raise ValueError(f"{path} must have a line of names and at least one row, got {len(rows)} lines")
    names = [name.strip() for name in rows[0]]
    _check_names(names, path)
    for number, row in enumerate(rows[1:], 1):
        if len(row) != len(names):
            raise ValueError(f"every row of {path} must have {len(names)} values, got {len(row)} in row {number}")
    columns = zip(*rows[1:], strict=True)
    return {name: np.array([v.strip() for v in values]) for name, values in zip(names, columns, strict=True)}


def _parquet_columns(path: Path) -> dict[str, NDArray[Any]]:
    parquet = needed("pyarrow.parquet", "pyarrow", "a .parquet file")
    try:
        # No memory map and no threads: the file may be replaced while the result lives, and cores are the caller's.
        found = parquet.ParquetFile(path).read(use_threads=False)
    except Exception as problem:
        raise ValueError(f"{path} must be a whole .parquet file, got {str(problem).splitlines()[0]}") from None
    _check_names(found.column_names, path)
    columns = {}
    for name in found.column_names:
        values = _without_nulls(found.column(name).to_numpy())
        text = values.dtype == object and all(isinstance(value, str) for value in values)
        columns[name] = values.astype(np.str_) if text else values
    return columns


def _without_nulls(values: NDArray[Any]) -> NDArray[Any]:
    """Nothing is "" among texts, as in a .csv file, and NaN among numbers, as pyarrow itself has it for most."""
    known = [value for value in values if value is not None] if values.dtype == object else values
    if len(known) == len(values):
        return values
    nothing = "" if any(isinstance(value, str) for value in known) else np.nan
    filled = [nothing if value is None else value for value in values]
    return np.array(filled, float if all(isinstance(value, bool) for value in known) else object)


def _numbers(values: NDArray[Any], name: str, path: Path) -> NDArray[np.float32]:
    if values.dtype.kind not in "biufU":
        raise ValueError(f"column {name!r} of {path} must hold numbers, got {values.dtype}: leave it out or encode it")
    try:
        with np.errstate(over="ignore"):
            numbers = values.astype(np.float64).astype(np.float32)
    except ValueError:
        row = next(row for row, value in enumerate(values) if not _is_number(value))
        raise _unfit(values, row, name, path) from None
    if not np.isfinite(numbers).all():
        raise _unfit(values, int((~np.isfinite(numbers)).argmax()), name, path)
    return numbers


def _unfit(values: NDArray[Any], row: int, name: str, path: Path) -> ValueError:
    got, column = str(values[row]), f"column {name!r} of {path}"
    if got.lower() in _MISSING:
        return ValueError(
            f"{column} must have a value in every row, got {got!r} in row {row + 1}: fill or drop such rows"
        )
    if _is_number(got):
        return ValueError(f"{column} must hold finite 32-bit numbers, got {got} in row {row + 1}")
    return ValueError(f"{column} must hold numbers, got {got!r} in row {row + 1}: leave it out or encode it as numbers")


def _check_names(names: list[str], path: Path) -> None:
    twice = [name for name in names if names.count(name) > 1]
    if twice:
        raise ValueError(f"the columns of {path} must have different names, got {twice[0]!r} more than once")


def _is_number(text: str) -> bool:
    try:
        float(text)
    except ValueError:
        return False
    return True


def _whole_if_all_are(labels: NDArray[Any]) -> NDArray[Any]:
    """Text such as "10" sorts before "2", and 1.0 is no name for a class: whole numbers become such."""
    if labels.dtype.kind == "U":
        try:
            return np.array([int(label) for label in labels])
        except ValueError:
            return labels
    whole = labels.dtype.kind == "f" and (labels % 1 == 0).all()
    return labels.astype(np.int64) if whole else labels
