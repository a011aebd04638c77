"""The user's own files: a .csv, .tsv or .parquet table, or an .npz file."""

from __future__ import annotations

import hashlib
import os
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

import numpy as np
import torch
from numpy.typing import NDArray

from widemargin.data.checks import ClassName
from widemargin.data.classes import numbered, numbered_as
from widemargin.data.dataset import Dataset, Origin
from widemargin.data.frames import Frame, Selection, array_frame, read_frame
from widemargin.data.limits import MOST_COLUMNS, quoted
from widemargin.data.npz import npz_arrays
from widemargin.data.numerals import Decimal
from widemargin.data.tables import table
from widemargin.parts import part

Classes = tuple[NDArray[np.int64], tuple[ClassName, ...]]
"""Numbers of classes, and their names."""


class LocalFile(Protocol):
    """A frozen description of a file or folder of examples."""

    def read(self, classes: tuple[ClassName, ...] = ()) -> Dataset:
        """With classes numbered by their names, or as another file numbers them."""
        ...


class TableFile(Protocol):
    """A file whose columns can be read as they are."""

    @property
    def path(self) -> str: ...
    @property
    def label(self) -> str: ...
    def frame(self, selection: Selection) -> Frame: ...
    def numbered(self, labels: NDArray[Any], path: Path, classes: tuple[ClassName, ...] = ()) -> Classes: ...


@part
@dataclass(frozen=True)
class Table:
    """A .csv or .tsv (with a line of names) or .parquet file: one column of labels, all others numbers.

    A row with an empty label is unlabelled.
    """

    path: str
    label: str = "label"
    decimal: Decimal | None = None
    """The decimal mark in columns of numbers that could be read with a point or a comma, "," or "."; None if there are
    no such columns."""

    def __post_init__(self) -> None:
        if self.decimal not in (None, ",", "."):
            raise ValueError(f"--decimal must be , or ., got {self.decimal}")

    def read(self, classes: tuple[ClassName, ...] = ()) -> Dataset:
        path = existing(self.path)
        points, labels = table(path, self.label, self.decimal)
        return _labelled(points, self.numbered(labels, path, classes), path)

    def frame(self, selection: Selection) -> Frame:
        return read_frame(existing(self.path), selection, self.decimal)

    def numbered(self, labels: NDArray[Any], path: Path, classes: tuple[ClassName, ...] = ()) -> Classes:
        what, advice = f"column {quoted(self.label)} of {path}", "name the column of the classes with --label"
        return (numbered_as(labels, classes, what), classes) if classes else numbered(labels, what, advice)


@part
@dataclass(frozen=True)
class Npz:
    """An .npz file with an array of examples and an array of labels.

    Bytes with 3 or 4 axes are images, [N, H, W], [N, C, H, W] or [N, H, W, C], and come out in [0, 1]; all other
    numbers are read unchanged.  A row is unlabelled if its label is NaN or, if given, equals `unlabelled`: -1 may be
    a class, so there is no default.
    """

    path: str
    x: str = "x"
    y: str = "y"
    unlabelled: int | None = None

    @property
    def label(self) -> str:
        return self.y

    def read(self, classes: tuple[ClassName, ...] = ()) -> Dataset:
        points, labels, path = self._arrays()
        return _labelled(_channels_first(points, path), self.numbered(labels, path, classes), path)

    def frame(self, selection: Selection) -> Frame:
        """An array of two axes as a table, with columns x0, x1 and so on; NaN is a missing number."""
        points, labels, path = self._arrays()
        if points.ndim != 2 or points.shape[1] > MOST_COLUMNS:
            raise ValueError(
                f"{self.x!r} of {path} must have rows and at most {MOST_COLUMNS:,} columns to be a table, got "
                f"{list(points.shape)}: leave out --standardize and all that names columns"
            )
        return array_frame(path, points, labels, selection)

    def numbered(self, labels: NDArray[Any], path: Path, classes: tuple[ClassName, ...] = ()) -> Classes:
        what = f"{self.y!r} of {path}"
        if classes:
            return numbered_as(labels, classes, what), classes
        return numbered(labels, what, f"store the classes as {self.y!r}")

    def _arrays(self) -> tuple[NDArray[Any], NDArray[Any], Path]:
        path = existing(self.path)
        points, labels = npz_arrays(path, (self.x, self.y))
        if labels.ndim == 2 and labels.shape[1] == 1:
            labels = labels[:, 0]
        if labels.ndim != 1 or points.ndim < 2 or len(points) != len(labels):
            raise ValueError(
                f"{path} must hold as many labels in one axis as examples, got {self.x!r} {list(points.shape)} and "
                f"{self.y!r} {list(labels.shape)}: store one label for each example"
            )
        if points.dtype.kind not in "biuf":
            raise ValueError(f"{self.x!r} of {path} must hold real numbers, got {points.dtype}: encode it as numbers")
        return points, labels if self.unlabelled is None else self._known(labels, path), path

    def _known(self, labels: NDArray[Any], path: Path) -> NDArray[Any]:
        none = labels == self.unlabelled
        if labels.dtype.kind not in "iuf" or not none.any():
            raise ValueError(
                f"{self.y!r} of {path} must hold {self.unlabelled} where there is no label, got none such: leave out "
                "--unlabelled"
            )
        return np.where(none, np.nan, labels)


def existing(path: str) -> Path:
    # Unlike Path.expanduser, it leaves the ~name of an unknown user unchanged.
    expanded = Path(os.path.expanduser(path))
    if not expanded.exists():
        raise ValueError(f"{expanded} does not exist: name a file or folder that does")
    return expanded


def origin_of(path: Path) -> Origin:
    with path.open("rb") as file:
        return Origin(str(path), hashlib.file_digest(file, "sha256").hexdigest()[:16])


def _channels_first(points: NDArray[np.generic], path: Path) -> NDArray[np.generic]:
    if points.dtype != np.uint8 or points.ndim not in (3, 4):
        return points
    if points.ndim == 3:
        return points[:, None]
    if points.shape[1] in (1, 3, 4):
        return points
    if points.shape[3] in (1, 3, 4):
        return points.transpose(0, 3, 1, 2)
    raise ValueError(
        f"images in {path} must have 1, 3 or 4 channels in axis 1 or 3, got shape {list(points.shape)}: "
        "bring them into that order"
    )


def _labelled(points: NDArray[Any], classes: Classes, path: Path) -> Dataset:
    picture = points.dtype == np.uint8 and points.ndim == 4
    with np.errstate(over="ignore"):
        # Overflow becomes infinity, which is refused.
        stored = np.ascontiguousarray(points, dtype=np.uint8 if picture else np.float32)
    origin = origin_of(path)
    labels, names = classes
    try:
        return Dataset(torch.from_numpy(stored), torch.from_numpy(labels), names, origin, 255 if picture else 1)
    except ValueError as problem:
        raise ValueError(f"{path}: {problem}") from None
