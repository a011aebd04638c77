"""Size limits of all readers; docs/limits.md says what to do about each."""

from __future__ import annotations

import stat
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

MOST_BYTES = 32 << 30
"""Of a user's file."""
MOST_UNPACKED = 1 << 30
"""Bytes that a file may become in memory, however small it is; more only in proportion to its size."""
MOST_RATIO = 100
"""Times its own size."""
MOST_PIXELS = 89_478_485
"""Of one image: from here on Pillow itself warns of a decompression bomb."""
MOST_SCANS = 100
"""Of a progressive JPEG: each goes through all pixels again."""
MOST_COLUMNS = 100_000
MOST_CLASSES = 100_000
MOST_LINE = 16 << 20
"""Characters in a line of a .csv file."""
MOST_NAME = 1_000
"""Characters in the name of a class."""
MOST_OPCODES = 2_000_000
"""Of a pickled CIFAR batch: several for each image, of which the published ones have at most 50,000."""
MOST_DESCRIPTION = 4 << 20
"""Bytes of a run.yaml."""
MOST_DEPTH = 64
"""Lists and mappings inside each other in a run.yaml."""
_SHOWN = 60

_KINDS = (
    (stat.S_ISDIR, "a folder"),
    (stat.S_ISFIFO, "a pipe"),
    (stat.S_ISSOCK, "a socket"),
    (stat.S_ISCHR, "a device"),
    (stat.S_ISBLK, "a device"),
)


def size_of(path: Path, most: int = MOST_BYTES) -> int:
    """Bytes of a plain file, which it must be: a pipe or a device might never end."""
    try:
        status = path.stat()
    except OSError as problem:
        raise ValueError(f"{path} must be readable, got {problem.strerror}: see to its permissions") from None
    if not stat.S_ISREG(status.st_mode):
        kind = next((kind for is_it, kind in _KINDS if is_it(status.st_mode)), "something else")
        raise ValueError(f"{path} must be a file, got {kind}: name or put a file there")
    if status.st_size > most:
        raise ValueError(f"{path} must have at most {most:,} bytes, got {status.st_size:,}: use a part of it")
    return status.st_size


@dataclass(frozen=True)
class UnpackLimit:
    """Bytes that a file may become in memory: so many, or so many times its own size."""

    most: int = MOST_UNPACKED
    ratio: int = MOST_RATIO

    def of(self, packed: int) -> int:
        return max(self.most, self.ratio * packed)


UNPACK_LIMIT = UnpackLimit()


def check_unpacked(path: Path, unpacked: int, packed: int, limit: UnpackLimit = UNPACK_LIMIT) -> None:
    """Refuse a file that would be far larger in memory than on disk, before it is unpacked."""
    if unpacked > limit.of(packed):
        raise ValueError(
            f"{path} must unpack to at most {limit.most:,} bytes or {limit.ratio} times its size, got "
            f"{unpacked:,} bytes from {packed:,}: store it without compression, or less of it"
        )


def short(text: str) -> str:
    """One line of bounded length."""
    line = " ".join(text.split())
    return line if len(line) <= _SHOWN else f"{line[:_SHOWN]}..."


def quoted(text: str) -> str:
    return repr(text) if len(text) <= _SHOWN else f"{text[:_SHOWN]!r}..."


def listed(names: Iterable[object]) -> str:
    """The first few, and how many there are."""
    known = list(names)
    few = ", ".join(short(str(name)) for name in known[:10])
    return few if len(known) <= 10 else f"{few}, ... ({len(known):,} in all)"


def reason(problem: BaseException) -> str:
    """A library's error in one line."""
    message = " ".join(str(problem).split())
    return f"{type(problem).__name__}: {message[:200]}" if message else type(problem).__name__
