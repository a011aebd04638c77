"""A command of ours that may take only so much memory and time."""

from __future__ import annotations

import os
import resource
from pathlib import Path

from faults.commands import processes, run

MEMORY = 2 << 30
"""Bytes that a process may take beyond what it has when it begins."""


def limit_memory() -> None:
    pages = int(Path("/proc/self/statm").read_text().split()[0])
    most = pages * os.sysconf("SC_PAGE_SIZE") + MEMORY
    resource.setrlimit(resource.RLIMIT_AS, (most, most))
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))


def exit_code(folder: Path, words: str, data: str) -> int | None:
    """Of `widemargin WORDS`, with published images in the folder `data`.  What it says goes to said.txt."""
    process = processes().Process(target=_limited, args=(folder, words.split(), data))
    process.start()
    process.join(120)
    code = process.exitcode
    process.kill()
    return code


def _limited(folder: Path, words: list[str], data: str) -> None:
    limit_memory()
    os.environ["WIDEMARGIN_DATA"] = data
    run(folder, words, None)
