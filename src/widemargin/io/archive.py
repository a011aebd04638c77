"""Untrusted archives and pickles: sizes are checked before anything is unpacked, and no code is executed."""

from __future__ import annotations

import json
import zipfile
from collections.abc import Mapping
from dataclasses import dataclass
from io import BufferedReader, BytesIO
from typing import Any

import torch
from torch import Tensor

from widemargin.io.graph import MOST_STORED, sentence

LARGEST_JSON = 2**26
"""Bytes of text; a ResNet-152 has about 2**22."""
MOST_UNPACKED = 100
"""Times the size of the archive; torch itself does not compress at all."""


@dataclass
class Archive:
    """A zip file of which a bounded number of bytes may be read."""

    archive: zipfile.ZipFile
    size: int
    read_so_far: int = 0

    def __post_init__(self) -> None:
        check_unpacked(self.archive, self.size)

    @property
    def names(self) -> list[str]:
        return self.archive.namelist()

    def read(self, name: str, most: int = MOST_STORED) -> bytes:
        size = self.archive.getinfo(name).file_size
        self.read_so_far += size
        if size > most or self.read_so_far > min(MOST_STORED, MOST_UNPACKED * self.size):
            raise ValueError(f"its {name!r} is too large, or read too often, for an archive of {self.size:,} bytes")
        return self.archive.read(name)

    def json(self, name: str) -> Any:
        try:
            return json.loads(self.read(name, LARGEST_JSON))
        except RecursionError:
            raise ValueError(f"its {name!r} is nested too deeply") from None


def check_unpacked(archive: zipfile.ZipFile, size: int) -> None:
    unpacked = sum(part.file_size for part in archive.infolist())
    if unpacked > min(MOST_STORED, MOST_UNPACKED * size):
        raise ValueError(
            f"it must unpack to at most {MOST_UNPACKED} times its size and {MOST_STORED:,} bytes, "
            f"got {unpacked:,} of {size:,}"
        )


def unpickled(file: BufferedReader | BytesIO, size: int) -> Any:
    """By torch.load with weights_only, which reads tensors and containers only."""
    if not zipfile.is_zipfile(file):
        # Before torch 1.6 a file was one stream, whose sizes are not checked.
        raise ValueError("it must be written by torch.save of torch 1.6 or later, got another format")
    with zipfile.ZipFile(file) as archive:
        check_unpacked(archive, size)
    file.seek(0)
    try:
        return torch.load(file, map_location="cpu", weights_only=True)
    except Exception as problem:
        # It may raise anything on a malformed file.  Of a pickled object it says this, in many lines.
        is_object = "Unsupported global" in str(problem)
        got = "a pickled object, such as a whole model" if is_object else sentence(problem)
        raise ValueError(f"it must hold tensors and nothing else, got {got}") from None


def named_tensors(content: Any) -> dict[str, Tensor]:
    if not isinstance(content, Mapping) or not all(isinstance(value, Tensor) for value in content.values()):
        raise ValueError("it must hold named tensors, got something else")
    tensors = {str(name): value.detach() for name, value in content.items()}
    for name, tensor in tensors.items():
        # A tensor may claim more numbers than are stored, or repeat one by a stride of 0.
        if (
            tensor.is_sparse
            or tensor.is_quantized
            or tensor.numel() * tensor.itemsize > tensor.untyped_storage().nbytes()
        ):
            raise ValueError(f"its {name!r} must be an ordinary tensor with all of its numbers, got another one")
    return tensors
