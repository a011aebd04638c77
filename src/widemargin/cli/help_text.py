"""Help that fits the terminal: tyro wraps what is inside its boxes, and not the usage and description above them."""

from __future__ import annotations

import io
import os
import re
import shutil
import sys
import textwrap
from collections.abc import Iterator
from contextlib import contextmanager, redirect_stdout

_STYLE = re.compile(r"\x1b\[[0-9;]*m")
_EMPTY = re.compile("[│|] +[│|]")


class WrappedHelp(io.StringIO):
    """Passes lines on to standard output, those that are too long wrapped at words; without colours under NO_COLOR."""

    def __init__(self) -> None:
        super().__init__()
        self.out, self.rest = sys.stdout, ""

    @property
    def encoding(self) -> str:  # type: ignore[override]
        """tyro draws boxes where it is UTF-8."""
        return self.out.encoding

    def isatty(self) -> bool:
        return self.out.isatty() and not os.environ.get("NO_COLOR")

    def write(self, text: str) -> int:
        width = max(40, shutil.get_terminal_size().columns)
        *lines, self.rest = (self.rest + text).split("\n")
        # Where a text fills its line, tyro leaves an empty one behind it.
        lines = [line for line in lines if not _EMPTY.fullmatch(_STYLE.sub("", line))]
        self.out.write("".join(f"{_wrapped(line, width)}\n" for line in lines))
        return len(text)


@contextmanager
def wrapped_help() -> Iterator[None]:
    """Standard output goes through it in here."""
    out = WrappedHelp()
    try:
        with redirect_stdout(out):
            yield
    finally:
        out.out.write(out.rest)


def _wrapped(line: str, width: int) -> str:
    if len(_STYLE.sub("", line)) <= width:
        return line
    # A list of verbs has no spaces.
    spaced = line.replace(",", ", ") if "usage:" in line else line
    return textwrap.fill(spaced, width, break_long_words=False, break_on_hyphens=False)
