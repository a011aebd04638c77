"""The words of `widemargin separation`."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Literal

from rich.console import Console
from tyro.conf import Positional, arg

_INT = arg(metavar="INT", help_behavior_hint="")
_NAMES = arg(metavar="COLUMN,...", help_behavior_hint="")


@dataclass(frozen=True)
class Separation:
    """Measure how far the classes of a dataset are apart: for each example the distance to the nearest one of another
    class, the radii that are admissible, the closest pairs, copies and contradicting labels.  Writes separation.json
    and separation.html.

    For example: widemargin separation flowers.csv --label species."""

    data: Annotated[Positional[str], arg(metavar="DATA")]
    """A name, folder or file, as for `widemargin train`.  Of a file all rows are used, of published images those of
    the training file."""
    norm: Annotated[tuple[str, ...], arg(metavar="l2|linf|l1...", help_behavior_hint="")] = ("l2", "linf", "l1")
    """In which distances are measured, one or more.  [all three]"""
    points: Annotated[int | None, _INT] = None
    """Measure so many examples, drawn class by class, against all.  [all; 10,000 if there are more than a million]"""
    label: str = "label"
    """Column of the labels in a table; rows without one are left out."""
    decimal: Annotated[Literal[",", "."] | None, arg(metavar=",|.", help_behavior_hint="")] = None
    """Decimal mark in columns of a table that could be read with either, such as 1,234.  [each decides itself]"""
    drop: Annotated[str | None, _NAMES] = None
    """Columns of a table that are left out, an id for instance."""
    only: Annotated[str | None, _NAMES] = None
    """Columns of a table that are used, and no others."""
    categories: Annotated[str | None, _NAMES] = None
    """Columns of numbers that stand for categories; columns of texts always do.  Each category becomes a feature."""
    no_standardize: Annotated[bool, arg(help_behavior_hint="")] = False
    """Measure the columns of a table in their units, instead of standard deviations of the rows to train on."""
    unlabelled: Annotated[int | None, _INT] = None
    """The number that means no label in an .npz file.  [every number is a class; NaN is no label]"""
    size: Annotated[tuple[int, int] | None, arg(metavar="HEIGHT WIDTH", help_behavior_hint="")] = None
    """Height and width to which a folder's images are scaled."""
    seed: int = 0
    """Decides which examples --points draws."""
    out: Annotated[Path | None, arg(metavar="FOLDER", help_behavior_hint="")] = None
    """Folder for the results.  [separations/ and the data's name]"""
    json: Annotated[bool, arg(help_behavior_hint="")] = False
    """Print JSON instead of tables; docs/command-line.md has the keys."""

    def __call__(self, console: Console) -> None:
        from widemargin.cli.separation import separate

        separate(self, console)
