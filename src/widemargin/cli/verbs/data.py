"""Options on data that several verbs share."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, ClassVar, Literal

from tyro.conf import FlagCreatePairsOff, arg

_INT, _FLAG = arg(metavar="INT", help_behavior_hint=""), arg(help_behavior_hint="")
_TEXT = arg(metavar="TEXT", help_behavior_hint="")
_FILE, _NAMES = arg(metavar="FILE", help_behavior_hint=""), arg(metavar="COLUMN,...", help_behavior_hint="")
_DECIMAL = arg(metavar=",|.", help_behavior_hint="")
# One text for `train`, `sweep` and `audit`.
PERTURB_CATEGORIES = arg(
    metavar="COLUMN,...",
    help_behavior_hint="",
    help="Columns whose category a perturbation may change to another of the column, all of categories if none is "
    "named; never to something in between.  --fixed columns and missing values stay. (default: no category changes; "
    "in an audit as in training)",
)
CATEGORY_CHANGES = arg(
    metavar="INT",
    help_behavior_hint="",
    help="How many categories of a row may change at once, beside the numbers and counted apart from --eps.  "
    "(default: 1 with --perturb-categories, else 0; in an audit as in training)",
)
SIZE = arg(metavar="HEIGHT WIDTH", help_behavior_hint="")


@dataclass(frozen=True)
class Parts:
    """How your own files and folders are read and split."""

    title: ClassVar[str] = "data"

    validation: Annotated[str | None, _FILE] = None
    """File or folder like --data with the validation split. (default: a tenth of --data)"""
    test: Annotated[str | None, _FILE] = None
    """File or folder like --data with the test split. (default: a fifth of --data)"""
    unlabelled: Annotated[int | None, _INT] = None
    """The number that means no label in an .npz file, as -1; NaN always does. (default: every number is a class)"""
    size: Annotated[tuple[int, int] | None, SIZE] = None
    """Height and width to which a folder's images are scaled."""


@dataclass(frozen=True)
class TableColumns:
    """For .csv, .tsv and .parquet files, and for arrays of rows in .npz files; docs/your-own-table.md shows them."""

    title: ClassVar[str] = "table"

    drop: Annotated[str | None, _NAMES] = None
    """Columns of a table that are left out, an id for instance."""
    only: Annotated[str | None, _NAMES] = None
    """Columns of a table that are used, and no others."""
    categories: Annotated[str | None, _NAMES] = None
    """Columns of numbers that stand for categories, as those of texts do."""
    decimal: Annotated[Literal[",", "."] | None, _DECIMAL] = None
    """Decimal mark in columns that could be read with either, such as 1,234. (default: decided by each column)"""
    missing: Literal["median", "refuse"] = "median"
    """Missing numbers (empty, NA, NaN, ?, null): the training rows' median and a feature that says so, or an error."""
    standardize: Annotated[bool, _FLAG, FlagCreatePairsOff] = False
    """Have --eps and --alpha in standard deviations of a table's columns. (default: so for .csv, .tsv and .parquet)"""
    no_standardize: Annotated[bool, _FLAG, FlagCreatePairsOff] = False
    """Take the columns of a table as they are: --eps and --alpha are in their units."""
    eps_column: Annotated[tuple[str, ...], arg(metavar="COLUMN=RADIUS...", help_behavior_hint="")] = ()
    """Radii in the units of columns, as price=50 age=2: such a column is scaled so that there --eps is that radius."""
    fixed: Annotated[str | None, _NAMES] = None
    """Columns that no perturbation may change, in training, attacks, margins and certificates."""
    perturb_categories: Annotated[tuple[str, ...] | None, PERTURB_CATEGORIES] = None
    category_changes: Annotated[int | None, CATEGORY_CHANGES] = None


@dataclass(frozen=True)
class Measured:
    """On which examples a model is measured; its weights, if they are apart."""

    title: ClassVar[str] = "data and model"

    data: Annotated[str | None, _TEXT] = None
    """A name, folder or file, as for `widemargin train`; its test split is used. (default: the run's)"""
    test: Annotated[str | None, _FILE] = None
    """A file or folder like that of --data, all examples of which are used. (default: the run's)"""
    label: Annotated[str | None, _TEXT] = None
    """Column of the labels in a table. (default: as in training; label for a model that is not a widemargin run)"""
    decimal: Annotated[Literal[",", "."] | None, _DECIMAL] = None
    """Decimal mark in columns of a table that could be read with either, such as 1,234. (default: the run's)"""
    size: Annotated[tuple[int, int] | None, SIZE] = None
    """Height and width to which a folder's images are scaled."""
    weights: Annotated[Path | None, _FILE] = None
    """Weights for my_file.py:MyNet: .safetensors, or a .pt state dict."""
