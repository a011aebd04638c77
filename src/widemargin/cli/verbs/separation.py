"""The words of `widemargin separation`."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

from rich.console import Console
from tyro.conf import Positional, arg

from widemargin.cli.verbs.data import Parts, TableColumns
from widemargin.cli.verbs.numbers import Number

_INT = arg(metavar="INT", help_behavior_hint="")
_DATA = arg(
    metavar="DATA",
    help="A name, folder or file, as for `widemargin train`; all rows of a file are used, and the training file of "
    "published images.",
)


@dataclass(frozen=True)
class WhatToSeparate:
    data: Annotated[Positional[str], _DATA]
    label: str = "label"
    """Column of the labels in a table; rows without one are left out."""
    norm: Annotated[tuple[str, ...], arg(metavar="l2|linf|l1...", help_behavior_hint="")] = ("l2", "linf", "l1")
    """Norms in which distances are measured, one or more. (default: all three)"""
    eps: Annotated[Number | None, arg(metavar="NUMBER", help_behavior_hint="")] = None
    """A radius: count the examples whose ball of this radius meets that of an example of another class."""
    points: Annotated[int | None, _INT] = None
    """Measure so many examples, drawn class by class, against all. (default: all; beyond a million rows 10,000)"""
    seed: int = 0
    """Decides which examples --points draws; of published images also, as in `train`, which are held out."""
    out: Annotated[Path | None, arg(metavar="FOLDER", help_behavior_hint="")] = None
    """Folder for the results. (default: separations/ and the data's name)"""
    json: Annotated[bool, arg(help_behavior_hint="")] = False
    """Print JSON instead of tables; docs/command-line.md has the keys."""


@dataclass(frozen=True)
class Separation(TableColumns, Parts, WhatToSeparate):
    """Measure how far the classes of a dataset are apart: for each example the distance to the nearest one of another
    class, the radii that are admissible and those of `train --eps auto`, the closest pairs, copies and contradicting
    labels.  Writes separation.json and separation.html.

    Options for tables and files are those of `train`, which then perturbs in the same units.  For example:

    widemargin separation flowers.csv --label species"""

    def __call__(self, console: Console) -> None:
        from widemargin.cli.separation import separate

        separate(self, console)
