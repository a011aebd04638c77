"""A command of ours in a process that begins in no time, and that may be told at which write it dies."""

from __future__ import annotations

import multiprocessing
import os
import signal
import sys
from collections.abc import Callable
from functools import cache
from multiprocessing.context import ForkServerContext, ForkServerProcess
from pathlib import Path
from typing import Any, Literal

Where = Literal["before", "after", "torn"]
"""Of a write; torn: half of what was written has reached the disk."""
_WRITES = ("fsync", "replace", "rename", "mkdir", "rmdir", "unlink")


@cache
def processes() -> ForkServerContext:
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload(
        ["widemargin.cli", "widemargin.runs.fit", "sklearn.datasets", "torch._dynamo", "torch.export"]
    )
    return context


def started(folder: Path, words: str, dies: tuple[int, Where] | None = None) -> ForkServerProcess:
    """`widemargin WORDS` in the folder.  What it says goes to said.txt, how many writes it made to writes.txt."""
    process = processes().Process(target=run, args=(folder, words.split(), dies))
    process.start()
    return process


def ended(folder: Path, words: str) -> None:
    """Started and waited for; it must succeed."""
    process = started(folder, words)
    process.join(300)
    if process.exitcode != 0:
        process.kill()
        raise AssertionError(f"{words} ended with {process.exitcode}: {(folder / 'said.txt').read_text()[-2000:]}")


def writes(folder: Path) -> int:
    """How many writes the last command that ended made."""
    return int((folder / "writes.txt").read_text())


def run(folder: Path, words: list[str], dies: tuple[int, Where] | None) -> None:
    import torch

    from widemargin.cli import main

    torch.set_num_threads(1)
    os.chdir(folder)
    said = os.open("said.txt", os.O_WRONLY | os.O_CREAT | os.O_TRUNC)
    os.dup2(said, sys.stdout.fileno())
    os.dup2(said, sys.stderr.fileno())
    counting = _Counting(dies)
    for name in _WRITES:
        setattr(os, name, counting.wrapped(getattr(os, name)))
    main(words)
    Path("writes.txt").write_text(str(counting.count))


class _Counting:
    def __init__(self, dies: tuple[int, Where] | None) -> None:
        self.count = 0
        self.dies = dies

    def wrapped(self, call: Callable[..., Any]) -> Callable[..., Any]:
        def counted(*arguments: Any, **named: Any) -> Any:
            number, self.count = self.count, self.count + 1
            if self.dies is None or number != self.dies[0]:
                return call(*arguments, **named)
            where = self.dies[1]
            if where == "torn" and call.__name__ == "fsync":
                size = os.fstat(arguments[0]).st_size
                if size and os.path.isfile(f"/proc/self/fd/{arguments[0]}"):
                    os.ftruncate(os.open(f"/proc/self/fd/{arguments[0]}", os.O_WRONLY), size // 2)
            try:
                if where == "after":
                    call(*arguments, **named)
            finally:
                # Also after one that fails, as making a folder does that is there.
                os.kill(os.getpid(), signal.SIGKILL)
            raise AssertionError("killed")

        counted.__name__ = call.__name__
        return counted
