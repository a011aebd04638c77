"""Text tables as programs write them: separated by commas, semicolons, tabs or bars, with a mark or `sep=;` first."""

from __future__ import annotations

import csv
import itertools
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TextIO

from widemargin.data.limits import MOST_LINE, reason

SEPARATORS = ",;\t|"
"""The first of them that fits best is taken."""
_LINES = 20
"""That decide."""
_CHARACTERS = 1 << 20
"""Of these lines at most: of a very wide table the names alone decide."""

Rows = Iterator[list[str]]


@contextmanager
def text_rows(path: Path) -> Iterator[tuple[Rows, str]]:
    """The rows that are not empty, and the separator."""
    try:
        # Spreadsheets begin a file with a byte-order mark.
        with path.open(newline="", encoding="utf-8-sig") as file:
            lines = _lines(file)
            first = _first(lines)
            said = first[0].strip() if first else ""
            if len(said) == 5 and said.lower().startswith("sep=") and said[4] in SEPARATORS:
                separator, first = said[4], first[1:]
            else:
                separator = "\t" if path.suffix == ".tsv" else separator_of(first)
            rows = csv.reader(itertools.chain(first, lines), delimiter=separator)
            # Spreadsheets end a file with rows of nothing but separators.
            yield (row for row in rows if any(row)), separator
    except (UnicodeDecodeError, csv.Error) as problem:
        advice = ": save it as CSV UTF-8" if isinstance(problem, UnicodeDecodeError) else ""
        raise ValueError(f"{path} must be a text file of separated values, got {reason(problem)}{advice}") from None


def header(rows: Rows, path: Path) -> tuple[list[str], Rows]:
    """The names, and the rows after them, of which there is one at least and all are as long."""
    # Some programs write the numbers of rows under no name.
    names = [name.strip() or f"column {place}" for place, name in enumerate(next(rows, []), 1)]
    first = next(rows, None)
    if first is None:
        raise ValueError(
            f"{path} must have a line of names and at least one row, got {1 if names else 0} lines: add rows"
        )
    return names, _as_long(itertools.chain([first], rows), len(names), path)


def _as_long(rows: Rows, wanted: int, path: Path) -> Rows:
    for number, row in enumerate(rows, 1):
        if len(row) != wanted:
            raise ValueError(f"every row of {path} must have {wanted} values, got {len(row)} in row {number}")
        yield row


def separator_of(lines: list[str]) -> str:
    """Of those that give all these lines as many cells the one with most cells; else the one with most names."""
    return max(SEPARATORS, key=lambda separator: _fit(lines, separator))


def _fit(lines: list[str], separator: str) -> tuple[bool, int]:
    try:
        counts = [len(row) for row in csv.reader(lines, delimiter=separator) if row]
    except csv.Error:
        return False, 0
    return bool(counts) and counts[0] > 1 and len(set(counts)) == 1, counts[0] if counts else 0


def _first(lines: Iterator[str]) -> list[str]:
    first: list[str] = []
    # An open quote goes on in the next line: such lines are whole only if all that were read end together.
    for line in itertools.islice(lines, _LINES):
        first.append(line)
        if sum(map(len, first)) > _CHARACTERS:
            break
    return first


def _lines(file: TextIO) -> Iterator[str]:
    while line := file.readline(MOST_LINE):
        if len(line) == MOST_LINE:
            raise csv.Error(f"a line of more than {MOST_LINE:,} characters")
        yield line
