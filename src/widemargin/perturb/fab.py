"""FAB: from one linearised boundary to the next, biased towards the point itself."""

from __future__ import annotations

from dataclasses import dataclass, field

import torch
from torch import Tensor

from widemargin.perturb.attack import Classifier, Perturbed, check_counts, perturbed
from widemargin.perturb.balls import Ball
from widemargin.perturb.lead import Lead, before_softmax
from widemargin.perturb.losses import likeliest_others
from widemargin.perturb.rows import EFFICIENT_BATCH, Underway, among, per_row, turns_at_once, wrong
from widemargin.rng import AnyRng, RowRng
from widemargin.shapes import Encoded, Labels, PerSample, Points

# Croce & Hein (2020b), section 3: the most weight of the point itself, overshoot, and the step back once across.
_MOST_BIAS, _OVERSHOOT, _BACK = 0.1, 1.05, 0.9
_BISECTIONS = 10
_JUST_INSIDE = 1 - 1e-6


@dataclass(frozen=True)
class _Walk:
    """What both have in common."""

    ball: Ball
    targets: int = 9
    steps: int = 100
    restarts: int = 1
    rows_at_once: int = field(default=EFFICIENT_BATCH, repr=False, compare=False)
    """How many rows the targets of a few points may make together, side by side.  It changes nothing but the time."""

    def __post_init__(self) -> None:
        check_counts(self, targets=self.targets, steps=self.steps, restarts=self.restarts)


@dataclass(frozen=True)
class FAB(_Walk):
    """Fast adaptive boundary attack (Croce & Hein 2020b), towards each of the likeliest other classes in turn.

    A point is done as soon as a wrong answer is found within the ball.  Of what is found outside of it, the final
    search of section 3 is made after every target.
    """

    @property
    def name(self) -> str:
        return "fab-t" if self.targets == 9 else f"fab-t ({self.targets} targets)"

    def __call__(self, model: Classifier, inputs: Points, labels: Labels, rng: AnyRng) -> Perturbed:
        nearest = _searched(self, model, inputs, labels, rng.by_row(len(inputs)), enough=self.ball.radius)
        inside = nearest.distance <= self.ball.radius
        return perturbed(self.ball, inputs, torch.where(per_row(inside, inputs), inputs + nearest.delta, inputs))


@dataclass(frozen=True)
class ShortestFAB(_Walk):
    """FAB that goes on, for the nearest wrong answer of all targets, then bisects the way to it (its final search).

    The ball gives norm and box; its radius only says how far off restarts after the first begin: at most half of it.
    """

    @property
    def name(self) -> str:
        return f"shortest fab-t ({self.targets} targets)"

    def __call__(self, model: Classifier, inputs: Points, labels: Labels, rng: AnyRng) -> Perturbed:
        classify = before_softmax(model)
        nearest = _searched(self, classify, inputs, labels, rng.by_row(len(inputs)), enough=-1.0)
        broken = nearest.distance.isfinite().nonzero()[:, 0]
        shortest = inputs.clone()
        if len(broken) > 0:
            shortest[broken] = _bisected(classify, inputs[broken], labels[broken], nearest.delta[broken])
        return perturbed(self.ball, inputs, shortest)


@dataclass(eq=False)
class _Nearest:
    """The best so far, of every point."""

    delta: Encoded
    distance: PerSample

    @staticmethod
    def nothing(inputs: Points) -> _Nearest:
        return _Nearest(torch.zeros_like(inputs), torch.full((len(inputs),), torch.inf).to(inputs))

    def take(self, row: Tensor, candidates: _Nearest, times: int, enough: float) -> None:
        """What is nearer of what these rows found, `times` in turn: the first that is near `enough`, else the nearest.

        The first and not the nearest, so that it does not matter how many were searched side by side.
        """
        every, column = candidates.distance.view(times, -1), torch.arange(len(row), device=row.device)
        turn = torch.where(every <= enough, -1.0, every).argmin(0)
        distance, delta = every[turn, column], candidates.delta.unflatten(0, (times, -1))[turn, column]
        better = distance < self.distance[row]
        self.distance[row[better]], self.delta[row[better]] = distance[better], delta[better]


def _searched(
    attack: _Walk, classify: Classifier, inputs: Points, labels: Labels, rng: RowRng, enough: float
) -> _Nearest:
    """All restarts and targets; a point leaves as soon as a distance is near `enough`."""
    with torch.no_grad():
        targets = likeliest_others(classify(inputs), labels, attack.targets)
    nearest = _Nearest.nothing(inputs)
    for restart in range(attack.restarts):
        before, turn = nearest.distance.clone(), 0
        while turn < attack.targets:
            row = (nearest.distance > enough).nonzero()[:, 0]
            if len(row) == 0:
                return nearest
            count = turns_at_once(len(row), turn, attack.targets, attack.rows_at_once)
            turns = range(turn, turn + count)
            rows = row.repeat(len(turns))
            begin = torch.zeros_like(inputs[rows])
            if restart > 0:
                drawn = [rng.of(f"fab {of_turn} {restart}").at(row) for of_turn in turns]
                begin = torch.cat([_elsewhere(attack.ball, draws, inputs[row], before[row]) for draws in drawn])
            now = Underway(
                torch.arange(len(rows), device=rows.device),
                inputs[rows],
                labels[rows],
                targets[row, turns.start : turns.stop].T.flatten(),
                begin,
            )
            candidates = _walked(attack, classify, now, enough)
            nearest.take(row, candidates, len(turns), enough)
            turn = turns.stop
    return nearest


def _walked(attack: _Walk, classify: Classifier, now: Underway, enough: float) -> _Nearest:
    """What each finds on its way to its target."""
    start, nearest = now, _Nearest.nothing(now.inputs)
    for _ in range(attack.steps):
        if len(now.row) == 0:
            break
        now = _stepped(attack.ball, classify, now, nearest, enough)
    _draw_in(attack.ball, classify, start, nearest, enough)
    return nearest


def _draw_in(ball: Ball, classify: Classifier, start: Underway, nearest: _Nearest, enough: float) -> None:
    """The final search, of one place: is it wrong already where it is near `enough`, on the way to what was found?"""
    outside = ((nearest.distance > enough) & nearest.distance.isfinite()).nonzero()[:, 0]
    if enough <= 0 or len(outside) == 0:
        return
    delta = nearest.delta[outside]
    delta = delta * per_row(_JUST_INSIDE * enough / nearest.distance[outside], delta)
    with torch.inference_mode():
        across = wrong(classify(start.inputs[outside] + delta), start.labels[outside])
    broken = outside[across]
    nearest.delta[broken], nearest.distance[broken] = delta[across], ball.norm(delta[across])


def _elsewhere(ball: Ball, rng: RowRng, inputs: Points, distance: PerSample) -> Encoded:
    """Half as far as the radius or the nearest so far, in any direction."""
    drawn = ball.draw_direction(rng, inputs)
    length = distance.clamp_max(ball.radius) / 2 / ball.norm(drawn).clamp_min(1e-12)
    return ball.box.clamp(drawn * per_row(length, drawn), inputs)


def _stepped(ball: Ball, classify: Classifier, now: Underway, nearest: _Nearest, enough: float) -> Underway:
    """Croce & Hein (2020b), Alg. 1: one step; then who is near enough leaves."""
    _, lead, gradient = Lead(now.labels, now.targets).slope(classify, now.inputs + now.delta)
    from_here, from_input = _onto_boundary(ball, now, lead, gradient)
    here, there = (ball.norm(way).clamp_min(1e-8) for way in (from_here, from_input))
    bias = per_row((here / (here + there)).clamp_max(_MOST_BIAS), gradient)
    delta = torch.add(now.delta, from_here, alpha=_OVERSHOOT).lerp_(from_input.mul_(_OVERSHOOT), bias)
    now.delta = ball.box.clamp(delta, now.inputs)
    with torch.inference_mode():
        across = wrong(classify(now.inputs + now.delta), now.labels)
    distance = ball.norm(now.delta).masked_fill_(~across, torch.inf)
    nearer = (distance < nearest.distance[now.row]).nonzero()[:, 0]
    row = now.row[nearer]
    nearest.delta[row], nearest.distance[row] = now.delta[nearer], distance[nearer]
    now.delta *= per_row(torch.where(across, _BACK, 1.0), delta)
    near = nearest.distance[now.row] <= enough
    return among(now, ~near) if bool(near.any()) else now


def _onto_boundary(ball: Ball, now: Underway, lead: PerSample, gradient: Encoded) -> tuple[Encoded, Encoded]:
    """The shortest ways to where the linearised lead is 0: from where the point is now, and from the input."""
    change = torch.cat([-lead, (gradient * now.delta).flatten(1).sum(1) - lead])
    starts = torch.cat([now.inputs + now.delta, now.inputs])
    uphill = torch.cat([gradient, gradient]).mul_(per_row(change.sign(), gradient))
    from_here, from_input = ball.to_plane(uphill, change.abs(), starts).chunk(2)
    return from_here, from_input


def _bisected(classify: Classifier, inputs: Points, labels: Labels, delta: Encoded) -> Points:
    """The boundary on the way from the input to what was found, from its wrong side."""
    right, far = torch.zeros_like(labels, dtype=delta.dtype), torch.ones_like(labels, dtype=delta.dtype)
    for _ in range(_BISECTIONS):
        middle = (right + far) / 2
        with torch.no_grad():
            across = wrong(classify(inputs + per_row(middle, delta) * delta), labels)
        right, far = torch.where(across, right, middle), torch.where(across, middle, far)
    return inputs + per_row(far, delta) * delta
