"""What is a training method?  Where to move a point, what to descend there, and how much each sample counts."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from functools import cache
from typing import Protocol

import torch
from jaxtyping import Float
from torch import Tensor

from widemargin.parts import part
from widemargin.perturb.objectives import Objective, Pair, perturbed_entropy, perturbed_log_entropy
from widemargin.perturb.search import InTrainMode, Moved, Perturbation, Search
from widemargin.shapes import Labels, PerSample, Points
from widemargin.uncertainty.network import Network

Ways = Float[Tensor, "networks rows"]
"""How far the search went for each sample; every network replicas weighs its own samples only."""


class Weight(Protocol):
    def __call__(self, ways: Ways) -> Ways:
        """A share for every sample, each row summing to 1."""
        ...


@part
@dataclass(frozen=True)
class UniformWeights:
    """Every sample counts the same."""

    def __call__(self, ways: Ways) -> Ways:
        return torch.full_like(ways, 1 / ways.shape[1])


@part
@dataclass(frozen=True)
class BoundaryWeights:
    """Samples with a short way count more: exp(-way / scale).

    All points that reach the boundary push it equally hard, so it settles where crowds balance; with this the points
    that lie next to it decide.  A sample where the network is exactly flat does not move and counts as near.
    """

    scale: float
    """In the units of the data."""

    def __post_init__(self) -> None:
        if not 0 < self.scale < math.inf:
            raise ValueError(f"BoundaryWeights.scale must be in (0, inf), got {self.scale}")

    def __call__(self, ways: Ways) -> Ways:
        return (-ways / self.scale).softmax(1)


@part
@dataclass(frozen=True)
class SelfScaledBoundaryWeights:
    """BoundaryWeights whose scale is found in the batch: so many times the way of its nearest samples.

    The boundary moves away from the nearest points as training goes on, and the scale with it; points measured in other
    units get the same weights.
    """

    times: float = 0.5
    nearest: float = 0.05
    """Which quantile of the ways stands for the nearest samples."""

    def __post_init__(self) -> None:
        if not 0 < self.times < math.inf:
            raise ValueError(f"SelfScaledBoundaryWeights.times must be in (0, inf), got {self.times}")
        if not 0 <= self.nearest <= 1:
            raise ValueError(f"SelfScaledBoundaryWeights.nearest must be in [0, 1], got {self.nearest}")

    def __call__(self, ways: Ways) -> Ways:
        scale = self.times * ways.quantile(self.nearest, 1, keepdim=True)
        return (-ways / scale.clamp_min(torch.finfo(ways.dtype).tiny)).softmax(1)


@part
@dataclass(frozen=True)
class Method:
    perturb: Perturbation
    criterion: Objective
    weight: Weight = UniformWeights()

    @property
    def takes_unlabelled(self) -> bool:
        """Are rows without a label of any use to it?  A perturbation of one's own must say so."""
        return self.criterion.takes_unlabelled and bool(getattr(self.perturb, "takes_unlabelled", False))

    def weights(self, way: PerSample, replicas: int = 1) -> PerSample:
        """How much each sample of a batch counts; for every network replicas they add up to 1."""
        return self.weight(way.unflatten(0, (replicas, -1))).flatten()

    def loss(
        self, network: Network, inputs: Points, labels: Labels, moved: Moved, weights: PerSample | None = None
    ) -> Tensor:
        """The number to descend.  Networks replicas each have their own mean; the sum keeps their gradients apart.

        The weights are those of this batch; if it is part of a larger one, give those that it has there.
        """
        encoded = network.encode(inputs)
        clean = cache(lambda: network.logits(encoded))
        perturbed = cache(lambda: network.logits(encoded + moved.delta))
        values = self.criterion(Pair(labels, clean, perturbed))
        weights = self.weights(moved.way, network.replicas) if weights is None else weights
        return (weights * values).sum() + network.penalty()


def as_published(method: Method) -> Method:
    """With the search as the paper's code makes it: in train mode, and climbing the entropy itself.

    Its TRADES is the recipe `trades_cross_entropy`.  What all this changes is measured by the study `corrections`.
    """
    search = _search_of(method)
    if any(term.flat_at_center for _, term in search.objective.terms):
        raise ValueError(f"TRADES as published is the recipe trades_cross_entropy, got a search of {search.objective}")
    return in_train_mode(climbing_entropy(method))


def in_train_mode(method: Method) -> Method:
    """Its search leaves the network in the mode in which it trains."""
    return replace(method, perturb=InTrainMode(_search_of(method)))


def climbing_entropy(method: Method) -> Method:
    """Its search climbs the entropy where it climbed its log: points on which the network is very confident stay."""
    search = _search_of(method)
    if search.objective != perturbed_log_entropy:
        return method
    return replace(method, perturb=replace(search, objective=perturbed_entropy))


def _search_of(method: Method) -> Search:
    if not isinstance(method.perturb, Search):
        raise ValueError(f"the method must perturb by one Search, got {method.perturb}")
    return method.perturb
