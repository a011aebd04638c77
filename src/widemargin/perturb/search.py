"""The one loop: from a clean point, climb an objective inside a ball."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import cache

import torch
from torch import Tensor

from widemargin.data.checks import check_known_labels, check_labels, check_points
from widemargin.parts import part
from widemargin.perturb.ascent import Ascent, Never, Progress
from widemargin.perturb.attack import Perturbed
from widemargin.perturb.balls import Ball, check_is_ball
from widemargin.perturb.frozen import frozen, without_parameter_gradients
from widemargin.perturb.gradient import gradient
from widemargin.perturb.objectives import Objective, Pair
from widemargin.rng import AnyRng
from widemargin.shapes import Encoded, MemberLogits, StepCounts
from widemargin.uncertainty.network import Network, check_not_probabilities, in_eval_mode


@part
@dataclass(frozen=True)
class Unperturbed:
    """Nothing moves."""

    @property
    def takes_unlabelled(self) -> bool:
        return True

    def __call__(self, network: Network, inputs: Tensor, labels: Tensor, rng: AnyRng) -> Perturbed:
        with torch.no_grad(), in_eval_mode(network):
            center = network.encode(inputs)
        delta = torch.zeros_like(center)
        return Perturbed(center, delta, delta.flatten(1)[:, 0])


@part
@dataclass(frozen=True)
class Search:
    """Climb in eval mode; parameters, buffers, modes and `.grad` are as before when it returns."""

    objective: Objective
    ball: Ball
    ascent: Ascent

    def __post_init__(self) -> None:
        check_is_ball(self.ball)
        moving = [term for _, term in self.objective.terms if term.moves]
        if not moving:
            raise ValueError(f"a search must climb something that changes as the point moves, got {self.objective}")
        if self.ascent.start.at_center and all(term.flat_at_center for term in moving):
            raise ValueError(
                f"{self.objective} has no gradient at the clean point: start the search elsewhere, with Gaussian() or "
                "InBall(), or add a little of what has one, such as 1e-4 * perturbed_log_entropy"
            )

    @property
    def takes_unlabelled(self) -> bool:
        """Only a search that asks for labels nowhere, nor for when to stop."""
        return self.objective.takes_unlabelled and self.ascent.until == Never()

    def __call__(
        self, network: Network, inputs: Tensor, labels: Tensor, rng: AnyRng, clean_at: Tensor | None = None
    ) -> Perturbed:
        """Where inputs are not the clean points, `clean_at` are."""
        # Each replica has a block of the batch, so no row may leave it.
        climb = _climb if network.replicas == 1 else climb_masked
        with frozen(network):
            return _search(self, climb, network, inputs, labels, rng, clean_at)


@part
@dataclass(frozen=True)
class InTrainMode:
    """The same search with the network left in the mode it is in: while training, train mode, as in the paper's code.

    Batch-norm's running statistics then absorb every point on the way, and a sample's path depends on its batch.
    """

    search: Search

    @property
    def takes_unlabelled(self) -> bool:
        return self.search.takes_unlabelled

    def __call__(self, network: Network, inputs: Tensor, labels: Tensor, rng: AnyRng) -> Perturbed:
        with without_parameter_gradients(network):
            return _search(self.search, climb_masked, network, inputs, labels, rng)


@dataclass(frozen=True)
class _Hill:
    """What a climb needs of its surroundings: one batch, its centres, and the network's view of them."""

    search: Search
    network: Network
    labels: Tensor
    center: Encoded
    clean: Callable[[], MemberLogits]

    def at(self, rows: Tensor) -> _Hill:
        return _Hill(
            self.search, self.network, self.labels[rows], self.center[rows], cache(lambda: self.clean()[:, rows])
        )

    def step(self, delta: Encoded, left: StepCounts, taken: int) -> tuple[Encoded, StepCounts]:
        """One step for every sample, and how many are left to each before it."""
        ball, ascent = self.search.ball, self.search.ascent
        with torch.enable_grad():
            delta = delta.detach().requires_grad_()
            perturbed = cache(lambda: self.network.logits(self.center + delta))
            if taken == 0:
                check = check_known_labels if self.search.takes_unlabelled else check_labels
                check(self.labels, len(delta), classes=perturbed().shape[-1])
                check_not_probabilities(perturbed())
            value = self.search.objective(Pair(self.labels, self.clean, perturbed))
            uphill = gradient(value, delta)
        delta = delta.detach()
        uphill = ball.box.inward(uphill, self.center + delta)
        moved = ascent.step(ball, Progress(delta, value.detach(), uphill, taken, ascent.steps.most))
        return ball.project(moved, self.center), ascent.until(left, perturbed().detach(), self.labels)


_Climb = Callable[[_Hill, Tensor, Tensor], Tensor]


def _search(
    search: Search,
    climb: _Climb,
    network: Network,
    inputs: Tensor,
    labels: Tensor,
    rng: AnyRng,
    clean_at: Tensor | None = None,
) -> Perturbed:
    check_points(inputs)
    rng = rng.by_block()
    with torch.no_grad():
        center = network.encode(inputs)
        search.ball.box.check(center)
        clean = cache(lambda: _without_gradient(network, center if clean_at is None else network.encode(clean_at)))
        left = search.ascent.steps.draw(len(center), rng).to(center.device)
        delta = search.ball.project(search.ascent.start(search.ball, center, rng), center)
        delta = climb(_Hill(search, network, labels, center, clean), delta, left)
        kept = search.ascent.fraction(delta, rng)
        return Perturbed(center + kept, kept, search.ball.norm(delta))


def _climb(hill: _Hill, delta: Encoded, left: StepCounts) -> Encoded:
    """Only samples that still move are in the batch: one that has finished costs nothing more."""
    delta, moving, climbing = delta.clone(), torch.arange(len(delta), device=delta.device), hill
    for taken in range(hill.search.ascent.steps.most):
        going = left > 0
        if not bool(going.all()):
            moving, left = moving[going], left[going]
            climbing = hill.at(moving)
        if len(moving) == 0:
            break
        here = delta[moving]
        moved, left = climbing.step(here, left, taken)
        delta[moving] = torch.where((left > 0).view(-1, *[1] * (here.ndim - 1)), moved, here)
        left = left - 1
    return delta


def climb_masked(hill: _Hill, delta: Encoded, left: StepCounts) -> Encoded:
    """The slow, obvious twin: all rows are computed every time, and those that have finished stay put."""
    for taken in range(hill.search.ascent.steps.most):
        moved, left = hill.step(delta, left, taken)
        delta = torch.where((left > 0).view(-1, *[1] * (delta.ndim - 1)), moved, delta)
        left = left - 1
    return delta


def _without_gradient(network: Network, center: Encoded) -> MemberLogits:
    with torch.no_grad():
        return network.logits(center)
