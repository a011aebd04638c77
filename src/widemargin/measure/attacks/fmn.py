"""The shortest way in any norm by gradient steps in a ball whose radius follows the boundary."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial

import torch
from torch import Tensor

from widemargin.measure.attacks.attack import Classifier, Noise
from widemargin.measure.attacks.ddn import check_steps, direction
from widemargin.measure.attacks.losses import margin, towards
from widemargin.measure.attacks.nearer import Nearest, Norm, fade, farthest
from widemargin.measure.attacks.planes import shortest_way
from widemargin.measure.attacks.rows import per_row, slope, wrong
from widemargin.perturb.balls import OPEN, UNIT, Ball, Box, Linf
from widemargin.shapes import Labels, Points

_MOST_CANDIDATES = 20
# Small batches cost as much as larger ones: so many rows of several targets are moved together.
_ROWS_SIDE_BY_SIDE = 256
# By how much the start is to be behind the boundary of the linear model.
_BEYOND = 1.02


@dataclass(frozen=True)
class FMN:
    """Fast minimum norm (Pintor et al. 2021, Alg. 1).

    Three departures.  It starts where the boundary would be if the classifier were linear at the point.  Steps are
    shares of the radius, and the radius grows even before anything is found: so it needs no scale and no box.
    """

    norm: Norm
    box: Box = UNIT
    steps: int = 100
    gamma: float = 0.05
    """By which share the radius shrinks or grows at first."""
    targets: int = 0
    """0: towards whichever class leads.  Else once towards each of so many classes, by their distance if the classifier
    were linear at the point."""

    def __post_init__(self) -> None:
        check_steps("FMN", self.steps, self.gamma)
        if self.targets < 0:
            raise ValueError(f"FMN.targets must be a whole number of at least 0, got {self.targets}")

    def __repr__(self) -> str:
        numbers = f"steps={self.steps}, gamma={self.gamma}, targets={self.targets}"
        return f"FMN(norm={self.norm.__name__}, box={self.box!r}, {numbers})"

    @property
    def name(self) -> str:
        return "FMN-T" if self.targets else "FMN"

    def __call__(self, classify: Classifier, inputs: Points, labels: Labels, noise: Noise) -> Points:
        ball = self.norm(0.0, self.box)
        if self.targets == 0:
            return self._descended(classify, inputs, labels, lambda answers: -margin(answers, labels), noise).places
        rivals = nearest_classes(classify, inputs, labels, ball)[:, : self.targets]
        seen, everyone = Nearest(ball, inputs), torch.arange(len(inputs), device=inputs.device)
        for some in rivals.split(max(_ROWS_SIDE_BY_SIDE // max(len(inputs), 1), 1), dim=1):
            row, rival = everyone.repeat(some.shape[1]), some.T.reshape(-1)
            height = partial(towards, labels=labels[row], targets=rival)
            found = self._descended(classify, inputs[row], labels[row], height, noise.at(row))
            for which in torch.arange(len(row), device=row.device).split(len(inputs)):
                seen.see(found.places[which], found.distance[which] < torch.inf)
        return seen.places

    def _descended(
        self, classify: Classifier, inputs: Points, labels: Labels, height: Callable[[Tensor], Tensor], noise: Noise
    ) -> Nearest:
        ball, unit = self.norm(0.0, self.box), self.norm(1.0, OPEN)
        seen = Nearest(ball, inputs)
        # As long in the linf norm as one feature: a step of share 1 crosses the ball in any norm.
        length = inputs[0].numel() ** 0.5 if self.norm is Linf else 1.0
        most = farthest(ball, inputs)
        _, heights, gradient = slope(classify, inputs, height)
        # Where the gradient all but vanishes the linear model has no boundary within reach.
        delta = shortest_way(gradient, _BEYOND * -heights, ball, inputs).nan_to_num(0, 0, 0)
        radius = ball.norm(delta)
        found = torch.zeros_like(radius, dtype=torch.bool)
        for step in range(self.steps):
            done = step / self.steps
            answers, heights, gradient = slope(classify, inputs + delta, height)
            across = wrong(answers, labels)
            seen.see(inputs + delta, across)
            found |= across
            gamma = fade(self.gamma, 0.001, done)
            estimate = ball.norm(delta) + heights.abs() / ball.dual_norm(gradient)
            estimate = torch.where(found | ~estimate.isfinite(), 0.0, estimate)
            radius = torch.where(across, radius * (1 - gamma), (radius * (1 + gamma)).maximum(estimate))
            radius = torch.where(radius > 0, radius, 1.0).minimum(most)
            uphill = direction(self.box.inward(gradient, inputs + delta), noise, step) * length
            scale = per_row(radius, delta)
            delta = unit.project(delta / scale + fade(1.0, 0.01, done) * uphill, inputs) * scale
            delta = self.box.clamp(delta, inputs)
        return seen


def nearest_classes(classify: Classifier, inputs: Points, labels: Labels, ball: Ball) -> Tensor:
    """[B, classes - 1]: the other classes, by the distance to them if the classifier were linear at the point.

    A backward pass each, so of very many classes only those with the highest logits.
    """
    with torch.enable_grad():
        places = inputs.detach().requires_grad_()
        answers = classify(places)
        behind = answers.gather(1, labels[:, None]) - answers
        others = behind.detach().scatter(1, labels[:, None], torch.inf).argsort(1)[:, :-1][:, :_MOST_CANDIDATES]
        distances = []
        for rival in others.unbind(1):
            needed = behind.gather(1, rival[:, None])[:, 0]
            (gradient,) = torch.autograd.grad(-needed.sum(), places, retain_graph=True)
            way = shortest_way(gradient, needed.detach(), ball, inputs)
            reached = (gradient * way).flatten(1).sum(1) >= 0.999 * needed.detach()
            distances.append(ball.norm(way).masked_fill(~reached, torch.inf))
    return others.gather(1, torch.stack(distances, 1).argsort(dim=1, stable=True))
