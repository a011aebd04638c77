"""The user's own data: a folder of images, an .npz, a .csv or a .parquet file."""

from __future__ import annotations

import hashlib
import io
import math
import os
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from types import ModuleType
from typing import Any, Protocol

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from widemargin.data.checks import UNLABELLED, ClassName
from widemargin.data.classes import numbered, numbered_as
from widemargin.data.dataset import Dataset, Origin, Splits
from widemargin.data.frames import Frame, Selection, array_frame, read_frame
from widemargin.data.limits import (
    MOST_COLUMNS,
    MOST_PIXELS,
    MOST_SCANS,
    MOST_UNPACKED,
    check_unpacked,
    listed,
    quoted,
    reason,
    size_of,
)
from widemargin.data.npz import npz_arrays
from widemargin.data.optional import import_optional
from widemargin.data.schema import Columns, Schema
from widemargin.data.splits import random_splits, split_rows
from widemargin.data.tables import table
from widemargin.parts import part

_AS_THEY_ARE = Columns()
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
class LocalData:
    """The user's own examples in stratified random splits.

    `validation` and `test` are fractions of the labelled rows; unlabelled rows are for training.
    This names a path, not its content: `Dataset.digest` distinguishes two versions of a file.
    """

    file: LocalFile
    validation: float = 0.1
    test: float = 0.2
    seed: int = 0

    def undivided(self) -> Dataset:
        """All rows, in the order of the file."""
        return self.file.read()

    def draw(self) -> Splits:
        return random_splits(self.file.read(), self.validation, self.test, self.seed)


@part
@dataclass(frozen=True)
class SplitData:
    """The user's own examples in splits of their own: validation and test are files like the first, or fractions of it
    as in LocalData.  Classes are those of the training file."""

    train: LocalFile
    validation: LocalFile | float = 0.1
    test: LocalFile | float = 0.2
    seed: int = 0

    def undivided(self) -> Dataset:
        """All rows of the training file, in its order."""
        return self.train.read()

    def draw(self) -> Splits:
        whole = self.train.read()
        validation, test = (
            None if isinstance(file, int | float) else file.read(whole.names) for file in (self.validation, self.test)
        )
        for other in (validation, test):
            _check_alike(whole, other)
        rows = split_rows(whole.labels, _fraction(self.validation), _fraction(self.test), self.seed)
        train, held, last = (whole.take(some) if len(some) else None for some in rows)
        return Splits(_present(train), _labelled_part(validation or held), _labelled_part(test or last))


@part
@dataclass(frozen=True)
class TableData:
    """The user's own table with columns as they are; the schema follows from the labelled training rows alone."""

    train: TableFile
    columns: Columns = _AS_THEY_ARE
    validation: TableFile | float = 0.1
    test: TableFile | float = 0.2
    seed: int = 0

    def undivided(self) -> Dataset:
        """All rows of the training file, in its order, as they are for training."""
        frame, labels, _, schema = self._fitted()
        return _encoded(schema, frame, None, labels)

    def _fitted(self) -> tuple[Frame, NDArray[np.int64], tuple[Tensor, Tensor, Tensor], Schema]:
        """The training file, its labels, the rows of its parts, and the schema."""
        label = self.train.label
        frame = self.train.frame(self.columns.selection(label))
        labels, classes = self.train.numbered(frame.labels, frame.path)
        rows = split_rows(torch.from_numpy(labels), _fraction(self.validation), _fraction(self.test), self.seed)
        # Those with a label: what a method leaves out must decide nothing.
        known = rows[0].numpy()[labels[rows[0].numpy()] != UNLABELLED]
        return frame, labels, rows, Schema.fit(frame, known, self.columns, label, classes)

    def draw(self) -> Splits:
        frame, labels, rows, schema = self._fitted()
        notes = schema.notes()
        parts = []
        for file, of_part in zip((None, self.validation, self.test), rows, strict=True):
            if file is None or isinstance(file, int | float):
                parts.append(_encoded(schema, frame, of_part, labels))
                continue
            other = file.frame(schema.selection)
            notes += schema.notes_on(other)
            parts.append(_labelled_part(_encoded(schema, other, None, schema.labels(other))))
        train, validation, test = parts
        return Splits(train, validation, test, tuple(notes))


@dataclass(frozen=True)
class SchemaData:
    """Another table for a run that was trained on one, read by the schema of that run; for tests alone."""

    file: TableFile
    schema: Schema
    test: float | None = 0.2
    """The fraction that is used, split off as of a file that is trained on: of a copy of that, no row that was seen in
    training.  None for all rows."""

    def draw(self) -> Splits:
        frame = self.file.frame(self.schema.selection)
        labels = self.schema.labels(frame)
        rows = None if self.test is None else split_rows(torch.from_numpy(labels), 0.1, self.test, seed=0)[2]
        tests = _labelled_part(_encoded(self.schema, frame, rows, labels))
        return Splits(tests, tests, tests, tuple(self.schema.notes_on(frame)))


@dataclass(frozen=True)
class WholeFile:
    """All of a file for tests; its classes are those that are known, if any are."""

    file: LocalFile
    classes: tuple[ClassName, ...] = ()

    def draw(self) -> Splits:
        tests = _labelled_part(self.file.read(self.classes))
        return Splits(tests, tests, tests)


@part
@dataclass(frozen=True)
class Table:
    """A .csv or .tsv (with a line of names) or .parquet file: one column of labels, all others numbers.

    A row with an empty label is unlabelled.
    """

    path: str
    label: str = "label"

    def read(self, classes: tuple[ClassName, ...] = ()) -> Dataset:
        path = _existing(self.path)
        points, labels = table(path, self.label)
        return _labelled(points, self.numbered(labels, path, classes), path)

    def frame(self, selection: Selection) -> Frame:
        return read_frame(_existing(self.path), selection)

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
        path = _existing(self.path)
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


@part
@dataclass(frozen=True)
class ImageFolder:
    """A folder with a sub-folder of images for every class; the sorted names of the sub-folders are the classes.

    Images in a sub-folder called `unlabelled` have no label.
    All images are converted to one mode, "RGB" or "L" (grey), and to `size` (height, width) if it is given.
    """

    path: str
    mode: str = "RGB"
    size: tuple[int, int] | None = None

    def __post_init__(self) -> None:
        if self.mode not in ("RGB", "L"):
            raise ValueError(f"ImageFolder.mode must be 'RGB' or 'L', got {self.mode!r}")
        if self.size is not None and (min(self.size) < 1 or math.prod(self.size) > MOST_PIXELS):
            raise ValueError(
                f"--size must be a height and a width of at least 1 and at most {MOST_PIXELS:,} pixels, got "
                f"{' '.join(map(str, self.size))}"
            )

    def read(self, classes: tuple[ClassName, ...] = ()) -> Dataset:
        path = _existing(self.path)
        if not path.is_dir():
            raise ValueError(f"{path} must be a folder of images, an .npz, a .csv or a .parquet file, got another file")
        there = sorted(inside for inside in path.iterdir() if inside.is_dir() and not inside.name.startswith("."))
        folders = [folder for folder in there if folder.name != _NO_CLASS]
        if len(folders) < (1 if classes else 2):
            raise ValueError(
                f"{path} must hold a sub-folder of images for each of at least 2 classes, got {len(folders)}: "
                "sort the images into such"
            )
        names = classes or tuple(folder.name for folder in folders)
        strange = [folder.name for folder in folders if folder.name not in names]
        if strange:
            raise ValueError(
                f"the folders in {path} must be classes that the training has, {listed(names)}, got "
                f"{quoted(strange[0])}: remove it"
            )
        files, numbers = [], []
        for folder in there:
            inside = sorted(file for file in folder.iterdir() if not _clutter(file.name))
            if not inside:
                raise ValueError(f"{folder} must hold images, got none: add some or remove the folder")
            files += inside
            numbers += [names.index(folder.name) if folder in folders else UNLABELLED] * len(inside)
        pixels, digest = self._images(files, path)
        return Dataset(pixels, torch.tensor(numbers), names, Origin(str(path), digest), white=255)

    def _images(self, files: list[Path], path: Path) -> tuple[Tensor, str]:
        """Every pixel, and a digest of every file and its name."""
        # Before any is read: one of them might be a pipe, or a disk.
        packed = sum(size_of(file, MOST_UNPACKED) for file in files)
        images: NDArray[np.uint8] = np.empty(0, np.uint8)
        digest = hashlib.sha256()
        for number, file in enumerate(files):
            content = file.read_bytes()
            digest.update(os.fsencode(file.relative_to(path)) + b"\0" + hashlib.sha256(content).digest())
            image = self._image(file, content)
            if number == 0:
                check_unpacked(path, len(files) * image.size, packed)
                images = np.empty((len(files), *image.shape), np.uint8)
            if image.shape != images.shape[1:]:
                raise ValueError(
                    f"all images must have one size, got {images.shape[1]} x {images.shape[2]} and, in {file}, "
                    f"{image.shape[0]} x {image.shape[1]} (height x width): give --size HEIGHT WIDTH"
                )
            images[number] = image
        return torch.from_numpy(images).permute(0, 3, 1, 2).contiguous(), digest.hexdigest()[:16]

    def _image(self, file: Path, content: bytes) -> NDArray[np.uint8]:
        image = import_optional("PIL.Image", "pillow", "a folder of images")
        turned = import_optional("PIL.ImageOps", "pillow", "a folder of images").exif_transpose
        if content[:2] == b"\xff\xd8" and content.count(b"\xff\xda") > MOST_SCANS:
            raise ValueError(f"{file} must have at most {MOST_SCANS} scans, got more: store it as a plain JPEG")
        try:
            # Named formats only: others, such as PostScript, are programs.
            with _only_bombs_warned(image), image.open(io.BytesIO(content), formats=_FORMATS) as opened:
                depth, upright = opened.mode, turned(opened)
                if self.size is not None and upright.size != self.size[::-1]:
                    upright = upright.convert(self.mode).resize(self.size[::-1], image.Resampling.BILINEAR)
                pixels = np.array(upright.convert(self.mode)).reshape(*upright.size[::-1], -1)
        except Exception as problem:
            # A library may raise anything on a malformed file.
            raise ValueError(
                f"{file} must be a whole image ({', '.join(_FORMATS)}), got {reason(problem)}: replace or remove it"
            ) from None
        if depth.startswith(("I", "F")):
            raise ValueError(f"{file} must have 8 bits per channel, got mode {depth}: convert it first")
        return pixels


@contextmanager
def _only_bombs_warned(image: ModuleType) -> Iterator[None]:
    """An image that is too large is an error; other warnings, such as of unusual tags, are ignored."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        warnings.simplefilter("error", image.DecompressionBombWarning)
        yield


_NO_CLASS = "unlabelled"
_FORMATS = ("PNG", "JPEG", "BMP", "GIF", "WEBP", "TIFF", "PPM")


def _clutter(name: str) -> bool:
    """Hidden files of desktop environments."""
    return name.startswith(".") or name.lower() in ("thumbs.db", "desktop.ini")


def _existing(path: str) -> Path:
    # Unlike Path.expanduser, it leaves the ~name of an unknown user unchanged.
    expanded = Path(os.path.expanduser(path))
    if not expanded.exists():
        raise ValueError(f"{expanded} does not exist: name a file or folder that does")
    return expanded


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


def _encoded(schema: Schema, frame: Frame, rows: Tensor | None, labels: NDArray[np.int64]) -> Dataset:
    at = np.arange(len(frame)) if rows is None else rows.numpy()
    origin = _origin(frame.path)
    return Dataset(schema.encoded(frame, at), torch.from_numpy(labels[at]), schema.classes, origin, schema=schema)


def _fraction(part: LocalFile | TableFile | float) -> float | None:
    """None of a file of its own."""
    return float(part) if isinstance(part, int | float) else None


def _present(part: Dataset | None) -> Dataset:
    assert part is not None
    return part


def _labelled_part(part: Dataset | None) -> Dataset:
    """Nothing can be measured on rows without a label."""
    part = _present(part)
    if len(part.known) == 0:
        raise ValueError(f"{part.origin.place} must have rows with a label, got none: validation and test need them")
    return part.labelled()


def _check_alike(train: Dataset, other: Dataset | None) -> None:
    if other is not None and other.stored.shape[1:] != train.stored.shape[1:]:
        raise ValueError(
            f"examples of all files must have one shape, got {list(train.stored.shape[1:])} in {train.origin.place} "
            f"and {list(other.stored.shape[1:])} in {other.origin.place}: bring them to one, of images with --size"
        )


def _origin(path: Path) -> Origin:
    with path.open("rb") as file:
        return Origin(str(path), hashlib.file_digest(file, "sha256").hexdigest()[:16])


def _labelled(points: NDArray[Any], classes: Classes, path: Path) -> Dataset:
    picture = points.dtype == np.uint8 and points.ndim == 4
    with np.errstate(over="ignore"):
        # Overflow becomes infinity, which is refused.
        stored = np.ascontiguousarray(points, dtype=np.uint8 if picture else np.float32)
    origin = _origin(path)
    labels, names = classes
    try:
        return Dataset(torch.from_numpy(stored), torch.from_numpy(labels), names, origin, 255 if picture else 1)
    except ValueError as problem:
        raise ValueError(f"{path}: {problem}") from None
