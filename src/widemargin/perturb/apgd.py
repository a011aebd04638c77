"""AutoPGD: projected gradient ascent in a ball that adapts its step size."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property, partial

import torch
from torch import Tensor

from widemargin.perturb.attack import Classifier, Perturbed, check_counts, perturbed
from widemargin.perturb.balls import OPEN, Ball
from widemargin.perturb.gradient import slope
from widemargin.perturb.losses import likeliest_others
from widemargin.perturb.objectives import Objective, dlr_loss, height, margin_loss, perturbed_loss, targeted_dlr_loss
from widemargin.perturb.rows import EFFICIENT_BATCH, Underway, among, per_row, turns_at_once, wrong
from widemargin.rng import AnyRng, RowRng
from widemargin.shapes import Encoded, Labels, PerSample, Points

# In an attack's name, as the field has them.
_NAMES = {perturbed_loss: "ce", dlr_loss: "dlr", margin_loss: "margin"}
# Croce & Hein (2020a), sections 3.1 to 3.3: momentum, and when steps are halved.
_NEW_SHARE = 0.75
_RISES_TO_KEEP_STEP = 0.75
_FIRST_CHECK, _LEAST_CHECK, _CHECK_LESS = 0.22, 0.06, 0.03
# Croce & Hein (2021), section 4: sparse steps, and radii that come down to the ball's.
_SPARSE_CHECK = 0.04
_SPARSER, _AS_DENSE = 1.5, 0.95
_SHORTER, _SHORTEST = 1.5, 0.1
_RADII, _SHARES_OF_STEPS = (3.0, 2.0, 1.0), (0.3, 0.3)


@dataclass(frozen=True)
class APGD:
    """AutoPGD (Croce & Hein 2020a, Alg. 1); in a sparse norm, l1, with sparse steps and falling radii (same, 2021)."""

    ball: Ball
    loss: Objective = perturbed_loss
    steps: int = 100
    restarts: int = 1

    def __post_init__(self) -> None:
        check_counts(self, steps=self.steps, restarts=self.restarts)

    @property
    def name(self) -> str:
        return f"apgd-{_NAMES.get(self.loss, self.loss)}"

    def __call__(self, model: Classifier, inputs: Points, labels: Labels, rng: AnyRng) -> Perturbed:
        rows = rng.by_row(len(inputs))
        starts = [(labels, rows.of(f"apgd {restart}")) for restart in range(self.restarts)]
        climb = Climb(model, self.loss, self.ball, self.steps)
        return perturbed(self.ball, inputs, _broken_in_turn(climb, inputs, labels, starts, rows_at_once=1))


@dataclass(frozen=True)
class TargetedAPGD:
    """AutoPGD on the targeted DLR loss, towards each of the likeliest other classes in turn."""

    ball: Ball
    targets: int = 9
    steps: int = 100
    rows_at_once: int = field(default=EFFICIENT_BATCH, repr=False, compare=False)
    """How many rows the targets of a few points may make together, side by side.  It changes nothing but the time."""

    def __post_init__(self) -> None:
        check_counts(self, targets=self.targets, steps=self.steps)

    @property
    def name(self) -> str:
        return "apgd-t" if self.targets == standard_targets(self.ball) else f"apgd-t ({self.targets} targets)"

    def __call__(self, model: Classifier, inputs: Points, labels: Labels, rng: AnyRng) -> Perturbed:
        with torch.no_grad():
            targets = likeliest_others(model(inputs), labels, self.targets)
        rows = rng.by_row(len(inputs))
        starts = [(of_turn, rows.of(f"apgd-t {turn}")) for turn, of_turn in enumerate(targets.unbind(1))]
        climb = Climb(model, targeted_dlr_loss, self.ball, self.steps)
        return perturbed(self.ball, inputs, _broken_in_turn(climb, inputs, labels, starts, self.rows_at_once))


def standard_targets(ball: Ball) -> int:
    """How many the standard's targeted APGD has."""
    return 5 if ball.sparse else 9


@dataclass(frozen=True, eq=False)
class Climb:
    """What the climbs of an attack have in common.  Of the ball norm and box count: its radius is each start's own."""

    classify: Classifier
    loss: Objective
    ball: Ball
    steps: int
    counts: bool = True
    """Whether a wrong answer here breaks a point, which then leaves."""

    @cached_property
    def whole_ball(self) -> Ball:
        """Without its box; made once, since every step needs it."""
        return replace(self.ball, box=OPEN)


@dataclass(eq=False)
class _State(Underway):
    before: Encoded
    gradient: Encoded
    loss: Tensor
    best: Encoded
    best_gradient: Encoded
    best_loss: Tensor
    step: Tensor
    rises: Tensor
    """How often the loss rose since the last check."""
    best_at_check: Tensor
    halved: Tensor
    still: Tensor
    """The last step led nowhere."""
    radius: Tensor
    moved: Tensor
    """In a sparse norm: how many features the best point had moved at the last check."""


def _broken_in_turn(
    climb: Climb, inputs: Points, labels: Labels, starts: Sequence[tuple[Labels, RowRng]], rows_at_once: int
) -> Points:
    """One climb after the other, each of the points that stand until then; where these are few, several side by side.

    Of the climbs that break a point the first in turn counts, so that the place does not depend on who stands besides.
    """
    points = inputs.clone()
    left = torch.arange(len(inputs), device=inputs.device)
    phases = _phases(climb)
    turn = 0
    while turn < len(starts) and len(left) > 0:
        count = turns_at_once(len(left), turn, len(starts), rows_at_once)
        together = starts[turn : turn + count]
        delta = torch.cat([phases[0].ball.draw_surface(rng.at(left), inputs[left]) for _, rng in together])
        targets, rows = torch.cat([of_start[left] for of_start, _ in together]), left.repeat(count)
        for phase in phases:
            radius = torch.full_like(rows, phase.ball.radius, dtype=inputs.dtype)
            delta, broken = climbed(phase, Start(delta, radius), inputs[rows], labels[rows], targets)
        delta, broken = delta.unflatten(0, (count, -1)), broken.unflatten(0, (count, -1))
        some = broken.any(0).nonzero()[:, 0]
        first = broken[:, some].to(torch.uint8).argmax(0)
        points[left[some]] = inputs[left[some]] + delta[first, some]
        left = left[~broken.any(0)]
        turn += count
    return points


def _phases(climb: Climb) -> list[Climb]:
    """In a sparse norm from three times the radius down to it: what is found on the way is outside the ball."""
    if not climb.ball.sparse:
        return [climb]
    steps = [math.ceil(share * climb.steps) for share in _SHARES_OF_STEPS]
    steps.append(max(climb.steps - sum(steps), 1))
    return [
        replace(climb, ball=replace(climb.ball, radius=factor * climb.ball.radius), steps=count, counts=factor == 1)
        for factor, count in zip(_RADII, steps, strict=True)
    ]


@dataclass(frozen=True, eq=False)
class Start:
    """Where each climb begins (still to be cut by ball and box), in what ball, with which share of the first step."""

    delta: Encoded
    radius: PerSample
    share_of_step: PerSample | float = 1.0


def climbed(climb: Climb, start: Start, inputs: Points, labels: Labels, targets: Labels) -> tuple[Encoded, Tensor]:
    """Where each point was found wrong, or else where its loss was highest; and whether it was found wrong."""
    now = _begun(climb.ball, start, inputs, labels, targets)
    places, broken = now.delta.clone(), torch.zeros_like(labels, dtype=torch.bool)
    checks = _checks(climb)
    for step in range(climb.steps + 1):
        if len(now.row) == 0:
            break
        if step > 0:
            new = _moved(climb, now, new_share=1.0 if step == 1 else _NEW_SHARE)
            # Truths as numbers are added up several times faster than truths are joined.
            same = torch.ne(new, now.delta, out=torch.empty_like(new)).flatten(1).sum(1) == 0
            # Twice in a row no momentum and no slope that leads anywhere, at the best point: nothing will change.
            settled = same & now.still & (now.loss >= now.best_loss)
            now.before, now.delta, now.still = now.delta, new, same
            if not climb.ball.sparse and bool(settled.any()):
                places[now.row[settled]] = now.best[settled]
                now = among(now, ~settled)
        if len(now.row) == 0:
            break
        last_loss = now.loss
        loss = partial(height, climb.loss, labels=now.labels, targets=now.targets)
        logits, now.loss, uphill = slope(climb.classify, now.inputs + now.delta, loss)
        now.gradient = climb.ball.box.free(uphill)
        if step > 0:
            now.rises = now.rises + (now.loss > last_loss)
        if climb.counts:
            out = wrong(logits, now.labels)
            if bool(out.any()):
                places[now.row[out]], broken[now.row[out]] = now.delta[out], True
                now = among(now, ~out)
        _remember_best(now)
        if step in checks:
            _adapt(climb.ball, now, checks[step])
    places[now.row] = now.best
    return places, broken


def _begun(ball: Ball, start: Start, inputs: Points, labels: Labels, targets: Labels) -> _State:
    delta = ball.project(start.delta, inputs, start.radius)
    nothing, never = torch.zeros_like(delta), torch.full_like(labels, -torch.inf, dtype=delta.dtype)
    no = torch.zeros_like(labels, dtype=torch.bool)
    return _State(
        row=torch.arange(len(labels), device=labels.device),
        inputs=inputs,
        labels=labels,
        targets=targets,
        delta=delta,
        before=delta,
        gradient=nothing,
        loss=never,
        best=delta.clone(),
        best_gradient=nothing.clone(),
        best_loss=never.clone(),
        step=(1 if ball.sparse else 2) * start.radius * start.share_of_step,
        rises=torch.zeros_like(labels),
        best_at_check=never.clone(),
        # No step was too long yet, so the first check asks for rises alone.
        halved=~no,
        still=no,
        radius=start.radius,
        moved=_features_moved(delta),
    )


def _moved(climb: Climb, now: _State, new_share: float) -> Encoded:
    ball, step = climb.ball, per_row(now.step, now.delta)
    if ball.sparse:
        return ball.project(now.delta + step * _sparse_direction(now), now.inputs, now.radius)
    ahead = _within(climb, now.delta + step * ball.steepest(now.gradient), now)
    if new_share == 1.0:
        return ahead
    mixed = now.delta.lerp(ahead, new_share).add_(now.delta - now.before, alpha=1 - new_share)
    return _within(climb, mixed, now)


def _within(climb: Climb, delta: Encoded, now: _State) -> Encoded:
    """Into the box, then straight towards the input into the ball.

    In l2 that is not the nearest place, which takes longer to find and is no better to climb from.
    """
    clamped = climb.ball.box.clamp(delta, now.inputs)
    return climb.whole_ball.project(clamped, now.inputs, now.radius)


def _sparse_direction(now: _State) -> Encoded:
    """Equal steps along the features of largest slope: two thirds as many as the best point has moved (length 1)."""
    size = now.gradient.flatten(1).abs()
    place = size.shape[1] - (now.moved / _SPARSER).long().clamp_min(1)
    least = size.sort(1).values.gather(1, place[:, None])
    signs = now.gradient.flatten(1).sign() * (size >= least)
    return (signs / signs.abs().sum(1, keepdim=True).clamp_min(1)).view_as(now.gradient)


def _remember_best(now: _State) -> None:
    higher = (now.loss > now.best_loss).nonzero()[:, 0]
    now.best[higher], now.best_gradient[higher] = now.delta[higher], now.gradient[higher]
    now.best_loss[higher] = now.loss[higher]


def _checks(climb: Climb) -> dict[int, int]:
    """After which steps the step size is looked at, and how many steps after the last time."""
    if climb.ball.sparse:
        every = max(int(_SPARSE_CHECK * climb.steps), 1)
        return dict.fromkeys(range(every, climb.steps + 1, every), every)
    period, least, less = (max(int(share * climb.steps), 1) for share in (_FIRST_CHECK, _LEAST_CHECK, _CHECK_LESS))
    periods, step = {}, period
    while step <= climb.steps:
        periods[step] = period
        period = max(period - less, least)
        step += period
    return periods


def _adapt(ball: Ball, now: _State, period: int) -> None:
    if ball.sparse:
        moved = _features_moved(now.best)
        back = moved < _AS_DENSE * now.moved
        shorter = (now.step / _SHORTER).maximum(_SHORTEST * now.radius)
        now.step = torch.where(back, now.radius, shorter)
        now.moved = moved
    else:
        back = (now.rises <= _RISES_TO_KEEP_STEP * period) | (~now.halved & (now.best_at_check >= now.best_loss))
        now.step = torch.where(back, now.step / 2, now.step)
        now.halved = back
    now.best_at_check, now.rises = now.best_loss.clone(), torch.zeros_like(now.rises)
    restart = back.nonzero()[:, 0]
    now.delta[restart], now.gradient[restart] = now.best[restart], now.best_gradient[restart]
    now.still = now.still & ~back


def _features_moved(delta: Encoded) -> Tensor:
    return (delta.flatten(1) != 0).sum(1).to(delta)
