"""Numbers as people write them: with a decimal point or comma, and the other one between thousands.

Which of them is meant is decided for a whole column, from all of its cells."""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from widemargin.data.limits import quoted
from widemargin.data.separators import Rows, header, text_rows

Number = Callable[[str], float]
Decimal = Literal[",", "."]
_GROUPS = re.compile(r"\s*[+-]?[1-9]\d{0,2}(,\d{3})+(\.\d*)?\s*")
_SWAPPED = str.maketrans(",.", ".,")


def with_point(text: str) -> float:
    """1.5, and 1,234.5 with commas between thousands."""
    if "," not in text:
        return float(text)
    if _GROUPS.fullmatch(text) is None:
        raise ValueError(text)
    return float(text.replace(",", ""))


def with_comma(text: str) -> float:
    """1,5, and 1.234,5 with points between thousands."""
    return with_point(text.translate(_SWAPPED))


def is_number(text: str, number: Number = float) -> bool:
    try:
        number(text)
    except ValueError:
        return False
    return True


def is_numeral(text: str) -> bool:
    """A number in one way or the other."""
    return is_number(text, with_point) or is_number(text, with_comma)


@dataclass
class Evidence:
    """Of a column: the first cell, with its row, that is a number only with a decimal point, only with a decimal comma,
    and with either, where it is two different numbers."""

    point: tuple[str, int] | None = None
    comma: tuple[str, int] | None = None
    either: tuple[str, int] | None = None

    def see(self, cell: str, row: int) -> None:
        points = cell.count(".")
        if "," not in cell and (points == 0 or (points == 1 and self.point is not None and self.either is not None)):
            # It says nothing new.
            return
        point, comma = is_number(cell, with_point), is_number(cell, with_comma)
        if point and comma:
            # One with a comma says more: points alone are decimal ones in most files.
            if self.either is None or ("," in cell and "," not in self.either[0]):
                self.either = cell.strip(), row
        elif point:
            self.point = self.point or (cell.strip(), row)
        elif comma:
            self.comma = self.comma or (cell.strip(), row)


def number_readers(path: Path, columns: Collection[str], decimal: Decimal | None) -> dict[str, Number]:
    """For each of these columns what reads its cells.

    Points alone may be between thousands, 1.234 and 12.345, where commas seem to be decimal: where another column has
    such, or where commas separate no cells and no other point must be decimal.
    """
    with text_rows(path) as (rows, separator):
        names, rows = header(rows, path)
        seen = _seen(rows, names, columns)
    commas, points = (any(getattr(one, mark) for one in seen.values()) for mark in ("comma", "point"))
    open_points = commas or (separator != "," and not points)
    return {name: _decided(name, evidence, decimal, open_points, path) for name, evidence in seen.items()}


def _seen(rows: Rows, names: list[str], columns: Collection[str]) -> dict[str, Evidence]:
    places = {name: place for place, name in enumerate(names)}
    seen = {name: Evidence() for name in columns}
    watched = [(places[name], evidence) for name, evidence in seen.items()]
    for number, row in enumerate(rows, 1):
        for place, evidence in watched:
            evidence.see(row[place], number)
    return seen


def number_reader(cells: Iterable[str], name: str, decimal: Decimal | None, path: Path) -> Number:
    """The same for one column."""
    evidence = Evidence()
    for row, cell in enumerate(cells, 1):
        evidence.see(cell, row)
    return _decided(name, evidence, decimal, False, path)


def _decided(name: str, seen: Evidence, decimal: Decimal | None, open_points: bool, path: Path) -> Number:
    """A column whose cells leave it open is refused, unless it is said what the decimal mark is."""
    if seen.comma is not None and seen.point is None:
        return with_comma
    cell, row = seen.either or ("", 0)
    if seen.point is not None and (seen.comma is None or not cell):
        return _either(with_point)
    if decimal is not None:
        return _either(with_point if decimal == "." else with_comma)
    if not cell or (seen.point is None and "," not in cell and not open_points):
        return with_point
    one, other = sorted((with_point(cell), with_comma(cell)))
    raise ValueError(
        f"column {quoted(name)} of {path} must show what is decimal in its numbers, got {quoted(cell)} in row {row}, "
        f"which may be {one:.15g} or {other:.15g}: give --decimal . or --decimal , to say which"
    )


def _either(first: Number) -> Number:
    """This way where a cell can be read so, or else the other."""
    other = with_comma if first is with_point else with_point

    def number(text: str) -> float:
        try:
            return first(text)
        except ValueError:
            return other(text)

    return number
