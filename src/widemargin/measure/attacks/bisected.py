"""How small can a ball become in which APGD still finds a wrong place?  A radius for every point, by bisection."""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial

import torch
from torch import Tensor

from widemargin.measure.attacks.apgd import check_counts
from widemargin.measure.attacks.attack import Classifier, Noise
from widemargin.measure.attacks.ddn import first_radius
from widemargin.measure.attacks.losses import Margin
from widemargin.measure.attacks.nearer import Nearest, Norm, farthest, inside, nearer
from widemargin.measure.attacks.rows import among, per_row, slope, wrong
from widemargin.perturb.balls import L1, OPEN, UNIT, Box, Linf
from widemargin.perturb.filling import time_to_fill
from widemargin.shapes import Encoded, Labels, PerSample, Points

# By which share the first ball is smaller than what is known; twice as much after every success.
_FIRST_GAP, _MOST_GAP = 0.05, 0.5
# Of its radius; a bracket this narrow is closed.
_CLOSED = 0.005
_DOUBLINGS = 10
# Beside the nearest place known, not across the whole ball.
_SHARE_OF_FIRST_STEP = 0.25
# As in APGD: momentum; when steps become shorter, and how sparse those in l1 are.
_NEW_SHARE = 0.75
_CHECKS = 6
_RISES_TO_KEEP_STEP = 0.75
_SPARSER, _AS_DENSE = 1.5, 0.95
_SHORTER, _SHORTEST = 1.5, 0.1
_HALVINGS = 24


@dataclass(frozen=True)
class BisectedAPGD:
    """APGD (Croce & Hein 2020a, 2021) in balls of each point's own, inside the nearest wrong place that is known.

    Where none is known balls grow until one is found.  What is found is brought to the boundary on the straight way;
    the next ball is well inside of it, or halfway between it and the largest ball in vain.  The first climb begins
    anywhere in its ball, the others at the nearest place known.  They are short, and in l1 the radius does not fall.
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

    def __call__(self, classify: Classifier, inputs: Points, labels: Labels, noise: Noise) -> Points:
        return self.nearer_than(Nearest(self.norm(0.0, self.box), inputs), classify, labels, noise)

    def nearer_than(self, known: Nearest, classify: Classifier, labels: Labels, noise: Noise) -> Points:
        """Only places nearer than those known, which stay as they are; the points themselves where there is none."""
        ball, inputs = self.norm(0.0, self.box), known.inputs
        found, noise = inputs.clone(), noise.of(self.name)
        now, climbs = self._begun(known, classify, labels), 0
        while len(now.row) > 0:
            drawn = noise.at(now.row).normal(*inputs.shape[1:], draw=climbs).to(inputs)
            delta, across = _climbed(self, classify, now, drawn, anywhere=climbs == 0)
            reached = inside(self.box, now.inputs + torch.where(per_row(across, delta), delta, 0.0))
            hit = across.nonzero()[:, 0]
            reached[hit] = nearer(classify, now.inputs[hit], now.labels[hit], reached[hit])
            distance = ball.norm(reached - now.inputs)
            closer = (distance > 0) & (distance < now.high)
            found[now.row[closer]] = reached[closer]
            now = now.narrowed(reached, torch.where(closer, distance, torch.inf))
            climbs += 1
        return found

    def _begun(self, known: Nearest, classify: Classifier, labels: Labels) -> _Bracket:
        ball, inputs = self.norm(0.0, self.box), known.inputs
        most, told = farthest(ball, inputs), known.distance < torch.inf
        _, height, gradient = slope(classify, inputs, partial(Margin(), labels=labels))
        radius = torch.where(
            told, (1 - _FIRST_GAP) * known.distance, first_radius(height, ball.dual_norm(gradient), most)
        )
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
            left=torch.where(told, self.trials, self.trials + _DOUBLINGS),
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


@dataclass(eq=False)
class _State:
    """Of the points that are still climbing, row for row; ways are in radii, so that all balls are one."""

    row: Tensor
    inputs: Points
    labels: Labels
    radius: PerSample
    down: Tensor
    """How far each feature may go in the box: down (<= 0) and up."""
    up: Tensor
    delta: Encoded
    before: Encoded
    gradient: Encoded
    loss: PerSample
    best: Encoded
    best_gradient: Encoded
    best_loss: PerSample
    step: PerSample
    rises: PerSample
    """How often the loss rose since the last check."""
    best_at_check: PerSample
    halved: Tensor
    moved: PerSample
    """l1: how many features the best place had moved at the last check."""


def _climbed(
    attack: BisectedAPGD, classify: Classifier, bracket: _Bracket, drawn: Encoded, anywhere: bool
) -> tuple[Encoded, Tensor]:
    """The way to where each point was found wrong in its ball, and whether it was."""
    now = _start(attack, bracket, drawn, anywhere)
    found, broken = torch.zeros_like(now.delta), torch.zeros_like(now.labels, dtype=torch.bool)
    period = max(attack.steps // _CHECKS, 2)
    for step in range(attack.steps + 1):
        if step > 0:
            now.before, now.delta = now.delta, _moved(attack.norm, now, first=step == 1)
        places = inside(attack.box, now.inputs + per_row(now.radius, now.delta) * now.delta)
        last_loss = now.loss
        logits, now.loss, now.gradient = slope(classify, places, partial(Margin(), labels=now.labels))
        now.rises = now.rises + (now.loss > last_loss)
        across = wrong(logits, now.labels)
        if bool(across.any()):
            found[now.row[across]], broken[now.row[across]] = now.delta[across], True
            now = among(now, ~across)
            if len(now.row) == 0:
                break
        _remember_best(now)
        if step > 0 and step % period == 0:
            _adapt(attack.norm, now, period)
    return found * per_row(bracket.radius, found), broken


def _start(attack: BisectedAPGD, bracket: _Bracket, drawn: Encoded, anywhere: bool) -> _State:
    radius = per_row(bracket.radius, drawn)
    down, up = (side.expand_as(drawn) / radius for side in attack.box.room(bracket.inputs))
    at_random = bracket.high.isinf() | anywhere
    surface = drawn / per_row(attack.norm(1.0, OPEN).norm(drawn).clamp_min(1e-12), drawn)
    begin = torch.where(per_row(at_random, drawn), surface, (bracket.nearest - bracket.inputs) / radius)
    delta = _projected(attack.norm, begin, down, up)
    never = torch.full_like(bracket.radius, -torch.inf)
    first_step = 1.0 if attack.norm is L1 else 2.0
    return _State(
        row=torch.arange(len(delta), device=delta.device),
        inputs=bracket.inputs,
        labels=bracket.labels,
        radius=bracket.radius,
        down=down,
        up=up,
        delta=delta,
        before=delta,
        gradient=torch.zeros_like(delta),
        loss=never,
        best=delta,
        best_gradient=torch.zeros_like(delta),
        best_loss=never,
        step=torch.where(at_random, first_step, _SHARE_OF_FIRST_STEP * first_step).to(never),
        rises=torch.zeros_like(never),
        best_at_check=never,
        # No step was too long yet, so the first check asks for rises alone.
        halved=torch.ones_like(at_random),
        moved=_features_moved(delta),
    )


def _moved(norm: Norm, now: _State, first: bool) -> Encoded:
    direction = _sparse_direction(now) if norm is L1 else norm(1.0, OPEN).steepest(now.gradient)
    ahead = _projected(norm, now.delta + per_row(now.step, direction) * direction, now.down, now.up)
    if first or norm is L1:
        return ahead
    mixed = now.delta + _NEW_SHARE * (ahead - now.delta) + (1 - _NEW_SHARE) * (now.delta - now.before)
    return _projected(norm, mixed, now.down, now.up)


def _projected(norm: Norm, delta: Encoded, down: Tensor, up: Tensor) -> Encoded:
    """The nearest place in the ball of radius 1 and in the rows' own rooms."""
    if norm is Linf:
        return delta.clamp(-1, 1).clamp(down, up)
    size = delta.flatten(1).abs()
    room = torch.where(delta > 0, up, -down).flatten(1)
    if norm is L1:
        less = _to_take_off(size, room)
        return (size - less).clamp_min(0).minimum(room).view_as(delta) * delta.sign()
    within = (size.minimum(room) ** 2).sum(1) <= 1
    grown = time_to_fill(size**2, room**2, torch.ones_like(size[:, 0]))[:, 0]
    shrink = torch.where(within, 1.0, grown.sqrt().clamp_max(1.0))
    return (delta * per_row(shrink, delta)).clamp(down, up)


def _to_take_off(size: Tensor, room: Tensor) -> Tensor:
    """l1, [B, 1]: the least that, taken off every feature, leaves a sum of 1; nothing where it is no more."""
    low, high = torch.zeros_like(size[:, :1]), size.amax(1, keepdim=True)
    high = torch.where(size.minimum(room).sum(1, keepdim=True) <= 1, low, high)
    for _ in range(_HALVINGS):
        middle = (low + high) / 2
        too_long = (size - middle).clamp_min(0).minimum(room).sum(1, keepdim=True) > 1
        low, high = torch.where(too_long, middle, low), torch.where(too_long, high, middle)
    return high


def _sparse_direction(now: _State) -> Encoded:
    """Equal steps along the features of largest slope: two thirds as many as the best place has moved (length 1)."""
    size = now.gradient.flatten(1).abs()
    place = size.shape[1] - (now.moved / _SPARSER).long().clamp_min(1)
    least = size.sort(1).values.gather(1, place[:, None])
    signs = now.gradient.flatten(1).sign() * (size >= least)
    return (signs / signs.abs().sum(1, keepdim=True).clamp_min(1)).view_as(now.gradient)


def _remember_best(now: _State) -> None:
    higher = now.loss > now.best_loss
    wide = per_row(higher, now.delta)
    now.best, now.best_loss = torch.where(wide, now.delta, now.best), torch.where(higher, now.loss, now.best_loss)
    now.best_gradient = torch.where(wide, now.gradient, now.best_gradient)


def _adapt(norm: Norm, now: _State, period: int) -> None:
    if norm is L1:
        moved = _features_moved(now.best)
        back = moved < _AS_DENSE * now.moved
        now.step = torch.where(back, 1.0, (now.step / _SHORTER).clamp_min(_SHORTEST))
        now.moved = moved
    else:
        back = (now.rises <= _RISES_TO_KEEP_STEP * period) | (~now.halved & (now.best_at_check >= now.best_loss))
        now.step = torch.where(back, now.step / 2, now.step)
        now.halved = back
    now.best_at_check, now.rises = now.best_loss, torch.zeros_like(now.rises)
    wide = per_row(back, now.delta)
    now.delta = torch.where(wide, now.best, now.delta)
    now.gradient = torch.where(wide, now.best_gradient, now.gradient)


def _features_moved(delta: Encoded) -> Tensor:
    return (delta.flatten(1) != 0).sum(1).to(delta)
