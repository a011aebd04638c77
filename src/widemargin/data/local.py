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

from widemargin.data.checks import UNLABELLED
from widemargin.data.classes import numbered
from widemargin.data.dataset import ClassName, Dataset, Origin, Splits
from widemargin.data.limits import (
    MOST_PIXELS,
    MOST_SCANS,
    MOST_UNPACKED,
    check_unpacked,
    quoted,
    reason,
    size_of,
)
from widemargin.data.npz import npz_arrays
from widemargin.data.optional import import_optional
from widemargin.data.splits import random_splits
from widemargin.data.tables import table
from widemargin.parts import part

Classes = tuple[NDArray[np.int64], tuple[ClassName, ...]]
"""Numbers of classes, and their names."""


class LocalFile(Protocol):
    """A frozen description of a file or folder of examples."""

    def read(self) -> Dataset: ...


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
class Table:
    """A .csv (with a line of names) or .parquet file: one column of labels, all others numbers.

    A row with an empty label is unlabelled.
    """

    path: str
    label: str = "label"

    def read(self) -> Dataset:
        path = _existing(self.path)
        points, labels = table(path, self.label)
        what, advice = f"column {quoted(self.label)} of {path}", "name the column of the classes with --label"
        return _labelled(points, numbered(labels, what, advice), path)


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

    def read(self) -> Dataset:
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
        if self.unlabelled is not None:
            labels = self._known(labels, path)
        classes = numbered(labels, f"{self.y!r} of {path}", f"store the classes as {self.y!r}")
        return _labelled(_channels_first(points, path), classes, path)

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

    def read(self) -> Dataset:
        path = _existing(self.path)
        if not path.is_dir():
            raise ValueError(f"{path} must be a folder of images, an .npz, a .csv or a .parquet file, got another file")
        there = sorted(inside for inside in path.iterdir() if inside.is_dir() and not inside.name.startswith("."))
        folders = [folder for folder in there if folder.name != _NO_CLASS]
        if len(folders) < 2:
            raise ValueError(
                f"{path} must hold a sub-folder of images for each of at least 2 classes, got {len(folders)}: "
                "sort the images into such"
            )
        files, classes = [], []
        for folder in there:
            inside = sorted(file for file in folder.iterdir() if not _clutter(file.name))
            if not inside:
                raise ValueError(f"{folder} must hold images, got none: add some or remove the folder")
            files += inside
            classes += [folders.index(folder) if folder in folders else UNLABELLED] * len(inside)
        pixels, digest = self._images(files, path)
        names = tuple(folder.name for folder in folders)
        return Dataset(pixels, torch.tensor(classes), names, Origin(str(path), digest), white=255)

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


def _labelled(points: NDArray[Any], classes: Classes, path: Path) -> Dataset:
    picture = points.dtype == np.uint8 and points.ndim == 4
    with np.errstate(over="ignore"):
        # Overflow becomes infinity, which is refused.
        stored = np.ascontiguousarray(points, dtype=np.uint8 if picture else np.float32)
    with path.open("rb") as file:
        origin = Origin(str(path), hashlib.file_digest(file, "sha256").hexdigest()[:16])
    labels, names = classes
    try:
        return Dataset(torch.from_numpy(stored), torch.from_numpy(labels), names, origin, 255 if picture else 1)
    except ValueError as problem:
        raise ValueError(f"{path}: {problem}") from None
