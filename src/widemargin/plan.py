"""How long and how fast is a network trained?"""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Protocol

import torch
from torch.optim import Optimizer


class Decay(Protocol):
    def __call__(self, done: float) -> float:
        """The share of the peak rate to use when a share `done` of all updates has been made."""
        ...


@dataclass(frozen=True)
class Constant:
    def __call__(self, done: float) -> float:
        return 1.0


@dataclass(frozen=True)
class Cosine:
    """From 1 to 0 along half a cosine."""

    def __call__(self, done: float) -> float:
        return (1 + math.cos(math.pi * done)) / 2


@dataclass(frozen=True)
class Adam:
    rate: float
    decay: Decay = Constant()

    def __post_init__(self) -> None:
        if not 0 < self.rate < math.inf:
            raise ValueError(f"Adam.rate must be in (0, inf), got {self.rate}")

    def build(self, parameters: Iterable[torch.nn.Parameter]) -> Optimizer:
        return torch.optim.Adam(parameters, lr=self.rate, fused=True)

    def set_rate(self, optimizer: Optimizer, done: float) -> None:
        for group in optimizer.param_groups:
            group["lr"] = self.rate * self.decay(done)


@dataclass(frozen=True)
class Plan:
    updates: int
    optimizer: Adam
    batch: int | None = None
    """Points in an update; None for all of them."""

    def __post_init__(self) -> None:
        if self.updates < 1:
            raise ValueError(f"Plan.updates must be at least 1, got {self.updates}")
