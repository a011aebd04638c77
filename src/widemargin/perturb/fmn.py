"""FMN: minimum-norm attack in any norm, by gradient steps in a ball whose radius follows the boundary."""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial

import torch
from torch import Tensor

from widemargin.perturb.attack import Classifier, Perturbed, perturbed
from widemargin.perturb.balls import OPEN, UNIT, Ball, Box, Norm
from widemargin.perturb.ddn import check_steps, direction
from widemargin.perturb.gradient import gradient, slope
from widemargin.perturb.line_search import Nearest, fade, farthest
from widemargin.perturb.losses import margin, towards
from widemargin.perturb.rows import among, at_once, per_row, wrong
from widemargin.rng import AnyRng, RowRng
from widemargin.shapes import Labels, PerSample, Points

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
    With several starts, the others are as far away in directions that are drawn; half of those left are given up
    after an eighth, a quarter and half of the steps.  A last descent begins at the nearest place that they found, with
    shorter steps: where the boundary has corners, they take long to find.
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

    def __call__(self, model: Classifier, inputs: Points, labels: Labels, rng: AnyRng) -> Perturbed:
        ball, draws = self.norm(0.0, self.box), rng.by_row(len(inputs))
        seen, everyone = Nearest(ball, inputs), torch.arange(len(inputs), device=inputs.device)
        # Towards itself: towards whichever class leads.
        rivals = labels[:, None]
        if self.targets:
            rivals = nearest_classes(model, inputs, labels, ball)[:, : self.targets]
        for some in rivals.split(at_once(len(inputs), rivals.shape[1], _ROWS_SIDE_BY_SIDE), dim=1):
            row, rival = (part.repeat(self.starts) for part in (everyone.repeat(some.shape[1]), some.T.reshape(-1)))
            drawn = [_drawn(inputs, draws, start).repeat(some.shape[1], *_ones(inputs)) for start in range(self.starts)]
            begun = self._begun(model, inputs[row], labels[row], rival, draws.at(row), torch.cat(drawn))
            ends = self._descended(model, begun, self.starts)
            for which in torch.arange(len(ends.labels), device=row.device).split(len(inputs)):
                seen.see(ends.places[which], ends.distance[which] < torch.inf)
        near = (seen.distance < torch.inf).nonzero()[:, 0]
        if self.starts > 1 and len(near) > 0:
            start, correct, places = inputs[near], labels[near], seen.places[near]
            begun = _Descent.at(ball, start, correct, correct, draws.at(near), places - start)
            ends = self._descended(model, begun, share=_FIRST_AGAIN)
            nearer = ends.distance < seen.distance[near]
            seen.places[near[nearer]] = ends.places[nearer]
        return perturbed(ball, inputs, seen.places)

    def _begun(
        self, classify: Classifier, inputs: Points, labels: Labels, rivals: Labels, rng: RowRng, drawn: Points
    ) -> _Descent:
        """Where the boundary of the linear model is, or as far away in a direction that is drawn."""
        ball = self.norm(0.0, self.box)
        _, heights, uphill = slope(classify, inputs, partial(_ahead, labels=labels, rivals=rivals))
        # Where the gradient all but vanishes the linear model has no boundary within reach.
        delta = ball.to_plane(uphill, _BEYOND * -heights, inputs).nan_to_num(0, 0, 0)
        far = ball.norm(drawn)
        elsewhere = self.box.clamp(drawn * per_row(ball.norm(delta) / far.clamp_min(1e-12), drawn), inputs)
        return _Descent.at(ball, inputs, labels, rivals, rng, torch.where(per_row(far > 0, delta), elsewhere, delta))

    def _descended(self, classify: Classifier, now: _Descent, starts: int = 1, share: float = _FIRST_STEP) -> _Descent:
        """By steps that begin with a share of the radius; of all starts the nearest go on, and fewer and fewer."""
        ball, unit = self.norm(0.0, self.box), self.norm(1.0, OPEN)
        # A step of share 1 crosses the ball in any norm.
        length = unit.l2_reach(now.inputs)
        for step in range(self.steps):
            if starts > 1 and step in (self.steps // 8, self.steps // 4, self.steps // 2):
                now, starts = now.nearest(starts, (starts + 1) // 2), (starts + 1) // 2
            done = step / self.steps
            height = partial(_ahead, labels=now.labels, rivals=now.rivals)
            answers, heights, slopes = slope(classify, now.inputs + now.delta, height)
            across = wrong(answers, now.labels)
            now.see(ball, across)
            gamma = fade(share * self.gamma, share * 0.001, done)
            estimate = ball.norm(now.delta) + heights.abs() / ball.dual_norm(slopes)
            estimate = torch.where((now.distance < torch.inf) | ~estimate.isfinite(), 0.0, estimate)
            radius = torch.where(across, now.radius * (1 - gamma), (now.radius * (1 + gamma)).maximum(estimate))
            now.radius = torch.where(radius > 0, radius, 1.0).minimum(now.most)
            uphill = direction(self.box.inward(slopes, now.inputs + now.delta), now.rng, step) * length
            scale = per_row(now.radius, now.delta)
            delta = unit.project(now.delta / scale + fade(share, share * _LESS, done) * uphill, now.inputs) * scale
            now.delta = self.box.clamp(delta, now.inputs)
        return now


@dataclass(eq=False)
class _Descent:
    """Of every row, where it is and the nearest wrong place it has seen; one start after the other."""

    inputs: Points
    labels: Labels
    rivals: Labels
    rng: RowRng
    delta: Points
    radius: PerSample
    most: PerSample
    """The largest radius there is."""
    places: Points
    distance: PerSample
    """Infinite where nothing was found yet."""

    @staticmethod
    def at(ball: Ball, inputs: Points, labels: Labels, rivals: Labels, rng: RowRng, delta: Points) -> _Descent:
        radius = ball.norm(delta)
        never = torch.full_like(radius, torch.inf)
        return _Descent(inputs, labels, rivals, rng, delta, radius, farthest(ball, inputs), inputs, never)

    def see(self, ball: Ball, across: Tensor) -> None:
        places = self.inputs + self.delta
        distance = ball.norm(places - self.inputs)
        better = across & (distance < self.distance)
        self.distance = torch.where(better, distance, self.distance)
        self.places = torch.where(per_row(better, places), places, self.places)

    def nearest(self, starts: int, keep: int) -> _Descent:
        """Of each point and rival only the starts that found the nearest places, in their order."""
        order = self.distance.view(starts, -1).argsort(dim=0, stable=True)[:keep].sort(0).values
        which = order * order.shape[1] + torch.arange(order.shape[1], device=order.device)
        return among(self, which.flatten())


def _drawn(inputs: Points, rng: RowRng, start: int) -> Points:
    """Which way a start is off; 0 for the first."""
    if start == 0:
        return torch.zeros_like(inputs)
    shape, of_start = inputs.shape[1:], rng.of("elsewhere")
    direction_off = of_start.normal(*shape, draw=start).to(inputs)
    few = of_start.uniform(*shape, draw=-start).to(inputs) < _FEATURES_OFF / inputs[0].numel()
    return direction_off * (few | ~per_row(few.flatten(1).any(1), few))


def _ones(inputs: Points) -> tuple[int, ...]:
    return (1,) * (inputs.ndim - 1)


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
            uphill = gradient(-needed, places, retain_graph=True)
            step = ball.to_plane(uphill, needed.detach(), inputs)
            reached = (uphill * step).flatten(1).sum(1) >= 0.999 * needed.detach()
            distances.append(ball.norm(step).masked_fill(~reached, torch.inf))
    return others.gather(1, torch.stack(distances, 1).argsort(dim=1, stable=True))
