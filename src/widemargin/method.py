"""A training method: where to move a point, what to descend there, and how much each sample counts."""

from __future__ import annotations

import math
from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, replace
from functools import cache
from typing import Any, Protocol

import torch
from jaxtyping import Float
from torch import Tensor, nn

from widemargin.data.checks import check_known_labels, check_labels
from widemargin.data.coerce import as_labels, as_points, no_labels
from widemargin.parts import part
from widemargin.perturb.attack import Perturbation, Perturbed
from widemargin.perturb.boundary_distance import WithBoundaryDistance
from widemargin.perturb.categories import CategoryChanges, WithCategoryChanges
from widemargin.perturb.objectives import Objective, Pair, perturbed_entropy, perturbed_log_entropy
from widemargin.perturb.search import InTrainMode, Search, Unperturbed
from widemargin.rng import Rng
from widemargin.shapes import Labels, MemberLogits, PerSample, Points
from widemargin.uncertainty.drawn import Drawn, fresh_draws
from widemargin.uncertainty.network import Network, check_lets_gradients_through
from widemargin.uncertainty.wrap import as_network, device_of, dtype_of

PerNetwork = Float[Tensor, "networks rows"]
"""How far the search went for each sample; every replica weighs its samples only."""


class Weight(Protocol):
    def __call__(self, distances: PerNetwork) -> PerNetwork:
        """A weight for every sample, each row summing to 1."""
        ...


@part
@dataclass(frozen=True)
class UniformWeights:
    """Every sample counts the same."""

    def __call__(self, distances: PerNetwork) -> PerNetwork:
        return torch.full_like(distances, 1 / distances.shape[1])


@part
@dataclass(frozen=True)
class BoundaryWeights:
    """Samples near the boundary count more: exp(-distance / scale).

    All points that reach the boundary push it equally hard, so it settles where crowds balance; with this the points
    that lie next to it decide.  A sample where the network is exactly flat does not move and counts as near.
    """

    scale: float
    """In the units of the data."""

    def __post_init__(self) -> None:
        if not 0 < self.scale < math.inf:
            raise ValueError(f"BoundaryWeights.scale must be in (0, inf), got {self.scale}")

    def __call__(self, distances: PerNetwork) -> PerNetwork:
        return (-distances / self.scale).softmax(1)


@part
@dataclass(frozen=True)
class SelfScaledBoundaryWeights:
    """BoundaryWeights whose scale follows from the batch: so many times the distance of its nearest samples.

    The boundary moves away from the nearest points as training goes on, and the scale with it; points measured in other
    units get the same weights.
    """

    times: float = 0.5
    nearest: float = 0.05
    """Which quantile of the distances stands for the nearest samples."""

    def __post_init__(self) -> None:
        if not 0 < self.times < math.inf:
            raise ValueError(f"SelfScaledBoundaryWeights.times must be in (0, inf), got {self.times}")
        if not 0 <= self.nearest <= 1:
            raise ValueError(f"SelfScaledBoundaryWeights.nearest must be in [0, 1], got {self.nearest}")

    def __call__(self, distances: PerNetwork) -> PerNetwork:
        scale = self.times * distances.quantile(self.nearest, 1, keepdim=True)
        return (-distances / scale.clamp_min(torch.finfo(distances.dtype).tiny)).softmax(1)


@part
@dataclass(frozen=True)
class Method:
    perturb: Perturbation
    criterion: Objective
    weight: Weight = UniformWeights()
    class_weights: tuple[float, ...] = ()
    """How much samples of each class count, beside that; all the same if empty."""

    def __post_init__(self) -> None:
        if any(not 0 < weight < math.inf for weight in self.class_weights):
            raise ValueError(f"Method.class_weights must be in (0, inf), got {self.class_weights}")

    @property
    def takes_unlabelled(self) -> bool:
        """Are rows without a label of any use to it?  A user's perturbation must say so."""
        return self.criterion.takes_unlabelled and bool(getattr(self.perturb, "takes_unlabelled", False))

    def weights(self, distance: PerSample, replicas: int = 1) -> PerSample:
        """How much each sample of a batch counts; for every replica they add up to 1."""
        return self.weight(distance.unflatten(0, (replicas, -1))).flatten()

    def loss(
        self, model: nn.Module, inputs: Any, labels: Any = None, rng: Rng | torch.Generator | None = None
    ) -> Tensor:
        """The number to descend, a mean over the batch with its gradient, for any training loop.

        The search moves the points in eval mode and leaves no gradients; the loss is then that of the model in the mode
        in which it is.  Inputs are brought to the model's device and precision.  Labels may be left out where the
        method needs none.  Without an `rng`, chance follows torch.manual_seed, as dropout's does, and goes on from call
        to call; so does a given generator.
        """
        network = as_network(model)
        points = as_points(inputs).to(device_of(network), dtype_of(network))
        known = no_labels(points) if labels is None else as_labels(labels, len(points)).to(points.device)
        if labels is None and not self.takes_unlabelled:
            raise ValueError(
                f"this method needs labels, since it descends {self.criterion}: give them, or take one that needs "
                "none, such as wm.udp_consistency or wm.vat"
            )
        rng = rng if isinstance(rng, Rng) else _next(rng, points.device)
        with _fresh_members(network, rng):
            moved = self.perturb(network, points, known, rng)
        loss = self._loss_at(network, points, known, moved, None, self._checked)
        if torch.is_grad_enabled() and any(parameter.requires_grad for parameter in network.parameters()):
            check_lets_gradients_through(loss, "weights")
        return loss

    def loss_at(
        self, network: Network, inputs: Points, labels: Labels, moved: Perturbed, weights: PerSample | None = None
    ) -> Tensor:
        """The loss of points that were moved already.  Each replica has its mean; the sum keeps their gradients
        apart.

        The weights are those of this batch; if it is part of a larger one, give those that it has there.
        """
        return self._loss_at(network, inputs, labels, moved, weights, lambda logits, labels: logits)

    def _loss_at(
        self,
        network: Network,
        inputs: Points,
        labels: Labels,
        moved: Perturbed,
        weights: PerSample | None,
        checked: Callable[[MemberLogits, Labels], MemberLogits],
    ) -> Tensor:
        encoded = network.encode(inputs)
        clean = cache(lambda: checked(network.logits(encoded), labels))
        perturbed = cache(lambda: checked(network.logits(encoded + moved.delta), labels))
        values = self.criterion(Pair(labels, clean, perturbed))
        weights = self.weights(moved.distance, network.replicas) if weights is None else weights
        return (self._of_classes(labels, weights) * values).sum() + network.penalty()

    def _checked(self, logits: MemberLogits, labels: Labels) -> MemberLogits:
        """Our own loop looks at all labels once, and anyone else's at those of each batch."""
        check = check_known_labels if self.criterion.takes_unlabelled else check_labels
        check(labels, logits.shape[1], classes=logits.shape[-1])
        return logits

    def _of_classes(self, labels: Labels, weights: PerSample) -> PerSample:
        """Rows without a label count as they are."""
        if not self.class_weights:
            return weights
        # A label of -1 is the last entry.
        by_label = torch.tensor([*self.class_weights, 1.0], dtype=weights.dtype, device=weights.device)
        return weights * by_label[labels]


def balanced(labels: Labels, classes: int) -> tuple[float, ...]:
    """Class weights by which all classes count the same in the loss, and samples 1 on average."""
    counts = labels[labels >= 0].bincount(minlength=classes)
    if int(counts.min()) == 0:
        raise ValueError("balanced class weights need a training row of every class, got none of some")
    return tuple((counts.sum() / (classes * counts)).tolist())


def check_method(method: object) -> None:
    if isinstance(method, Tensor):
        raise ValueError("the method must be a Method, got a tensor: inputs and labels are a pair, (x, y)")
    if not isinstance(method, Method):
        name = getattr(method, "__name__", repr(method))
        raise ValueError(f"the method must be a Method, got {name}: call a recipe, such as wm.udp(wm.Linf(.1), .01, 9)")


def _next(generator: torch.Generator | None, device: torch.device) -> Rng:
    """Draws that no other call has, on the inputs' device wherever the generator is."""
    at = "cpu" if generator is None else generator.device
    seed = int(torch.randint(2**62, (), generator=generator, device=at))
    return Rng.seeded(seed, purpose="loss", device=device)


def _fresh_members(network: Network, rng: Rng) -> AbstractContextManager[None]:
    """For a search: if members are drawn, other ones than any other call has."""
    if not any(isinstance(module, Drawn) for module in network.modules()):
        return nullcontext()
    seed = int(rng.integers(0, 2**62, len(rng.generators))[0])
    return fresh_draws(network, Rng.seeded(seed, purpose="members"))


def as_published(method: Method) -> Method:
    """With the search as the paper's code makes it: in train mode, and climbing the entropy itself.

    Its TRADES is the recipe `trades_cross_entropy`.  What all this changes is measured by the study `corrections`.
    """
    search = _search_of(method)
    if any(term.flat_at_center for _, term in search.objective.terms):
        raise ValueError(f"TRADES as published is the recipe trades_cross_entropy, got a search of {search.objective}")
    return in_train_mode(climbing_entropy(method))


def with_category_changes(method: Method, changes: CategoryChanges | None) -> Method:
    """Its search changes categories, too; a method that moves nothing stays as it is."""
    if changes is None or isinstance(method.perturb, Unperturbed):
        return method
    if not isinstance(method.perturb, Search | WithBoundaryDistance):
        raise ValueError(f"categories are changed before a Search, got a method that perturbs by {method.perturb}")
    return replace(method, perturb=WithCategoryChanges(method.perturb, changes))


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
