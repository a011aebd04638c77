"""Help that fits the terminal: tyro wraps what is inside its boxes, and not the usage and description above them."""

from __future__ import annotations

import io
import os
import re
import shutil
import sys
import textwrap

_STYLE = re.compile(r"\x1b\[[0-9;]*m")


class WrappedHelp(io.StringIO):
    """Passes lines on to standard output, those that are too long wrapped at words; without colours under NO_COLOR."""

    def __init__(self) -> None:
        super().__init__()
        self.out = sys.stdout

    @property
    def encoding(self) -> str:  # type: ignore[override]
        """tyro draws boxes where it is UTF-8."""
        return self.out.encoding

    def isatty(self) -> bool:
        return self.out.isatty() and not os.environ.get("NO_COLOR")

    def write(self, text: str) -> int:
        width = max(40, shutil.get_terminal_size().columns)
        self.out.write("\n".join(_wrapped(line, width) for line in text.split("\n")))
        return len(text)


def _wrapped(line: str, width: int) -> str:
    if len(_STYLE.sub("", line)) <= width:
        return line
    # A list of verbs has no spaces.
    spaced = line.replace(",", ", ") if "usage:" in line else line
    return textwrap.fill(spaced, width, break_long_words=False, break_on_hyphens=False)
