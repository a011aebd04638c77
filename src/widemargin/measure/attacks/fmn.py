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
from widemargin.measure.attacks.rows import at_once, per_row, slope, wrong
from widemargin.perturb.balls import OPEN, UNIT, Ball, Box, Linf
from widemargin.shapes import Labels, Points

_MOST_CANDIDATES = 20
# Small batches cost as much as larger ones: so many rows of several targets are moved together, from every start.
_ROWS_SIDE_BY_SIDE = 256
# By how much the start is to be behind the boundary of the linear model.
_BEYOND = 1.02
# Of how many features a drawn start is off: few, as the shortest ways in l1 are.
_FEATURES_OFF = 3
# What steps and changes of the radius begin with, and by how much they become smaller: anywhere, and near the boundary.
_FIRST_STEP, _FIRST_AGAIN, _LESS = 1.0, 0.3, 0.01


@dataclass(frozen=True)
class FMN:
    """Fast minimum norm (Pintor et al. 2021, Alg. 1).

    Three departures.  It starts where the boundary would be if the classifier were linear at the point.  Steps are
    shares of the radius, and the radius grows even before anything is found: so it needs no scale and no box.
    With several starts, the others are as far away in directions that are drawn, and a last descent begins at the
    nearest place that all of them found, with shorter steps: where the boundary has corners, they take long to find.
    """

    norm: Norm
    box: Box = UNIT
    steps: int = 100
    gamma: float = 0.05
    """By which share the radius shrinks or grows at first."""
    targets: int = 0
    """0: towards whichever class leads.  Else once towards each of so many classes, by their distance if the classifier
    were linear at the point."""
    starts: int = 1
    """From how many places towards each class."""

    def __post_init__(self) -> None:
        check_steps("FMN", self.steps, self.gamma)
        if self.targets < 0:
            raise ValueError(f"FMN.targets must be a whole number of at least 0, got {self.targets}")
        if self.starts < 1:
            raise ValueError(f"FMN.starts must be a whole number of at least 1, got {self.starts}")

    def __repr__(self) -> str:
        numbers = f"steps={self.steps}, gamma={self.gamma}, targets={self.targets}, starts={self.starts}"
        return f"FMN(norm={self.norm.__name__}, box={self.box!r}, {numbers})"

    @property
    def name(self) -> str:
        return "FMN-T" if self.targets else "FMN"

    def __call__(self, classify: Classifier, inputs: Points, labels: Labels, noise: Noise) -> Points:
        ball = self.norm(0.0, self.box)
        seen, everyone = Nearest(ball, inputs), torch.arange(len(inputs), device=inputs.device)
        # Towards itself: towards whichever class leads.
        rivals = labels[:, None]
        if self.targets:
            rivals = nearest_classes(classify, inputs, labels, ball)[:, : self.targets]
        turns = [(start, rival) for start in range(self.starts) for rival in rivals.unbind(1)]
        together = at_once(len(inputs), len(turns), self.starts * _ROWS_SIDE_BY_SIDE)
        for first in range(0, len(turns), together):
            starts, some = zip(*turns[first : first + together], strict=True)
            row, rival = everyone.repeat(len(some)), torch.cat(some)
            height = partial(_ahead, labels=labels[row], rivals=rival)
            drawn = torch.cat([_drawn(inputs, noise, start) for start in starts])
            begin = self._begun(classify, inputs[row], height, drawn)
            found = self._descended(classify, inputs[row], labels[row], height, noise.at(row), begin)
            for which in everyone.new_tensor(range(len(row))).split(len(inputs)):
                seen.see(found.places[which], found.distance[which] < torch.inf)
        near = (seen.distance < torch.inf).nonzero()[:, 0]
        if self.starts > 1 and len(near) > 0:
            start, own = inputs[near], labels[near]
            begin, height = seen.places[near] - start, partial(_ahead, labels=own, rivals=own)
            found = self._descended(classify, start, own, height, noise.at(near), begin, _FIRST_AGAIN)
            nearer = found.distance < seen.distance[near]
            seen.places[near[nearer]] = found.places[nearer]
        return seen.places

    def _begun(self, classify: Classifier, inputs: Points, height: Callable[[Tensor], Tensor], drawn: Points) -> Points:
        """Where the boundary of the linear model is, or as far away in a direction that is drawn."""
        ball = self.norm(0.0, self.box)
        _, heights, gradient = slope(classify, inputs, height)
        # Where the gradient all but vanishes the linear model has no boundary within reach.
        delta = shortest_way(gradient, _BEYOND * -heights, ball, inputs).nan_to_num(0, 0, 0)
        far = ball.norm(drawn)
        elsewhere = self.box.clamp(drawn * per_row(ball.norm(delta) / far.clamp_min(1e-12), drawn), inputs)
        return torch.where(per_row(far > 0, delta), elsewhere, delta)

    def _descended(
        self,
        classify: Classifier,
        inputs: Points,
        labels: Labels,
        height: Callable[[Tensor], Tensor],
        noise: Noise,
        delta: Points,
        share: float = _FIRST_STEP,
    ) -> Nearest:
        """From these places by steps that begin with a share of the radius."""
        ball, unit = self.norm(0.0, self.box), self.norm(1.0, OPEN)
        seen = Nearest(ball, inputs)
        # As long in the linf norm as one feature: a step of share 1 crosses the ball in any norm.
        length = inputs[0].numel() ** 0.5 if self.norm is Linf else 1.0
        most = farthest(ball, inputs)
        radius = ball.norm(delta)
        found = torch.zeros_like(radius, dtype=torch.bool)
        for step in range(self.steps):
            done = step / self.steps
            answers, heights, gradient = slope(classify, inputs + delta, height)
            across = wrong(answers, labels)
            seen.see(inputs + delta, across)
            found |= across
            gamma = fade(share * self.gamma, share * 0.001, done)
            estimate = ball.norm(delta) + heights.abs() / ball.dual_norm(gradient)
            estimate = torch.where(found | ~estimate.isfinite(), 0.0, estimate)
            radius = torch.where(across, radius * (1 - gamma), (radius * (1 + gamma)).maximum(estimate))
            radius = torch.where(radius > 0, radius, 1.0).minimum(most)
            uphill = direction(self.box.inward(gradient, inputs + delta), noise, step) * length
            scale = per_row(radius, delta)
            delta = unit.project(delta / scale + fade(share, share * _LESS, done) * uphill, inputs) * scale
            delta = self.box.clamp(delta, inputs)
        return seen


def _drawn(inputs: Points, noise: Noise, start: int) -> Points:
    """Which way a start is off; 0 for the first."""
    if start == 0:
        return torch.zeros_like(inputs)
    shape, of_start = inputs.shape[1:], noise.of("elsewhere")
    way = of_start.normal(*shape, draw=start).to(inputs)
    few = of_start.uniform(*shape, draw=-start).to(inputs) < _FEATURES_OFF / inputs[0].numel()
    return way * (few | ~per_row(few.flatten(1).any(1), few))


def _ahead(answers: Tensor, labels: Labels, rivals: Labels) -> Tensor:
    """How far a rival is ahead of the label; one that is the label stands for the best other class."""
    if bool((rivals == labels).all()):
        return -margin(answers, labels)
    return towards(answers, labels, rivals)


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
