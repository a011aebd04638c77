"""Networks whose members are random draws: fixed ones in evaluation, fresh ones in the search of a training update."""

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
    """How often a search in training draws new members."""

    def at(self, step: int) -> int:
        """The number of the set of members at this step."""
        ...


@part
@dataclass(frozen=True)
class PerSearch:
    """All steps of a search use the same members."""

    def at(self, step: int) -> int:
        return 0


@part
@dataclass(frozen=True)
class PerStep:
    """Every step draws new members: a stochastic gradient of their expectation."""

    def at(self, step: int) -> int:
        return step


SAME = PerSearch()


class Drawn(Network):
    """In eval mode the members depend on `seed` alone and are the same for the whole batch: the prediction for a point
    is the mean over the same `draws` every time, in any batch, and an attack sees exactly that function.

    In train mode every row has its own draws, from torch's global generator, which the training loop seeds.
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
        """The seed of the members of this call, in eval mode."""
        if self._lent is None:
            return self.seed
        step, self._looks = self._looks, self._looks + 1
        return self._lent + self.renewal.at(step)


@contextmanager
def fresh_draws(network: nn.Module, rng: Rng) -> Iterator[None]:
    """Other members than those of evaluation, for the search of an update: training must not overfit to a few draws.

    Nothing of it outlives the context, so a checkpoint need not hold it.
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
    """A copy with so many draws; with `other`, independent of the network's own."""
    copied = copy.deepcopy(network)
    for module in copied.modules():
        if isinstance(module, Drawn):
            module.draws = draws
            module.seed += other
    return copied
