"""Ctrl-C, SIGTERM and --stop-after: what is under way is saved before the command leaves."""

from __future__ import annotations

import os
import re
import signal
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import FrameType
from typing import Annotated, NoReturn

from tyro.conf import arg

_UNITS = {"s": 1, "m": 60, "h": 3_600, "d": 86_400}
_SIGNALS = (signal.SIGINT, signal.SIGTERM)
_HEARD = b"\nwidemargin: saving what is under way, then leaving; another Ctrl-C leaves at once\n"

StopAfter = Annotated[str | None, arg(metavar="TIME", help_behavior_hint="")]


class Asked:
    """A wish to stop: a signal that came, or a time that is over."""

    def __init__(self, stop_after: str | None, clock: Callable[[], float] = time.monotonic) -> None:
        self.stop_after, self.clock = stop_after, clock
        self.end = None if stop_after is None else clock() + seconds(stop_after)
        self.signal: int | None = None

    def now(self) -> bool:
        return self.signal is not None or (self.end is not None and self.clock() >= self.end)

    def reached(self, update: int, epoch: float) -> bool:
        return self.now()

    def hear(self, number: int, frame: FrameType | None) -> None:
        # torchrun passes on what a terminal has sent to all anyway: there a second one is not meant so.
        alone = "TORCHELASTIC_RUN_ID" not in os.environ
        if self.signal is not None and number == signal.SIGINT and alone:
            raise KeyboardInterrupt
        if self.signal is None and alone:
            # Printing is not safe here, in the middle of anything.
            os.write(2, _HEARD)
        self.signal = self.signal or number

    def leave(self, where: str, command: str) -> NoReturn:
        """With the exit code that shells know for a signal, or 0 if it was to be so."""
        if self.signal is None:
            print(f"widemargin: stopped after {self.stop_after} {where}; resume with: {command}")
            sys.exit(0)
        print(f"widemargin: stopped {where}; resume with: {command}", file=sys.stderr)
        sys.exit(128 + self.signal)


@contextmanager
def listening(stop_after: str | None, clock: Callable[[], float] = time.monotonic) -> Iterator[Asked]:
    """Signals are heard in here; the ones before and after it end a command at once."""
    wish = Asked(stop_after, clock)
    if threading.current_thread() is not threading.main_thread():
        yield wish
        return
    before = {number: signal.signal(number, wish.hear) for number in _SIGNALS}
    try:
        yield wish
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def seconds(said: str) -> float:
    parts = re.fullmatch(r"(\d+(?:\.\d+)?|\.\d+)([smhd])", said)
    if parts is None:
        raise ValueError(f"--stop-after must be a time such as 90s, 30m, 2h or 1d, got {said}")
    return float(parts[1]) * _UNITS[parts[2]]
