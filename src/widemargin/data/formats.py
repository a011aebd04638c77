"""Readers of the published file formats (IDX, CIFAR, SVHN): bytes to arrays; nothing in a file is executed."""

from __future__ import annotations

import gzip
import hashlib
import io
import math
import struct
import zlib
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from widemargin.data.limits import MOST_UNPACKED, reason, short, size_of
from widemargin.data.pickled import Refused, unpickled

Pixels = NDArray[np.uint8]
Classes = NDArray[np.int64]
_MAT_HEADER, _MAT_ARRAY, _MAT_COMPRESSED = 128, 14, 15
_MAT_NUMBERS = {1: "i1", 2: "u1", 3: "i2", 4: "u2", 5: "i4", 6: "u4", 7: "f4", 9: "f8", 12: "i8", 13: "u8"}
_MOST_AXES = 32
_PIECE, _PACKED_PIECE = 1 << 20, 1 << 16
_IDX_AXES = 4


@dataclass(frozen=True)
class File:
    """A file's content, unzipped if it was zipped."""

    path: Path
    content: bytes = field(repr=False)

    @classmethod
    def read(cls, path: Path, most: int = MOST_UNPACKED) -> File:
        """Of at most so many bytes, also once unzipped."""
        size_of(path, most)
        try:
            content = path.read_bytes()
        except OSError as problem:
            raise ValueError(f"{path} must be readable, got {problem.strerror}: see to its permissions") from None
        return cls(path, _unzipped(content, path, most) if content[:2] == b"\x1f\x8b" else content)

    @property
    def md5(self) -> str:
        # The publishers give MD5; it distinguishes versions and detects accidents, not attacks.
        return hashlib.md5(self.content, usedforsecurity=False).hexdigest()


def _unzipped(content: bytes, path: Path, most: int) -> bytes:
    """A piece at a time, so that a small file cannot become a huge one."""
    unzipped = bytearray()
    try:
        with gzip.GzipFile(fileobj=io.BytesIO(content)) as zipped:
            while piece := zipped.read(_PIECE):
                unzipped += piece
                if len(unzipped) > most:
                    raise _damaged(path, f"at most {most:,} bytes once unzipped", "more")
    except (EOFError, OSError, zlib.error) as problem:
        raise _damaged(path, "a whole gzip file", reason(problem)) from None
    return bytes(unzipped)


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
    if content[:3] != b"\0\0\x08" or not 0 < axes <= _IDX_AXES or len(content) < 4 + 4 * axes:
        raise _damaged(
            file.path, "an IDX file of bytes", f"a file that begins with {content[:4].hex(' ') or 'nothing'}"
        )
    shape = np.frombuffer(content, ">u4", axes, 4).tolist()
    expected = 4 + 4 * axes + math.prod(shape)
    if not 0 < math.prod(shape[1:]) <= MOST_UNPACKED:
        raise _damaged(file.path, "an IDX file of bytes", f"shape {shape}")
    if len(content) != expected:
        raise _damaged(file.path, f"{expected:,} bytes for shape {shape}", f"{len(content):,}")
    return np.frombuffer(content, np.uint8, offset=4 + 4 * axes).reshape(shape).copy()


def cifar10(*batches: File) -> tuple[Pixels, Classes]:
    return _cifar(batches, b"labels")


def cifar100(*batches: File) -> tuple[Pixels, Classes]:
    return _cifar(batches, b"fine_labels")


def svhn(file: File, most: int = MOST_UNPACKED) -> tuple[Pixels, Classes]:
    """Cropped digits: X [32, 32, 3, N], y [N, 1] where 10 means the digit 0."""
    try:
        arrays = _mat_arrays(file.content, most)
        pixels, labels = arrays["X"], arrays["y"]
    except (ValueError, KeyError, struct.error, zlib.error) as problem:
        raise _damaged(file.path, "a .mat file with X and y", reason(problem)) from None
    if pixels.dtype != np.uint8 or pixels.ndim != 4 or labels.dtype.kind not in "iu":
        raise _damaged(file.path, "X of bytes with 4 axes and whole numbers y", f"{pixels.dtype} {list(pixels.shape)}")
    classes = labels.reshape(-1).astype(np.int64)
    return _matching(np.ascontiguousarray(pixels.transpose(3, 2, 0, 1)), np.where(classes == 10, 0, classes), file.path)


def _mat_arrays(content: bytes, most: int) -> dict[str, NDArray[Any]]:
    """The arrays of numbers in a .mat file of version 5, by name; of at most so many bytes.

    Our own, since scipy's reader trusts the headers of a file: some damaged ones crash the process.
    """
    order = {b"IM": "<", b"MI": ">"}.get(content[126:128])
    if order is None:
        raise ValueError("no .mat file of version 5")
    arrays, room = {}, most
    for kind, part in _parts(content[_MAT_HEADER:], order):
        if kind == _MAT_COMPRESSED:
            ((kind, part),) = _parts(_inflated(part, room, most), order)
        room -= len(part)
        if kind != _MAT_ARRAY:
            raise ValueError("something else than an array of numbers")
        name, array = _mat_array(part, order)
        arrays[name] = array
    return arrays


def _mat_array(part: bytes, order: str) -> tuple[str, NDArray[Any]]:
    kinds, contents = zip(*_parts(part, order), strict=True)
    # Flags, sizes, a name and numbers: of complex ones there are five parts, of cells others.
    if kinds[:3] != (6, 5, 1) or len(kinds) != 4 or kinds[3] not in _MAT_NUMBERS:
        raise ValueError("something else than an array of numbers")
    _, sizes, name, numbers = contents
    shape = np.frombuffer(sizes, f"{order}i4").tolist()
    values = np.frombuffer(numbers, f"{order}{_MAT_NUMBERS[kinds[3]]}")
    if not 1 <= len(shape) <= _MOST_AXES or min(shape) < 0 or math.prod(shape) != len(values):
        raise ValueError(f"sizes {short(str(shape))} of {len(values):,} numbers")
    return name.decode("latin-1"), values.reshape(shape, order="F")


def _parts(content: bytes, order: str) -> Iterator[tuple[int, bytes]]:
    """Each with its kind; all begin at multiples of 8 but those that are compressed."""
    place = 0
    while place < len(content):
        kind, count = struct.unpack_from(f"{order}II", content, place)
        begin = place + 8
        if kind >> 16:
            # Up to four bytes are stored beside their kind, which then has the count in its upper half.
            kind, count, begin = kind & 0xFFFF, kind >> 16, place + 4
            place += 8
        else:
            place += 8 + count + (0 if kind == _MAT_COMPRESSED else -count % 8)
        if place > len(content) or begin + count > place:
            raise ValueError("a file that is cut off")
        yield kind, content[begin : begin + count]


def _inflated(packed: bytes, room: int, most: int) -> bytes:
    """For which there is still room, of so many bytes at most."""
    plain, unzip = bytearray(), zlib.decompressobj()
    for place in range(0, len(packed), _PACKED_PIECE):
        plain += unzip.decompress(packed[place : place + _PACKED_PIECE])
        if len(plain) > room:
            raise ValueError(f"more than {most:,} bytes once unzipped")
    if not unzip.eof:
        raise ValueError("a file that is cut off")
    return bytes(plain)


def _cifar(batches: tuple[File, ...], key: bytes) -> tuple[Pixels, Classes]:
    read = [_cifar_batch(file, key) for file in batches]
    return np.concatenate([pixels for pixels, _ in read]), np.concatenate([labels for _, labels in read])


def _cifar_batch(file: File, key: bytes) -> tuple[Pixels, Classes]:
    try:
        batch = unpickled(file.content)
        pixels = batch[b"data"].array.reshape(-1, 3, 32, 32)
        labels = batch[key]
        if type(labels) is not list or any(type(label) is not int for label in labels):
            raise ValueError("labels that are no list of whole numbers")
        classes = np.array(labels, np.int64)
    except Refused as refused:
        raise ValueError(
            f"{file.path} asks to run {refused}, but a data file may hold arrays and plain values only: it was not "
            "opened; replace it by the official file"
        ) from None
    except Exception as problem:
        # A damaged file may fail at any opcode.
        raise _damaged(file.path, f"a CIFAR batch with data and {key.decode()}", reason(problem)) from None
    return _matching(pixels, classes, file.path)


def _matching(pixels: Pixels, classes: Classes, path: Path) -> tuple[Pixels, Classes]:
    if len(pixels) != len(classes):
        raise _damaged(path, "one label for every image", f"{len(pixels):,} images and {len(classes):,} labels")
    return pixels, classes


def _damaged(path: Path, wanted: str, got: str) -> ValueError:
    return ValueError(
        f"{path} must hold {wanted}, got {got}: the file is cut off or not the official one; delete or replace it"
    )
