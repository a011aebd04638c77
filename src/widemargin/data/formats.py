"""What do the official files hold?  Bytes in, arrays out; nothing in a file is ever executed."""

from __future__ import annotations

import gzip
import hashlib
import io
import math
import pickle
import zlib
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from widemargin.data.extras import needed

Pixels = NDArray[np.uint8]
Classes = NDArray[np.int64]


@dataclass(frozen=True)
class File:
    """A file's content, unzipped if it was zipped."""

    path: Path
    content: bytes = field(repr=False)

    @classmethod
    def read(cls, path: Path) -> File:
        try:
            content = path.read_bytes()
        except OSError as problem:
            raise ValueError(f"{path} must be readable, got {problem}: see to its permissions") from None
        if content[:2] == b"\x1f\x8b":
            try:
                content = gzip.decompress(content)
            except (EOFError, OSError, zlib.error) as problem:
                raise _damaged(path, "a whole gzip file", str(problem)) from None
        return cls(path, content)

    @property
    def md5(self) -> str:
        # The publishers give MD5; it tells versions apart and guards against accidents, not against enemies.
        return hashlib.md5(self.content, usedforsecurity=False).hexdigest()


def idx_pair(images: File, labels: File) -> tuple[Pixels, Classes]:
    """MNIST and its relatives: [N, 1, H, W] and [N]."""
    pixels, classes = idx(images), idx(labels)
    if pixels.ndim != 3 or classes.ndim != 1:
        raise ValueError(
            f"{images.path} and {labels.path} must hold images of 3 axes and labels of 1, got {pixels.ndim} and "
            f"{classes.ndim}: were they exchanged?"
        )
    return _matching(pixels[:, None], classes.astype(np.int64), images.path)


def idx(file: File) -> Pixels:
    """An IDX array of bytes: two zeros, type 8, number of axes, big-endian lengths, then the bytes."""
    content = file.content
    axes = content[3] if len(content) > 3 else 0
    if content[:3] != b"\0\0\x08" or len(content) < 4 + 4 * axes:
        raise _damaged(
            file.path, "an IDX file of bytes", f"a file that begins with {content[:4].hex(' ') or 'nothing'}"
        )
    shape = np.frombuffer(content, ">u4", axes, 4).tolist()
    expected = 4 + 4 * axes + math.prod(shape)
    if len(content) != expected:
        raise _damaged(file.path, f"{expected:,} bytes for shape {shape}", f"{len(content):,}")
    return np.frombuffer(content, np.uint8, offset=4 + 4 * axes).reshape(shape).copy()


def cifar10(*batches: File) -> tuple[Pixels, Classes]:
    return _cifar(batches, b"labels")


def cifar100(*batches: File) -> tuple[Pixels, Classes]:
    return _cifar(batches, b"fine_labels")


def svhn(file: File) -> tuple[Pixels, Classes]:
    """Cropped digits: X [32, 32, 3, N], y [N, 1] where 10 means the digit 0."""
    loadmat = needed("scipy.io", "scipy", "reading SVHN's .mat files").loadmat
    try:
        found = loadmat(io.BytesIO(file.content), variable_names=["X", "y"])
        pixels, labels = found["X"], found["y"]
    except Exception as problem:
        raise _damaged(file.path, "a .mat file with X and y", repr(problem)) from None
    if pixels.dtype != np.uint8 or pixels.ndim != 4 or labels.dtype.kind not in "iu":
        raise _damaged(file.path, "X of bytes with 4 axes and whole numbers y", f"{pixels.dtype} {list(pixels.shape)}")
    classes = labels.reshape(-1).astype(np.int64)
    return _matching(np.ascontiguousarray(pixels.transpose(3, 2, 0, 1)), np.where(classes == 10, 0, classes), file.path)


def _cifar(batches: tuple[File, ...], key: bytes) -> tuple[Pixels, Classes]:
    read = [_cifar_batch(file, key) for file in batches]
    return np.concatenate([pixels for pixels, _ in read]), np.concatenate([labels for _, labels in read])


def _cifar_batch(file: File, key: bytes) -> tuple[Pixels, Classes]:
    try:
        found = _ArraysOnly(io.BytesIO(file.content), encoding="bytes").load()
        # Written anew with Python 3, a batch has text for its keys.
        found = {name.encode() if isinstance(name, str) else name: value for name, value in found.items()}
        pixels = found[b"data"].array.reshape(-1, 3, 32, 32)
        labels = np.array(found[key], np.int64)
    except _Refused as refused:
        raise ValueError(
            f"{file.path} asks to run {refused}, but a data file may hold arrays and plain values only: it was not "
            "opened; replace it by the official file"
        ) from None
    except Exception as problem:
        wanted = f"a CIFAR batch with data and {key.decode()}"
        raise _damaged(file.path, wanted, repr(problem)) from None
    return _matching(pixels, labels, file.path)


class _Refused(Exception):
    """What a pickle wanted and does not get."""


class _Array:
    """Stands in for numpy's array while unpickling, so that not even numpy's own code runs on a file's say."""

    def __init__(self, *_: object) -> None:
        self.array: Pixels = np.empty(0, np.uint8)

    def __setstate__(self, state: tuple[Any, ...]) -> None:
        _, shape, _, fortran, content = state
        self.array = np.frombuffer(content, np.uint8).reshape(shape, order="F" if fortran else "C")


class _ByteType:
    """Stands in for numpy's dtype, which must be the unsigned byte."""

    def __init__(self, code: bytes | str, *_: object) -> None:
        if code not in (b"u1", "u1"):
            raise _Refused(f"numpy.dtype({code!r})")

    def __setstate__(self, state: object) -> None:
        """Byte order and the like: nothing that a byte has."""


class _ArraysOnly(pickle.Unpickler):
    def find_class(self, module: str, name: str) -> type:
        if (module, name) == ("numpy", "dtype"):
            return _ByteType
        if (module, name) == ("numpy", "ndarray") or (
            module in ("numpy.core.multiarray", "numpy._core.multiarray") and name == "_reconstruct"
        ):
            return _Array
        raise _Refused(f"{module}.{name}")


def _matching(pixels: Pixels, classes: Classes, path: Path) -> tuple[Pixels, Classes]:
    if len(pixels) != len(classes):
        raise _damaged(path, "one label for every image", f"{len(pixels):,} images and {len(classes):,} labels")
    return pixels, classes


def _damaged(path: Path, wanted: str, got: str) -> ValueError:
    return ValueError(
        f"{path} must hold {wanted}, got {got}: the file is cut off or not the official one; delete or replace it"
    )
