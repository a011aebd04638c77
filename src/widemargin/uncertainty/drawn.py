"""When members are draws, which ones?  Fixed ones for whoever measures, fresh ones for a training's search."""

from __future__ import annotations

import copy
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Protocol

from torch import nn

from widemargin.parts import part
from widemargin.rng import Rng
from widemargin.uncertainty.network import Network


class Renewal(Protocol):
    """How long a search that is part of a training keeps the members it has drawn."""

    def at(self, step: int) -> int:
        """The number of the set that is used at this step."""
        ...


@part
@dataclass(frozen=True)
class PerSearch:
    """All steps of a search climb the same function."""

    def at(self, step: int) -> int:
        return 0


@part
@dataclass(frozen=True)
class PerStep:
    """Every look at the members is at new ones: what is climbed is their expectation, with noise."""

    def at(self, step: int) -> int:
        return step


SAME = PerSearch()


class Drawn(Network):
    """In eval mode the members follow from `seed` alone and are shared by the whole batch: a point is judged by the
    mean over the same `draws` every time, whatever its company, and an attack climbs the very function that judges.

    In train mode every row has draws of its own, from torch's global generator, which the training loop lends.
    """

    draws: int

    def __init__(self, draws: int, renewal: Renewal, seed: int) -> None:
        super().__init__()
        if draws < 1:
            raise ValueError(f"draws must be a whole number of at least 1, got {draws}")
        self.draws = draws
        self.renewal = renewal
        self.seed = seed
        self._lent: int | None = None
        self._looks = 0

    def member_seed(self) -> int:
        """What the members of this call follow from, in eval mode."""
        if self._lent is None:
            return self.seed
        step, self._looks = self._looks, self._looks + 1
        return self._lent + self.renewal.at(step)


@contextmanager
def fresh_draws(network: nn.Module, rng: Rng) -> Iterator[None]:
    """Other members than those that are measured, while a training searches: it must not learn to please a few.

    Nothing of it outlives the context, so a training that is interrupted has nothing to remember.
    """
    drawn = [module for module in network.modules() if isinstance(module, Drawn)]
    for module in drawn:
        module._lent, module._looks = rng.generators[0].initial_seed(), 0
    try:
        yield
    finally:
        for module in drawn:
            module._lent = None


def redrawn(network: Network, draws: int, other: bool = False) -> Network:
    """A copy with so many draws; on request other ones, which have nothing to do with the network's own."""
    copied = copy.deepcopy(network)
    for module in copied.modules():
        if isinstance(module, Drawn):
            module.draws = draws
            module.seed += other
    return copied
