"""When a training stops before its end, to go on later as if it had not."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol


class Stopped(Exception):
    """Raised by a watcher of a training to leave it between two updates; it is saved before this is raised further."""


class Stop(Protocol):
    def reached(self, update: int, epoch: float) -> bool:
        """Called before the first and after every update, with the number of updates and of epochs so far."""
        ...


@dataclass(frozen=True)
class AtEnd:
    """Of the plan, which is a stop anyway."""

    def reached(self, update: int, epoch: float) -> bool:
        return False


@dataclass(frozen=True)
class AtUpdate:
    count: int

    def reached(self, update: int, epoch: float) -> bool:
        return update >= self.count


@dataclass(frozen=True)
class AtEpoch:
    count: float

    def reached(self, update: int, epoch: float) -> bool:
        return epoch >= self.count


class StopRequest(Protocol):
    def now(self) -> bool:
        """Shall what is under way be saved and left?"""
        ...


@dataclass(frozen=True)
class NoStopRequest:
    def now(self) -> bool:
        return False
