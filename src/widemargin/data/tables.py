"""Readers of .csv, .tsv and .parquet tables: one column of labels, all others numbers; errors name the column."""

from __future__ import annotations

from array import array
from collections.abc import Callable, Mapping
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np
from numpy.typing import NDArray

from widemargin.data.limits import (
    MOST_COLUMNS,
    UNPACK_LIMIT,
    UnpackLimit,
    check_unpacked,
    listed,
    quoted,
    reason,
    short,
    size_of,
)
from widemargin.data.numerals import Decimal, Number, is_number, is_numeral, number_reader, number_readers
from widemargin.data.optional import import_optional
from widemargin.data.separators import header, text_rows

SUFFIXES = (".csv", ".tsv", ".parquet")
MISSING = ("", "na", "n/a", "nan", "null", "none", "?", "#n/a", "<na>")
"""In small letters: what stands for no number."""
_ROWS = 1 << 16
"""That are read of a .parquet file at a time."""

Features = NDArray[np.float32]
Column = NDArray[Any]
"""Numbers, or texts as objects: numpy's own texts all take the room of the longest, and lose a \\0 at their end."""
Choose = Callable[[list[str]], list[str]]
"""Which of the columns are read."""


def table(path: Path, label: str, decimal: Decimal | None = None) -> tuple[Features, Column]:
    """Features [N, F] and labels [N]."""
    if is_parquet(path):
        return _parquet(path, label, decimal)
    with text_rows(path) as (_, separator):
        plain = separator == "," and decimal is None
    return _text(path, label, decimal, {} if plain else _readers(path, label, decimal))


def is_parquet(path: Path) -> bool:
    """Or a table of text; anything else is refused."""
    size_of(path)
    if path.suffix not in SUFFIXES:
        raise ValueError(f"a table must be a {', '.join(SUFFIXES[:-1])} or {SUFFIXES[-1]} file, got {path}")
    return path.suffix == ".parquet"


def _text(path: Path, label: str, decimal: Decimal | None, readers: Mapping[str, Number]) -> tuple[Features, Column]:
    """A row at a time becomes numbers, so that no cell takes more room than it needs."""
    with text_rows(path) as (rows, _):
        names, rows = header(rows, path)
        check_names(names, path, label)
        place, numbers, labels, known = names.index(label), array("d"), list[str](), dict[str, str]()
        cells = [readers.get(name, float) for name in names if name != label]
        for at, row in enumerate(rows, 1):
            text = row.pop(place).strip()
            # Equal texts share their memory.
            labels.append(known.setdefault(text, text))
            try:
                numbers.extend([number(cell) for number, cell in zip(cells, row, strict=True)])
            except ValueError:
                column = next(column for column, cell in enumerate(row) if not is_number(cell, cells[column]))
                if not readers and is_numeral(row[column]):
                    return _text(path, label, decimal, _readers(path, label, decimal))
                raise unfit(row[column].strip(), at, names[column + (column >= place)], path) from None
    del names[place]
    return _float32(np.frombuffer(numbers).reshape(len(labels), -1), names, path), np.array(labels, object)


def _readers(path: Path, label: str, decimal: Decimal | None) -> dict[str, Number]:
    with text_rows(path) as (rows, _):
        names, _ = header(rows, path)
    check_names(names, path, label)
    return number_readers(path, [name for name in names if name != label], decimal)


def _parquet(path: Path, label: str, decimal: Decimal | None) -> tuple[Features, Column]:
    columns = parquet_columns(path, label)
    labels = columns.pop(label)
    features = np.empty((len(labels), len(columns)))
    for place, (name, values) in enumerate(columns.items()):
        features[:, place] = _numbers(values, name, decimal, path)
    return _float32(features, list(columns), path), labels


def parquet_columns(
    path: Path, label: str, choose: Choose = lambda names: names, rows: int = _ROWS, limit: UnpackLimit = UNPACK_LIMIT
) -> dict[str, Column]:
    """The columns that are chosen of the names, with their values; so many rows are read at a time."""
    arrow = import_optional("pyarrow", "pyarrow", "a .parquet file")
    file_of = import_optional("pyarrow.parquet", "pyarrow", "a .parquet file").ParquetFile
    size = size_of(path)
    try:
        with file_of(path) as file:
            schema, count = file.schema_arrow, file.metadata.num_rows
    except Exception as problem:
        # Here and below: a library may raise anything on a malformed file.
        raise _no_parquet(path, problem) from None
    check_names(schema.names, path, label)
    chosen = choose(list(schema.names))
    fields = [schema.field(name) for name in chosen]
    for field in fields:
        if not _is_text(arrow, field.type) and not _is_number_type(arrow, field.type):
            wanted = "numbers or text" if field.name == label else "numbers"
            got = f"got {short(str(field.type))}: leave it out or encode it"
            raise ValueError(f"column {quoted(field.name)} of {path} must hold {wanted}, {got}")
    if count < 1:
        raise ValueError(f"{path} must have at least one row, got none: add rows")
    check_unpacked(path, 8 * count * len(fields), size, limit)
    texts = [field.name for field in fields if _is_text(arrow, field.type)]
    total, pieces, known = 0, [], dict[str, str]()
    try:
        # A text is kept once, however many rows have it.  No memory map and no threads: the file may be replaced while
        # the result lives, and cores are the caller's.
        with file_of(path, read_dictionary=texts) as file:
            for piece in file.iter_batches(rows, columns=chosen, use_threads=False):
                total += piece.nbytes
                pieces.append([_values(arrow, piece.column(name), known) for name in chosen])
                if total > limit.of(size):
                    break
        columns = [np.concatenate(parts) for parts in zip(*pieces, strict=True)]
    except Exception as problem:
        raise _no_parquet(path, problem) from None
    check_unpacked(path, total, size, limit)
    if len(columns) != len(chosen):
        raise _no_parquet(path, ValueError(f"no rows where it declares {count:,}"))
    return dict(zip(chosen, columns, strict=True))


def _no_parquet(path: Path, problem: Exception) -> ValueError:
    return ValueError(f"{path} must be a whole .parquet file, got {reason(problem)}: replace it")


def _is_text(arrow: ModuleType, kind: Any) -> bool:
    types = arrow.types
    kind = kind.value_type if types.is_dictionary(kind) else kind
    return bool(types.is_string(kind) or types.is_large_string(kind))


def _is_number_type(arrow: ModuleType, kind: Any) -> bool:
    types = arrow.types
    kind = kind.value_type if types.is_dictionary(kind) else kind
    return any(is_it(kind) for is_it in (types.is_integer, types.is_floating, types.is_boolean, types.is_null))


def _values(arrow: ModuleType, column: Any, known: dict[str, str]) -> Column:
    """Nothing is "" among texts, as in a .csv file, and NaN among numbers.  Equal texts share their memory."""
    if _is_text(arrow, column.type):
        column = column if arrow.types.is_dictionary(column.type) else column.dictionary_encode()
        texts = [known.setdefault(text or "", text or "") for text in column.dictionary.to_pylist()]
        places = column.indices.cast(arrow.int64()).fill_null(len(texts)).to_numpy(zero_copy_only=False)
        return np.asarray(np.array([*texts, ""], object)[places])
    column = column.dictionary_decode() if arrow.types.is_dictionary(column.type) else column
    if column.null_count == len(column):
        return np.full(len(column), np.nan)
    if arrow.types.is_boolean(column.type) and column.null_count:
        column = column.cast(arrow.uint8())
    return np.asarray(column.to_numpy(zero_copy_only=False))


def _numbers(values: Column, name: str, decimal: Decimal | None, path: Path) -> Column:
    if values.dtype != object:
        return values
    number = number_reader(values, name, decimal, path)
    try:
        return np.array([number(value) for value in values])
    except ValueError:
        row = next(row for row, value in enumerate(values) if not is_number(value, number))
        raise unfit(values[row], row + 1, name, path) from None


def _float32(features: NDArray[np.float64], names: list[str], path: Path) -> Features:
    with np.errstate(over="ignore"):
        numbers = features.astype(np.float32)
    finite = np.isfinite(numbers)
    if not finite.all():
        row, column = divmod(int((~finite).argmax()), len(names))
        raise unfit(f"{features[row, column]:g}", row + 1, names[column], path)
    return numbers


def unfit(got: str, row: int, name: str, path: Path) -> ValueError:
    column = f"column {quoted(name)} of {path}"
    if got.lower() in MISSING:
        return ValueError(f"{column} must have a value in every row, got {got!r} in row {row}: fill or drop such rows")
    if is_number(got):
        return ValueError(f"{column} must hold finite 32-bit numbers, got {got} in row {row}: scale or drop it")
    return ValueError(
        f"{column} must hold numbers, got {quoted(got)} in row {row}: leave it out with --drop, or name it in "
        "--categories"
    )


def check_names(names: list[str], path: Path, label: str) -> None:
    if len(names) > MOST_COLUMNS:
        raise ValueError(f"{path} must have at most {MOST_COLUMNS:,} columns, got {len(names):,}: leave some out")
    seen = set[str]()
    for name in names:
        if name in seen:
            raise ValueError(f"the columns of {path} must have different names, got {quoted(name)} more than once")
        seen.add(name)
    if label not in seen:
        raise ValueError(
            f"{path} must have the column {quoted(label)} of labels, got {listed(names)}: name yours with --label"
        )
    if len(names) == 1:
        raise ValueError(
            f"{path} must have at least one column besides {quoted(label)}, got none: add columns of numbers"
        )
