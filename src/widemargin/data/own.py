"""How is the user's own data read?  From a folder of images, an .npz, a .csv or a .parquet file."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

import numpy as np
import torch
from numpy.typing import NDArray

from widemargin.data.checks import UNLABELLED
from widemargin.data.extras import needed
from widemargin.data.labelled import Labelled, Origin, Parts
from widemargin.data.splits import shared_parts
from widemargin.data.tables import numbered, table


class OwnFile(Protocol):
    """A frozen description of a file or folder of examples."""

    def read(self) -> Labelled: ...


@dataclass(frozen=True)
class OwnData:
    """The user's own examples, divided class by class into parts by the shares that are given and a seed.

    Shares are those of the rows with a label; rows without one are for training.
    The description names a place, not what is there: `Labelled.origin.digest` tells two versions of a file apart.
    """

    file: OwnFile
    validation: float = 0.1
    test: float = 0.2
    seed: int = 0

    def draw(self) -> Parts:
        return shared_parts(self.file.read(), self.validation, self.test, self.seed)


@dataclass(frozen=True)
class Table:
    """A .csv (with a line of names) or .parquet file: one column of labels, all others numbers.

    Where a label's cell is empty, nobody knows the class.
    """

    path: str
    label: str = "label"

    def read(self) -> Labelled:
        path = _existing(self.path)
        points, labels = table(path, self.label)
        return _labelled(points, labels, path, f"column {self.label!r} of {path}")


@dataclass(frozen=True, repr=False)
class Npz:
    """An .npz file with an array of examples and an array of labels.

    Bytes with 3 or 4 axes are images, [N, H, W], [N, C, H, W] or [N, H, W, C], and come out in [0, 1]; all other
    numbers are taken as they are.  A label that is NaN or, if that is given, equals `unlabelled` is none: -1 may be
    a class like any other, so nobody guesses.
    """

    path: str
    x: str = "x"
    y: str = "y"
    unlabelled: int | None = None

    def __repr__(self) -> str:
        # A key hashes a repr: runs whose rows all have labels keep theirs.
        shown = {name: value for name, value in vars(self).items() if name != "unlabelled" or value is not None}
        return f"Npz({', '.join(f'{name}={value!r}' for name, value in shown.items())})"

    def read(self) -> Labelled:
        path = _existing(self.path)
        try:
            # Opened here, because numpy leaves a file open that it cannot read.
            with path.open("rb") as opened, np.load(opened, allow_pickle=False) as file:
                there = list(file.files)
                found = [file[name] for name in (self.x, self.y) if name in there]
        except Exception as problem:
            raise ValueError(
                f"{path} must be an .npz file of plain arrays, got {problem!r}: write it with numpy.savez"
            ) from None
        if len(found) != 2:
            raise ValueError(
                f"{path} must hold the arrays {self.x!r} and {self.y!r}, got {', '.join(there)}: name yours"
            )
        points, labels = found
        if labels.ndim == 2 and labels.shape[1] == 1:
            labels = labels[:, 0]
        if labels.ndim != 1 or points.ndim < 2 or len(points) != len(labels):
            raise ValueError(
                f"{path} must hold as many labels in one axis as examples, got {self.x!r} {list(points.shape)} and "
                f"{self.y!r} {list(labels.shape)}"
            )
        if points.dtype.kind not in "biuf":
            raise ValueError(f"{self.x!r} of {path} must hold real numbers, got {points.dtype}")
        if self.unlabelled is not None:
            labels = self._known(labels, path)
        return _labelled(_channels_first(points, path), labels, path, f"{self.y!r} of {path}")

    def _known(self, labels: NDArray[Any], path: Path) -> NDArray[Any]:
        none = labels == self.unlabelled
        if labels.dtype.kind not in "iuf" or not none.any():
            raise ValueError(
                f"{self.y!r} of {path} must hold {self.unlabelled} where there is no label, got none such: leave "
                "`unlabelled` out"
            )
        return np.where(none, np.nan, labels)


@dataclass(frozen=True)
class ImageFolder:
    """A folder with a sub-folder of images for every class; the sorted names of the sub-folders are the classes.

    Of the images in a sub-folder called `unlabelled` nobody knows the class.
    All images are converted to one mode, "RGB" or "L" (grey), and to `size` (height, width) if it is given.
    """

    path: str
    mode: str = "RGB"
    size: tuple[int, int] | None = None

    def __post_init__(self) -> None:
        if self.mode not in ("RGB", "L"):
            raise ValueError(f"ImageFolder.mode must be 'RGB' or 'L', got {self.mode!r}")
        if self.size is not None and min(self.size) < 1:
            raise ValueError(f"ImageFolder.size must be a height and a width of at least 1, got {self.size}")

    def read(self) -> Labelled:
        path = _existing(self.path)
        there = sorted(inside for inside in path.iterdir() if inside.is_dir() and not inside.name.startswith("."))
        folders = [folder for folder in there if folder.name != _NO_CLASS]
        if len(folders) < 2:
            raise ValueError(
                f"{path} must hold a sub-folder of images for each of at least 2 classes, got {len(folders)}"
            )
        images: list[NDArray[np.uint8]] = []
        classes, digest = [], hashlib.sha256()
        for folder in there:
            number = folders.index(folder) if folder in folders else UNLABELLED
            files = sorted(file for file in folder.iterdir() if not _clutter(file.name))
            if not files:
                raise ValueError(f"{folder} must hold images, got none: add some or remove the folder")
            for file in files:
                images.append(self._image(file, images[0].shape if images else None))
                classes.append(number)
                digest.update(f"{file.relative_to(path)}\0".encode() + hashlib.sha256(file.read_bytes()).digest())
        pixels = torch.from_numpy(np.stack(images)).permute(0, 3, 1, 2).contiguous()
        origin = Origin(str(path), digest.hexdigest()[:16])
        names = tuple(folder.name for folder in folders)
        return Labelled(pixels, torch.tensor(classes), names, origin, white=255, partly=len(there) > len(folders))

    def _image(self, file: Path, shape: tuple[int, ...] | None) -> NDArray[np.uint8]:
        image = needed("PIL.Image", "pillow", "a folder of images")
        turned = needed("PIL.ImageOps", "pillow", "a folder of images").exif_transpose
        try:
            # Named formats only: others, such as PostScript, are programs.
            with image.open(file, formats=_FORMATS) as opened:
                depth, upright = opened.mode, turned(opened)
                if self.size is not None and upright.size != self.size[::-1]:
                    upright = upright.convert(self.mode).resize(self.size[::-1], image.Resampling.BILINEAR)
                pixels = np.array(upright.convert(self.mode)).reshape(*upright.size[::-1], -1)
        except Exception as problem:
            raise ValueError(
                f"{file} must be a whole image ({', '.join(_FORMATS)}), got {problem!r}: replace or remove it"
            ) from None
        if depth.startswith(("I", "F")):
            raise ValueError(f"{file} must have 8 bits per channel, got mode {depth}: convert it first")
        if shape is not None and pixels.shape != shape:
            raise ValueError(
                f"all images must have one size, got {shape[0]} x {shape[1]} and, in {file}, {pixels.shape[0]} x "
                f"{pixels.shape[1]} (height x width): give ImageFolder a size"
            )
        return pixels


_NO_CLASS = "unlabelled"
_FORMATS = ("PNG", "JPEG", "BMP", "GIF", "WEBP", "TIFF", "PPM")


def _clutter(name: str) -> bool:
    """What desktops leave in folders."""
    return name.startswith(".") or name.lower() in ("thumbs.db", "desktop.ini")


def _existing(path: str) -> Path:
    found = Path(path).expanduser()
    if not found.exists():
        raise ValueError(f"{found} does not exist: name a file or folder that does")
    return found


def _channels_first(points: NDArray[np.generic], path: Path) -> NDArray[np.generic]:
    if points.dtype != np.uint8 or points.ndim not in (3, 4):
        return points
    if points.ndim == 3:
        return points[:, None]
    if points.shape[1] in (1, 3, 4):
        return points
    if points.shape[3] in (1, 3, 4):
        return points.transpose(0, 3, 1, 2)
    raise ValueError(f"images in {path} must have 1, 3 or 4 channels in axis 1 or 3, got shape {list(points.shape)}")


def _labelled(points: NDArray[np.generic], labels: NDArray[np.generic], path: Path, what: str) -> Labelled:
    classes, names = numbered(labels, what)
    picture = points.dtype == np.uint8 and points.ndim == 4
    stored = np.ascontiguousarray(points, dtype=np.uint8 if picture else np.float32)
    origin = Origin(str(path), hashlib.sha256(path.read_bytes()).hexdigest()[:16])
    partly, white = bool((classes == UNLABELLED).any()), 255 if picture else 1
    try:
        return Labelled(torch.from_numpy(stored), torch.from_numpy(classes), names, origin, white, partly)
    except ValueError as problem:
        raise ValueError(f"{path}: {problem}") from None
