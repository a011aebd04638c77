"""Real numbers on the command line, fractions among them: `--eps 8/255`; and `--eps auto`."""

from __future__ import annotations

from typing import Annotated, Literal

from tyro.constructors import PrimitiveConstructorSpec


class NotANumber(Exception):
    """Not a ValueError, which the parser would bury in a text of its own."""


def number(text: str) -> float:
    """8/255 as well as .03 or 1e-3."""
    above, slash, below = text.partition("/")
    try:
        return float(above) / float(below) if slash else float(above)
    except (ValueError, ZeroDivisionError):
        raise ValueError(f"a number such as .03 or 8/255 is needed, got {text}") from None


def _number(text: str) -> float:
    try:
        return number(text)
    except ValueError as problem:
        raise NotANumber(text) from problem


Number = Annotated[
    float,
    PrimitiveConstructorSpec(
        nargs=1,
        metavar="NUMBER",
        instance_from_str=lambda words: _number(words[0]),
        is_instance=lambda value: isinstance(value, float | int),
        str_from_instance=lambda value: [f"{value:g}"],
    ),
]

Radius = Annotated[
    float | Literal["auto"],
    PrimitiveConstructorSpec(
        nargs=1,
        metavar="NUMBER|auto",
        instance_from_str=lambda words: "auto" if words[0] == "auto" else _number(words[0]),
        is_instance=lambda value: value == "auto" or isinstance(value, float | int),
        str_from_instance=lambda value: [value if isinstance(value, str) else f"{value:g}"],
    ),
]
