"""Bisected APGD: the smallest ball in which APGD still finds a misclassified point, a radius for each."""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial

import torch
from torch import Tensor

from widemargin.perturb.apgd import Climb, Start, climbed
from widemargin.perturb.attack import Classifier, Perturbed, check_counts, perturbed
from widemargin.perturb.balls import OPEN, UNIT, Box, Norm
from widemargin.perturb.ddn import first_radius
from widemargin.perturb.gradient import slope
from widemargin.perturb.line_search import Nearest, farthest, inside, line_search
from widemargin.perturb.objectives import height, margin_loss
from widemargin.perturb.rows import among, per_row
from widemargin.rng import AnyRng, RowRng
from widemargin.shapes import Encoded, Labels, PerSample, Points

# By which share the first ball is smaller than what is known; twice as much after every success.
_FIRST_GAP, _MOST_GAP = 0.05, 0.5
# Of its radius; a bracket this narrow is closed.
_CLOSED = 0.005
_DOUBLINGS = 10
# Beside the nearest place known, not across the whole ball.
_SHARE_OF_FIRST_STEP = 0.25


@dataclass(frozen=True)
class BisectedAPGD:
    """APGD (Croce & Hein 2020a, 2021) in balls of each point's own, inside the nearest wrong place that is known.

    Where none is known balls grow until one is found.  What is found is brought to the boundary on the straight way;
    the next ball is well inside of it, or halfway between it and the largest ball in vain.  The first climb begins
    anywhere in its ball, the others at the nearest place known.  They are
    short, and in l1 the radius does not fall.
    """

    norm: Norm
    box: Box = UNIT
    steps: int = 20
    trials: int = 6
    """In how many balls, once a wrong place is known."""

    name = "bisected APGD"

    def __post_init__(self) -> None:
        check_counts(self, steps=self.steps, trials=self.trials)

    def __repr__(self) -> str:
        return f"BisectedAPGD(norm={self.norm.__name__}, box={self.box!r}, steps={self.steps}, trials={self.trials})"

    def __call__(self, model: Classifier, inputs: Points, labels: Labels, rng: AnyRng) -> Perturbed:
        ball = self.norm(0.0, self.box)
        points = self.nearer_than(Nearest(ball, inputs), model, labels, rng.by_row(len(inputs)))
        return perturbed(ball, inputs, points)

    def nearer_than(self, known: Nearest, classify: Classifier, labels: Labels, rng: RowRng) -> Points:
        """Only places nearer than those known, which stay as they are; the points themselves where there is none."""
        ball, inputs = self.norm(0.0, self.box), known.inputs
        points, rng = inputs.clone(), rng.of(self.name)
        climb = Climb(classify, margin_loss, ball, self.steps)
        now, climbs = self._begun(known, classify, labels), 0
        while len(now.row) > 0:
            drawn = self.box.free(rng.at(now.row).normal(*inputs.shape[1:], draw=climbs).to(inputs))
            start = _start(self.norm, now, drawn, anywhere=climbs == 0)
            delta, across = climbed(climb, start, now.inputs, now.labels, now.labels)
            reached = inside(self.box, now.inputs + torch.where(per_row(across, delta), delta, 0.0))
            hit = across.nonzero()[:, 0]
            if len(hit) > 0:
                reached[hit] = line_search(classify, now.inputs[hit], now.labels[hit], reached[hit])
            distance = ball.norm(reached - now.inputs)
            closer = (distance > 0) & (distance < now.high)
            points[now.row[closer]] = reached[closer]
            now = now.narrowed(reached, torch.where(closer, distance, torch.inf))
            climbs += 1
        return points

    def _begun(self, known: Nearest, classify: Classifier, labels: Labels) -> _Bracket:
        ball, inputs = self.norm(0.0, self.box), known.inputs
        most, is_known = farthest(ball, inputs), known.distance < torch.inf
        _, lead, gradient = slope(classify, inputs, partial(height, margin_loss, labels=labels))
        climb = ball.dual_norm(self.box.free(gradient))
        radius = torch.where(is_known, (1 - _FIRST_GAP) * known.distance, first_radius(lead, climb, most))
        return _Bracket(
            row=torch.arange(len(inputs), device=inputs.device),
            inputs=inputs,
            labels=labels,
            nearest=known.places,
            low=torch.zeros_like(radius),
            high=known.distance,
            most=most,
            radius=radius,
            gap=torch.full_like(radius, _FIRST_GAP),
            left=torch.where(is_known, self.trials, self.trials + _DOUBLINGS),
        )


@dataclass(eq=False)
class _Bracket:
    """Of the points whose smallest ball is not known yet, row for row."""

    row: Tensor
    inputs: Points
    labels: Labels
    nearest: Points
    """The nearest wrong place known, in the distance `high`, which is infinite if there is none."""
    low: PerSample
    """The largest radius in vain."""
    high: PerSample
    most: PerSample
    """The largest radius there is."""
    radius: PerSample
    gap: PerSample
    left: Tensor
    """How many balls may still be tried."""

    def narrowed(self, reached: Points, distance: PerSample) -> _Bracket:
        """After a climb that reached a nearer wrong place, or none if its distance is infinite; who is done leaves."""
        hit, known = distance < torch.inf, self.high < torch.inf
        self.nearest = torch.where(per_row(hit, reached), reached, self.nearest)
        self.low = torch.where(hit, self.low.minimum(distance), self.radius)
        self.high = self.high.minimum(distance)
        self.gap = torch.where(hit & known, (2 * self.gap).clamp_max(_MOST_GAP), self.gap)
        inward = torch.where(self.low > 0, (self.low + self.high) / 2, (1 - self.gap) * self.high)
        self.radius = torch.where(self.high < torch.inf, inward, (2 * self.radius).minimum(self.most))
        self.left = self.left - 1
        # Where nothing is known the difference is infinite.
        closed = (self.high - self.low <= _CLOSED * self.high) & (self.high < torch.inf)
        nowhere = self.high.isinf() & (self.low >= self.most)
        return among(self, (self.left > 0) & ~closed & ~nowhere)


def _start(norm: Norm, bracket: _Bracket, drawn: Encoded, anywhere: bool) -> Start:
    at_random = bracket.high.isinf() | anywhere
    surface = drawn * per_row(bracket.radius / norm(1.0, OPEN).norm(drawn).clamp_min(1e-12), drawn)
    begin = torch.where(per_row(at_random, drawn), surface, bracket.nearest - bracket.inputs)
    share = torch.where(at_random, 1.0, _SHARE_OF_FIRST_STEP).to(drawn)
    return Start(begin, bracket.radius, share)
