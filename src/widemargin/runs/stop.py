"""When a training stops before its end, to go on later as if it had not."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol


class Stopped(Exception):
    """Raised by who watches a training, to leave it between two updates; it is saved before this goes on its way."""


class Stop(Protocol):
    def reached(self, update: int, epoch: float) -> bool:
        """Asked before the first and after every update: how many there were, and how many epochs that is."""
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


class Asking(Protocol):
    def now(self) -> bool:
        """Does somebody want what is under way to be saved and left?"""
        ...


@dataclass(frozen=True)
class Nobody:
    def now(self) -> bool:
        return False
