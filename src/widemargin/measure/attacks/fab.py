"""How near is the boundary?  From one linearised boundary to the next, biased towards the point itself (FAB)."""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial

import torch
from torch import Tensor
from torch.nn.functional import pad

from widemargin.measure.attacks.apgd import check_counts
from widemargin.measure.attacks.attack import Classifier, Noise
from widemargin.measure.attacks.losses import likeliest_others, towards
from widemargin.measure.attacks.rows import among, per_row, slope, wrong
from widemargin.perturb.balls import L1, Ball, Linf
from widemargin.perturb.filling import time_to_fill
from widemargin.shapes import Encoded, Labels, PerSample, Points

# Croce & Hein (2020b), section 3: the most weight of the point itself, overshoot, and the step back once across.
_MOST_BIAS, _OVERSHOOT, _BACK = 0.1, 1.05, 0.9
_BISECTIONS = 10


@dataclass(frozen=True)
class FAB:
    """Fast adaptive boundary attack (Croce & Hein 2020b), towards each of the likeliest other classes in turn.

    A point is done as soon as a wrong answer is found within the ball.
    """

    ball: Ball
    targets: int = 9
    steps: int = 100
    restarts: int = 1

    def __post_init__(self) -> None:
        check_counts(self, targets=self.targets, steps=self.steps, restarts=self.restarts)

    @property
    def name(self) -> str:
        return "fab-t" if self.targets == 9 else f"fab-t ({self.targets} targets)"

    def __call__(self, classify: Classifier, inputs: Points, labels: Labels, noise: Noise) -> Points:
        nearest = _searched(self, classify, inputs, labels, noise, enough=self.ball.radius)
        inside = nearest.distance <= self.ball.radius
        return torch.where(per_row(inside, inputs), inputs + nearest.delta, inputs)


@dataclass(frozen=True)
class ShortestFAB:
    """FAB that goes on, for the nearest wrong answer of all targets, then bisects the way to it (its final search).

    The ball gives norm and box; its radius only says how far off restarts after the first begin: at most half of it.
    """

    ball: Ball
    targets: int = 9
    steps: int = 100
    restarts: int = 1

    def __post_init__(self) -> None:
        check_counts(self, targets=self.targets, steps=self.steps, restarts=self.restarts)

    @property
    def name(self) -> str:
        return f"shortest fab-t ({self.targets} targets)"

    def __call__(self, classify: Classifier, inputs: Points, labels: Labels, noise: Noise) -> Points:
        nearest = _searched(self, classify, inputs, labels, noise, enough=-1.0)
        found = nearest.distance.isfinite().nonzero()[:, 0]
        shortest = inputs.clone()
        if len(found) > 0:
            shortest[found] = _bisected(classify, inputs[found], labels[found], nearest.delta[found])
        return shortest


@dataclass(eq=False)
class _Nearest:
    """The best so far, of every point."""

    delta: Encoded
    distance: PerSample


@dataclass(eq=False)
class _State:
    """Of the points that are still on their way, row for row."""

    row: Tensor
    inputs: Points
    labels: Labels
    targets: Labels
    delta: Encoded


def _searched(
    attack: FAB | ShortestFAB, classify: Classifier, inputs: Points, labels: Labels, noise: Noise, enough: float
) -> _Nearest:
    """All targets and restarts; a point leaves as soon as a distance is near `enough`."""
    with torch.no_grad():
        targets = likeliest_others(classify(inputs), labels, attack.targets)
    nearest = _Nearest(torch.zeros_like(inputs), torch.full_like(labels, torch.inf, dtype=inputs.dtype))
    for turn in range(attack.targets):
        for restart in range(attack.restarts):
            row = (nearest.distance > enough).nonzero()[:, 0]
            begin = torch.zeros_like(inputs[row])
            if restart > 0:
                own = noise.of(f"fab {turn} {restart}").at(row)
                begin = _elsewhere(attack.ball, own, inputs[row], nearest.distance[row])
            now = _State(row, inputs[row], labels[row], targets[row, turn], begin)
            for _ in range(attack.steps):
                if len(now.row) == 0:
                    break
                now = _stepped(attack.ball, classify, now, nearest, enough)
    return nearest


def _elsewhere(ball: Ball, noise: Noise, inputs: Points, distance: PerSample) -> Encoded:
    """Half as far as the radius or the nearest so far, in any direction."""
    shape = inputs.shape[1:]
    drawn = (2 * noise.uniform(*shape) - 1 if isinstance(ball, Linf) else noise.normal(*shape)).to(inputs)
    length = distance.clamp_max(ball.radius) / 2 / ball.norm(drawn).clamp_min(1e-12)
    return ball.box.clamp(drawn * per_row(length, drawn), inputs)


def _stepped(ball: Ball, classify: Classifier, now: _State, nearest: _Nearest, enough: float) -> _State:
    """Croce & Hein (2020b), Alg. 1: one step; then who is near enough leaves."""
    ahead = partial(towards, labels=now.labels, targets=now.targets)
    _, lead, gradient = slope(classify, now.inputs + now.delta, ahead)
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


def _onto_boundary(ball: Ball, now: _State, lead: PerSample, gradient: Encoded) -> tuple[Encoded, Encoded]:
    """The shortest ways to where the linearised lead is 0: from where the point is now, and from the input."""
    change = torch.cat([-lead, (gradient * now.delta).flatten(1).sum(1) - lead])
    starts = torch.cat([now.inputs + now.delta, now.inputs])
    weights = torch.cat([gradient, gradient])
    direction = weights.sign().mul_(per_row(change.sign(), weights))
    size, room = weights.flatten(1).abs(), ball.box.room_ahead(direction, starts)
    fill = _filled_l1 if isinstance(ball, L1) else partial(_filled, uniform=isinstance(ball, Linf))
    way = fill(size, room, change.abs()).view_as(weights) * direction
    from_here, from_input = way.chunk(2)
    return from_here, from_input


def _filled(size: Tensor, room: Tensor, change: PerSample, uniform: bool) -> Tensor:
    """min(t speed, room) with the smallest t at which the sum of size * that is `change`; all the room if none is.

    The speed is 1 for l-inf and `size` for l2.
    """
    if not uniform:
        # The square of a tiny slope underflows; only ratios matter.
        steepest = size.amax(1).clamp_min(torch.finfo(size.dtype).tiny)
        size, change = size / steepest[:, None], change / steepest
    # Of a feature without slope and without bounds, 0 times infinity; without slope nobody goes anywhere (see `sign`).
    most = (size * room).nan_to_num_(0.0, torch.inf)
    if uniform:
        return room.minimum(time_to_fill(size, most, change))
    return (time_to_fill(size * size, most, change) * size).minimum(room)


def _filled_l1(size: Tensor, room: Tensor, change: PerSample) -> Tensor:
    """The features of largest slope first, each as far as the box lets it."""
    size, order = size.sort(1, descending=True)
    room = room.gather(1, order)
    # Of a feature without slope and without bounds, 0 times infinity.
    reach = (size * room).nan_to_num(0.0)
    before = pad(reach.cumsum(1)[:, :-1], (1, 0))
    way = ((change[:, None] - before).clamp_min(0) / size.clamp_min(torch.finfo(size.dtype).tiny)).minimum(room)
    return torch.zeros_like(way).scatter(1, order, torch.where(size > 0, way, 0.0))


def _bisected(classify: Classifier, inputs: Points, labels: Labels, delta: Encoded) -> Points:
    """The boundary on the way from the input to what was found, from its wrong side."""
    right, far = torch.zeros_like(labels, dtype=delta.dtype), torch.ones_like(labels, dtype=delta.dtype)
    for _ in range(_BISECTIONS):
        middle = (right + far) / 2
        with torch.no_grad():
            across = wrong(classify(inputs + per_row(middle, delta) * delta), labels)
        right, far = torch.where(across, right, middle), torch.where(across, middle, far)
    return inputs + per_row(far, delta) * delta
