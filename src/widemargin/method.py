"""What is a training method?  Where to move a point, what to descend there, and how much each sample counts."""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import cache
from typing import Protocol

import torch
from jaxtyping import Float
from torch import Tensor

from widemargin.perturb.objectives import Objective, Pair
from widemargin.perturb.search import Perturbation
from widemargin.shapes import Encoded, Labels, Points
from widemargin.uncertainty.network import Network

Distances = Float[Tensor, "networks rows"]
"""How far the search moved each sample; every network abreast weighs its own samples only."""


class Weight(Protocol):
    def __call__(self, distances: Distances) -> Distances:
        """A share for every sample, each row summing to 1."""
        ...


@dataclass(frozen=True)
class Even:
    """Every sample counts the same."""

    def __call__(self, distances: Distances) -> Distances:
        return torch.full_like(distances, 1 / distances.shape[1])


@dataclass(frozen=True)
class Nearness:
    """Samples that were moved less count more: exp(-distance / scale).

    All points that reach the boundary push it equally hard, so it settles where crowds balance; with this the points
    that lie next to it decide.
    """

    scale: float

    def __post_init__(self) -> None:
        if not 0 < self.scale < math.inf:
            raise ValueError(f"Nearness.scale must be in (0, inf), got {self.scale}")

    def __call__(self, distances: Distances) -> Distances:
        return (-distances / self.scale).softmax(1)


@dataclass(frozen=True)
class Method:
    perturb: Perturbation
    criterion: Objective
    weight: Weight = Even()

    def loss(self, network: Network, inputs: Points, labels: Labels, delta: Encoded) -> Tensor:
        """The number to descend.  Networks abreast each have their own mean; the sum keeps their gradients apart."""
        encoded = network.encode(inputs)
        pair = Pair(labels, cache(lambda: network.logits(encoded)), cache(lambda: network.logits(encoded + delta)))
        values = self.criterion(pair).unflatten(0, (network.abreast, -1))
        shares = self.weight(self.perturb.distance(delta).unflatten(0, (network.abreast, -1)))
        return (shares * values).sum() + network.penalty()  # type: ignore[no-any-return]
