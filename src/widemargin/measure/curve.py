"""The robustness curve: robust accuracy at many radii, by bisection at the price of a few."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from widemargin.data.dataset import Examples, row_numbers
from widemargin.fast.accelerate import accelerated
from widemargin.measure.accuracy import BATCH_SIZE, iter_batches
from widemargin.measure.distance import NO_ATTACK, class_count
from widemargin.measure.interval import Proportion, wilson
from widemargin.perturb.attack import Attack
from widemargin.perturb.balls import Ball
from widemargin.perturb.frozen import frozen
from widemargin.perturb.line_search import line_search
from widemargin.perturb.rows import wrong
from widemargin.perturb.suites import standard
from widemargin.rng import RowRng
from widemargin.shapes import PerSample
from widemargin.uncertainty.network import Network, check_alone
from widemargin.uncertainty.predictive import is_correct

Attacks = Callable[[Ball], Sequence[Attack]]
"""Which attacks are made in a ball: a point is broken there if any of them finds a place."""
# A place on the ball's surface may be measured a rounding error outside it.
_ROUNDING = 1e-5


class Refuted(ValueError):
    """A certificate does not hold: a wrong place was found inside of what it covers."""


@dataclass(frozen=True, eq=False)
class Progress:
    """All that is known so far, of every point, as plain tensors in main memory: hand it back in to go on from here."""

    holds: Int[Tensor, " B"]
    """In how many of the balls, from the smallest on, the point is taken to stay right."""
    breaks: Int[Tensor, " B"]
    """From which ball on the point is known to be broken; the number of balls if none is known."""
    distance: Float[Tensor, " B"]
    """To the nearest wrong place seen: 0 for misclassified points, infinite if none was seen."""
    tests: Int[Tensor, " B"]
    """In how many balls the point was attacked."""
    attacks: Int[Tensor, " B"]
    """By how many attacks in all."""
    by: Int[Tensor, " B"]
    """Which of the attacks broke it in the ball `breaks`, from 0 on; NO_ATTACK where none did or none was needed."""
    tried: Int[Tensor, " B"]
    """How many of the attacks, the first ones in their order, were run on it in at least one ball."""

    @property
    def open(self) -> Bool[Tensor, " B"]:
        return self.holds < self.breaks

    @property
    def share_done(self) -> float:
        return 1 - int(self.open.sum()) / len(self.open)


@dataclass(frozen=True, eq=False)
class Curve:
    """What is known of every point, and the robust accuracy in every ball."""

    balls: tuple[Ball, ...]
    points: Progress
    seed: int

    @property
    def n(self) -> int:
        return len(self.points.breaks)

    @property
    def radii(self) -> tuple[float, ...]:
        return tuple(ball.radius for ball in self.balls)

    @property
    def low(self) -> PerSample:
        """The largest radius at which the point was not broken; 0 if there is none."""
        return torch.tensor([0.0, *self.radii], dtype=torch.float64)[self.points.breaks]

    @property
    def high(self) -> PerSample:
        """The smallest radius at which the point was broken: 0 for misclassified points, infinite if there is none."""
        high = torch.tensor([*self.radii, math.inf], dtype=torch.float64)[self.points.breaks]
        return torch.where(self.points.distance == 0, 0.0, high)

    @property
    def clean(self) -> Proportion:
        return wilson(int((self.points.distance > 0).sum()), self.n)

    @property
    def accuracy(self) -> tuple[Proportion, ...]:
        """For every ball the share of points that stay right, with the 95 % interval that n allows."""
        return tuple(wilson(int((self.points.breaks > i).sum()), self.n) for i in range(len(self.balls)))

    @property
    def point_attacks(self) -> int:
        """How many attacks on single points it took."""
        return int(self.points.attacks.sum())

    @property
    def tests(self) -> float:
        """In how many balls a point was attacked, on average."""
        return float(self.points.tests.double().mean())


def robustness(
    network: Network,
    examples: Examples,
    balls: Sequence[Ball],
    attacks: Attacks | None = None,
    known_below: PerSample | None = None,
    known_above: PerSample | None = None,
    seed: int = 0,
    rows: int = BATCH_SIZE,
    progress: Progress | None = None,
    on_progress: Callable[[Progress], None] | None = None,
) -> Curve:
    """Robust accuracy in nested balls, by bisection of each point's own bracket.

    Who is broken in a ball is broken in all larger ones, and who stands in one is taken to stand in all smaller ones:
    16 radii take each point 4 or 5 tests instead of 16.  A wrong place is first brought to the boundary; its distance
    then decides all radii from there on.  If it lies in a ball in which the attacks had failed, the place is believed.

    The attacks are the standard's by default.  In balls of a radius up to `known_below` (certified for each point)
    nothing is attacked, nor in those that hold a wrong place which is known (`known_above`, its distance, infinite if
    there is none): such a point is first attacked in the next smaller ball, which most often decides it.

    After every batch `on_progress` gets the state; passed back in, the evaluation goes on from there to the same end.
    """
    balls = _checked(balls)
    certified, seen = _known(known_below, 0.0, examples, "below"), _known(known_above, math.inf, examples, "above")
    check_alone(network)
    with frozen(network):
        classes = class_count(network, examples)
        made = attacks or (lambda ball: standard(ball, classes, rows))
        state = _begun(network, examples, balls, certified, seen, rows) if progress is None else progress
        numbers = row_numbers(examples, torch.arange(len(examples)))
        check_certificates(state.distance, certified, numbers)
        if len(state.breaks) != len(examples) or int(state.breaks.max()) > len(balls):
            raise ValueError("the progress is that of other examples or balls: begin anew with progress=None")
        quick = accelerated(network, examples[torch.arange(min(rows, len(examples)))][0])
        while bool(state.open.any()):
            state = _step(network, quick, examples, balls, made, seed, rows, state)
            check_certificates(state.distance, certified, numbers)
            if on_progress is not None:
                on_progress(state)
    return Curve(balls, state, seed)


def bisected(
    network: Network, examples: Examples, largest: Ball, attacks: Attacks, halvings: int = 6, seed: int = 0
) -> Curve:
    """Each point's smallest broken radius, bracketed to a share of 2**-halvings of the largest ball's radius."""
    if halvings < 1:
        raise ValueError(f"halvings must be a whole number of at least 1, got {halvings}")
    radii = [largest.radius * (i + 1) / 2**halvings for i in range(2**halvings)]
    return robustness(network, examples, [with_radius(largest, radius) for radius in radii], attacks, seed=seed)


def with_radius(ball: Ball, radius: float) -> Ball:
    return replace(ball, radius=radius)


def _known(radii: PerSample | None, otherwise: float, examples: Examples, side: str) -> Tensor:
    if radii is None:
        return torch.full((len(examples),), otherwise, dtype=torch.float64)
    if len(radii) != len(examples):
        raise ValueError(f"known_{side} must have one radius for each of {len(examples)} points, got {len(radii)}")
    return radii.detach().cpu().double()


def _begun(
    model: Network, examples: Examples, balls: Sequence[Ball], certified: Tensor, seen: Tensor, rows: int
) -> Progress:
    right = []
    for _, inputs, labels in iter_batches(examples, rows):
        balls[0].box.check(inputs)
        with torch.no_grad():
            right.append(is_correct(model(inputs), labels).cpu())
    standing = torch.cat(right)
    radii = torch.tensor([ball.radius for ball in balls], dtype=torch.float64)
    holds = torch.searchsorted(radii, certified, right=True)
    breaks = torch.where(standing, torch.searchsorted(radii, seen * (1 - _ROUNDING)), 0)
    nothing = torch.zeros(len(standing), dtype=torch.int64)
    return Progress(
        torch.where(certified > 0, holds, 0).minimum(breaks),
        breaks,
        torch.where(standing, seen, 0.0),
        nothing,
        nothing,
        torch.full_like(nothing, NO_ATTACK),
        nothing,
    )


def _step(
    model: Network,
    quick: Network,
    examples: Examples,
    balls: Sequence[Ball],
    attacks: Attacks,
    seed: int,
    rows: int,
    state: Progress,
) -> Progress:
    """One batch: of the points that wait for the same ball, as many as can be computed at once."""
    middle = (state.holds + state.breaks) // 2
    # A place that was known from the start is as near as attacks without a radius came: expect nothing nearer.
    told = (state.tests == 0) & (state.distance < math.inf)
    waiting = torch.where(state.open, torch.where(told, state.breaks - 1, middle), len(balls))
    # The longest queue first: batches stay full for as long as possible.
    tested = int(torch.bincount(waiting, minlength=len(balls))[: len(balls)].argmax())
    numbers = (waiting == tested).nonzero()[:rows, 0]
    distance, made, by = _distances_within(model, quick, examples, balls[tested], attacks(balls[tested]), seed, numbers)
    radii = torch.tensor([ball.radius for ball in balls], dtype=torch.float64)
    decided = torch.searchsorted(radii, distance * (1 - _ROUNDING))
    breaks = state.breaks[numbers].minimum(decided)
    by = torch.where(decided < state.breaks[numbers], by, state.by[numbers])
    holds = torch.where(distance < math.inf, state.holds[numbers], tested + 1).minimum(breaks)
    return Progress(
        state.holds.index_put((numbers,), holds),
        state.breaks.index_put((numbers,), breaks),
        state.distance.index_put((numbers,), state.distance[numbers].minimum(distance)),
        state.tests.index_put((numbers,), state.tests[numbers] + 1),
        state.attacks.index_put((numbers,), state.attacks[numbers] + made),
        state.by.index_put((numbers,), by),
        state.tried.index_put((numbers,), state.tried[numbers].maximum(made)),
    )


def _distances_within(
    model: Network,
    quick: Network,
    examples: Examples,
    ball: Ball,
    attacks: Sequence[Attack],
    seed: int,
    numbers: Tensor,
) -> tuple[Tensor, Tensor, Tensor]:
    """To the wrong place that the first successful attack found, how many attacks it took, and who it was: [B] each."""
    if not attacks:
        raise ValueError(f"there must be at least one attack in {ball!r}, got none")
    inputs, labels = examples[numbers]
    places, standing = inputs.clone(), torch.ones(len(inputs), dtype=torch.bool, device=inputs.device)
    made, by = torch.zeros(len(inputs), dtype=torch.int64), torch.full((len(inputs),), NO_ATTACK)
    # As in an evaluation of this ball alone, so that the numbers are the same.
    rng = RowRng(seed, row_numbers(examples, numbers).to(inputs.device))
    for number, attack in enumerate(attacks):
        left = standing.nonzero()[:, 0]
        if len(left) == 0:
            break
        moved = attack(quick, inputs[left], labels[left], rng.at(left)).points
        made[left.cpu()] += 1
        with torch.no_grad():
            across = wrong(model(moved), labels[left])
        # An attack that left its ball or the box has found nothing in it.
        across &= ball.norm(moved - inputs[left]) <= ball.radius * (1 + _ROUNDING)
        across &= ball.box.contains(moved, inputs[left])
        places[left[across]], standing[left[across]] = moved[across], False
        by[left[across].cpu()] = number
    distance = torch.full((len(inputs),), math.inf, dtype=torch.float64)
    broken = (~standing).nonzero()[:, 0]
    if len(broken):
        reached = line_search(model, inputs[broken], labels[broken], places[broken])
        far, before = (ball.norm(place - inputs[broken]).double() for place in (reached, places[broken]))
        # Only a misclassified point has distance 0, and this one was right in its own batch.
        far = torch.where(far > 0, far, before).clamp_min(torch.finfo(torch.float64).tiny)
        distance[broken.cpu()] = far.cpu()
    return distance, made, by


def _checked(balls: Sequence[Ball]) -> tuple[Ball, ...]:
    if not balls:
        raise ValueError("a curve needs at least one ball, got none")
    if any(type(ball) is not type(balls[0]) or ball.box != balls[0].box for ball in balls):
        raise ValueError("all balls of a curve must have the same norm and the same box, got several")
    if any(smaller.radius >= larger.radius for smaller, larger in pairwise(balls)):
        raise ValueError(f"radii must ascend, got {[ball.radius for ball in balls]}")
    return tuple(balls)


def check_certificates(distance: Tensor, certified: Tensor, numbers: Tensor) -> None:
    """No wrong place may be nearer than what is certified; distances of 0 are of points that were wrong before.

    `numbers` are those of the points in the data.
    """
    refuted = ((distance > 0) & (distance < certified * (1 - 1e-4))).nonzero()[:, 0]
    if len(refuted):
        one = int(refuted[0])
        raise Refuted(
            f"point {int(numbers[one])} is certified up to {float(certified[one]):.6g}, but a wrong place was found at "
            f"{float(distance[one]):.6g}: the certificate does not hold for this network"
        )
