"""How much was tried and how much survived, written to docs/reliability.md by the run that saw it."""

from __future__ import annotations

import platform
import re
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

import torch

PAGE = Path(__file__).parents[2] / "docs" / "reliability.md"
_INTRODUCTION = """# Reliability

What was done to widemargin on purpose, and what it came to. `make slow` does all of it again and writes this page; a
quick part runs in `make test`. Survived means: the same command, given again, ended with the same result, bit for bit
(a study's to two digits: networks trained side by side differ in their last bits from ones trained alone); or the
damaged or hostile file was refused in one sentence, with nothing run, nothing lost and nothing left behind.
"""


@dataclass
class Counted:
    tried: int = 0


@dataclass
class Tally:
    """Rows appear as tests pass; a test that fails loses its row."""

    rows: dict[str, int] = field(default_factory=dict)

    @classmethod
    def of_page(cls, text: str) -> Tally:
        """What runs before this one have written."""
        found = re.findall(r"^\| ([^*|]+) \| ([\d,]+) \| [\d,]+ \|$", text, re.MULTILINE)
        return cls({what: int(tried.replace(",", "")) for what, tried in found})

    @contextmanager
    def of(self, what: str) -> Iterator[Counted]:
        counted = Counted()
        self.rows.pop(what, None)
        yield counted
        assert counted.tried > 0, f"nothing was tried: {what}"
        self.rows[what] = counted.tried

    def page(self) -> str:
        rows = "\n".join(f"| {what} | {tried:,} | {tried:,} |" for what, tried in sorted(self.rows.items()))
        total = sum(self.rows.values())
        table = f"| what | tried | survived |\n|---|---:|---:|\n{rows}\n| **all** | {total:,} | {total:,} |"
        machine = f"{platform.system()} {platform.machine()}"
        versions = f"Python {platform.python_version()}, torch {torch.__version__}, {machine}."
        return f"{_INTRODUCTION}\n{table}\n\n{versions}\n"
