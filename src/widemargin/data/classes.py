"""Class names and numbers from a column of labels."""

from __future__ import annotations

import math
import re
from contextlib import suppress
from typing import Any

import numpy as np
from numpy.typing import NDArray

from widemargin.data.checks import UNLABELLED, ClassName
from widemargin.data.limits import MOST_CLASSES, MOST_NAME, listed, quoted

_FEW = 20
"""With fewer rows, all may be of different classes."""
_EXACT = 2**53
"""From here on, floating-point numbers skip whole ones."""
_WHOLE = re.compile(r"0|-?[1-9][0-9]*")


def numbered(labels: NDArray[Any], what: str, advice: str) -> tuple[NDArray[np.int64], tuple[ClassName, ...]]:
    """Classes 0..C-1 in the order of their names, whole numbers in the order of numbers; else UNLABELLED.

    A class may be called "none" or "NA": only an empty string or NaN is no label.
    """
    values = _values(labels, what, advice)
    known = [value for value in values if value != "" and value == value]
    distinct = set(known)
    try:
        _check_count(len(distinct), len(known), distinct)
        names = {value: value for value in distinct}
        names.update(_whole_texts(distinct) if isinstance(known[0], str) else _whole_numbers(distinct))
    except ValueError as problem:
        raise ValueError(f"{what} must {problem}: {advice}") from None
    ordered = sorted(distinct, key=lambda value: names[value])
    places = {value: place for place, value in enumerate(ordered)}
    return np.array([places.get(value, UNLABELLED) for value in values]), tuple(names[value] for value in ordered)


def numbered_as(labels: NDArray[Any], names: tuple[ClassName, ...], what: str) -> NDArray[np.int64]:
    """The numbers that classes have in another file, by their names; UNLABELLED where there is no label."""
    places = {name: place for place, name in enumerate(names)}
    known: dict[Any, int] = {"": UNLABELLED}
    values = _values(labels, what, "store classes")
    for value in values:
        if value == value and value not in known:
            known[value] = _place(value, places, what)
    return np.array([known[value] if value == value else UNLABELLED for value in values])


def _place(value: Any, places: dict[ClassName, int], what: str) -> int:
    for same in (lambda: value, lambda: int(value), lambda: float(value)):
        with suppress(ValueError, OverflowError):
            name = same()
            if name in places and (isinstance(value, str) or name == value):
                return places[name]
    raise ValueError(
        f"{what} must hold classes that training has, {listed(places)}, got {quoted(str(value))}: leave out such rows"
    )


def _values(labels: NDArray[Any], what: str, advice: str) -> list[Any]:
    """Python's own, because numpy takes "a\\0" for "a"."""
    kind = labels.dtype.kind
    if kind not in "biufU" and not (kind == "O" and all(isinstance(value, str) for value in labels)):
        raise ValueError(f"{what} must hold numbers or text, got {labels.dtype}: {advice}")
    return list((labels.astype(np.float64) if kind == "f" else labels).tolist())


def _check_count(classes: int, rows: int, distinct: set[Any]) -> None:
    if classes < 2:
        raise ValueError(f"have at least 2 classes, got {listed(distinct) or 'none'}")
    if classes > MOST_CLASSES or (rows >= _FEW and 2 * classes > rows):
        raise ValueError(f"hold classes, each in several rows, got {classes:,} different values in {rows:,} rows")


def _whole_texts(texts: set[str]) -> dict[str, int]:
    """The string "10" sorts before "2", so whole numbers become integers; but "01" is another class than "1"."""
    longest = max(texts, key=len)
    if len(longest) > MOST_NAME:
        raise ValueError(f"hold names of at most {MOST_NAME:,} characters, got {len(longest):,} in {quoted(longest)}")
    if all(_WHOLE.fullmatch(text) for text in texts):
        numbers = {text: int(text) for text in texts}
        _check_whole(numbers.values(), 2**63)
        return numbers
    infinite = [text for text in texts if math.isinf(_float(text))]
    if infinite and not any(math.isnan(_float(text)) for text in texts):
        raise ValueError(f"hold finite numbers or names, got {quoted(infinite[0])}")
    return {}


def _whole_numbers(numbers: set[Any]) -> dict[Any, int]:
    """1.0 is no name for a class."""
    if any(math.isinf(number) for number in numbers):
        raise ValueError("hold finite numbers or names, got infinity")
    if all(isinstance(number, int) for number in numbers):
        _check_whole(numbers, 2**63)
        return {}
    _check_whole(numbers, _EXACT)
    return {number: int(number) for number in numbers} if all(number % 1 == 0 for number in numbers) else {}


def _check_whole(numbers: Any, most: int) -> None:
    wrong = [number for number in numbers if not -most <= number < most]
    if wrong:
        raise ValueError(f"hold whole numbers below {most} or names, got {quoted(str(wrong[0]))}")


def _float(text: str) -> float:
    """NaN if it is not a number."""
    try:
        return float(text)
    except ValueError:
        return math.nan
