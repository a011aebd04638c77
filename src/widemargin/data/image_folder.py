"""A folder of images, with a sub-folder for every class."""

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

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from widemargin.data.checks import UNLABELLED, ClassName
from widemargin.data.dataset import Dataset, Origin
from widemargin.data.limits import (
    MOST_PIXELS,
    MOST_SCANS,
    MOST_UNPACKED,
    check_unpacked,
    listed,
    quoted,
    reason,
    size_of,
)
from widemargin.data.local_files import existing
from widemargin.data.optional import import_optional
from widemargin.parts import part


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
        path = existing(self.path)
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
