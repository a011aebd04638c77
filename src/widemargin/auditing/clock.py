"""The clock of an audit: its budget, and the time it has taken."""

from __future__ import annotations

import math
import re
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

from torch.nn.modules.module import register_module_forward_pre_hook

from widemargin.files import read_json, write_json

OVERRUN = 1.1
"""So many times a budget, whatever is under way is given up."""


def seconds_of(budget: float | str | None) -> float | None:
    """Of a number, or of a time as the command line takes it."""
    parts = re.fullmatch(r"(\d+(?:\.\d+)?|\.\d+)([smh]?)", budget) if isinstance(budget, str) else None
    if parts is not None:
        return float(parts[1]) * {"": 1, "s": 1, "m": 60, "h": 3600}[parts[2]]
    is_time = isinstance(budget, int | float) and not isinstance(budget, bool) and budget > 0
    if budget is not None and not is_time:
        raise ValueError(f'budget must be seconds or a time such as "90s", "10m" or "2h", got {budget!r}')
    return None if budget is None else float(budget)


class TimeIsUp(BaseException):
    """No Exception: those of networks are caught, and this is none of theirs."""


@dataclass(frozen=True)
class Clock:
    budget: float | None
    begun: float = field(default_factory=time.monotonic)
    now: Callable[[], float] = time.monotonic

    def left(self, share: float = 1.0) -> float:
        """In seconds, of a share of the budget that comes first."""
        return math.inf if self.budget is None else self.begun + share * self.budget - self.now()

    @contextmanager
    def ending(self, share: float = OVERRUN, unless: Callable[[], bool] = lambda: False) -> Iterator[None]:
        """Any module that is called after this fraction of the budget raises TimeIsUp."""
        if self.budget is None:
            yield
            return

        def check(*_: object) -> None:
            if self.left(share) <= 0 and not unless():
                raise TimeIsUp

        # Of all modules: an ensemble may be asked for what its members say, and not as a whole.
        hook = register_module_forward_pre_hook(check)
        try:
            yield
        finally:
            hook.remove()


UNLIMITED = Clock(None)


@dataclass(eq=False)
class Stopwatch:
    """The time that passed, of all calls together, up to the last that saved anything."""

    path: Path
    since: float = field(default_factory=time.monotonic)
    now: Callable[[], float] = time.monotonic

    @property
    def seconds(self) -> float:
        return float(read_json(self.path)["seconds"]) if self.path.exists() else 0.0

    def save(self) -> None:
        now = self.now()
        write_json(self.path, {"seconds": self.seconds + now - self.since})
        self.since = now


def duration(seconds: float) -> str:
    """Rounded up, as the command line takes it."""
    if seconds < 100:
        return f"{math.ceil(seconds)}s"
    return f"{math.ceil(seconds / 60)}m" if seconds < 6_000 else f"{math.ceil(seconds / 3_600)}h"
