"""Where in a ball is a classifier wrong, if only its answers are known?  Random search with squares (Square Attack)."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from functools import cache

import torch
from torch import Tensor

from widemargin.fast.windows import Features, FirstLayers, Window, first_layers
from widemargin.perturb.attack import Classifier, Perturbed, check_counts, perturbed
from widemargin.perturb.balls import Ball
from widemargin.perturb.losses import margin
from widemargin.perturb.rows import among, per_row, wrong
from widemargin.rng import AnyRng, RowRng
from widemargin.shapes import Labels, Points

# Andriushchenko et al. (2020), section 3: the share of an image in a square, halved after these of 10,000 queries.
_FIRST_SHARE = 0.8
_HALVED_AFTER = (10, 50, 200, 500, 1000, 2000, 4000, 6000, 8000)
# The first guess in l2 and l1: so many tiles in a row.
_TILES = 5
# So many queries' signs are drawn at once.
_DRAWN_AT_ONCE = 100
_JUST_INSIDE = 1 - 1e-6


@dataclass(frozen=True)
class Square:
    """Square Attack (Andriushchenko et al. 2020) on the margin of the logits, without gradients.

    Images [C H W] are changed in squares.  A point of any other shape is taken as one row of features, of which a
    window of neighbours is changed: as large a share of them as the square would be of an image.

    Where a query looks is the same for all points, as in the standard: a slice and not a gather, and still nothing
    that depends on the batch.  The signs are each point's own.
    """

    ball: Ball
    queries: int = 5000

    def __post_init__(self) -> None:
        check_counts(self, queries=self.queries)
        if self.ball.p not in (1, 2, math.inf):
            raise ValueError(f"Square knows the norms linf, l2 and l1, got {self.ball!r}: leave it out for this norm")

    @property
    def name(self) -> str:
        return "square"

    def __call__(self, model: Classifier, inputs: Points, labels: Labels, rng: AnyRng) -> Perturbed:
        points = inputs.clone()
        # Written into from inside, `found` stays an ordinary tensor.
        with torch.inference_mode():
            first = first_layers(model, inputs)
            _search(self, model, first, inputs, labels, rng.by_row(len(inputs)).of("square"), points)
        return perturbed(self.ball, inputs, points)


@dataclass(eq=False)
class _State:
    """Of the points that stand, row for row; places are [B C H W]."""

    row: Tensor
    labels: Labels
    inputs: Tensor
    low: Tensor
    high: Tensor
    points: Tensor
    """The best so far, and for the time of a query what is tried."""
    margin: Tensor
    mass: Tensor
    """l2 and l1: sum of |delta| ** power."""
    signs: Tensor
    features: Features | None = None
    """What the first layers make of `points`, if they are taken by themselves."""


@dataclass(frozen=True, eq=False)
class _Tried:
    """What is needed to take a query back, and to know whether it was one."""

    changed: Tensor
    before: tuple[tuple[Window, Tensor], ...]
    mass: Tensor


def _search(
    attack: Square,
    classify: Classifier,
    first: FirstLayers | None,
    inputs: Points,
    labels: Labels,
    rng: RowRng,
    broken: Points,
) -> None:
    ball = attack.ball
    now = _begun(ball, inputs, labels, rng)
    if first is not None:
        now.features = first.features(now.points)
    channels, height, width = now.points.shape[1:]
    # One row for all points.
    shared = RowRng(rng.seed, torch.zeros_like(labels[:1]), rng.purpose)
    draws = shared.of("places").uniform(attack.queries, 5)[0].tolist()
    everywhere = Window(slice(0, height), slice(0, width))
    tried = _Tried(torch.ones_like(labels, dtype=torch.bool), ((everywhere, now.points.clone()),), now.mass)
    for query, draw in enumerate([None, *draws]):
        if draw is not None:
            turn = (query - 1) % _DRAWN_AT_ONCE
            if turn == 0:
                now.signs = rng.at(now.row).signs(_DRAWN_AT_ONCE, channels, draw=query).to(now.points)
            share = _share(query - 1, attack.queries)
            signs = now.signs[:, turn, :, None, None]
            tried = (
                _try_corner(now, share, draw, signs)
                if ball.p == math.inf
                else _try_shift(ball, now, share, draw, signs)
            )
        changes = _written(first, now, tried)
        out = _judged(classify if first is None else first.rest, now, tried, changes, inputs.shape[1:])
        if bool(out.any()):
            broken[now.row[out]] = now.points[out].view(-1, *inputs.shape[1:])
            now = replace(among(now, ~out), features=now.features and tuple(each[~out] for each in now.features))
            if len(now.row) == 0:
                return


def _written(first: FirstLayers | None, now: _State, tried: _Tried) -> list[tuple[Tensor, Tensor]]:
    """Places that the query changed and what was there before: of the points, and of the features, which follow."""
    changes = [(window.of(now.points), before) for window, before in tried.before]
    if first is None or now.features is None:
        return changes
    return changes + first.rewrite(now.points, now.features, [window for window, _ in tried.before])


def _judged(
    classify: Classifier, now: _State, tried: _Tried, changes: list[tuple[Tensor, Tensor]], shape: torch.Size
) -> Tensor:
    """Keep what is better; which points are now wrong.  A query that changes nothing is not asked."""
    asked = tried.changed.nonzero()[:, 0]
    everyone = len(asked) == len(now.row)
    given = now.points.view(-1, *shape) if now.features is None else now.features[-1]
    given, labels = (given, now.labels) if everyone else (given[asked], now.labels[asked])
    out, new = torch.zeros_like(tried.changed), now.margin.clone()
    if len(asked) > 0:
        logits = classify(given)
        out[asked], new[asked] = wrong(logits, labels), margin(logits, labels)
    better = out | (new < now.margin)
    for place, before in changes:
        place.copy_(torch.where(per_row(better, before), place, before))
    now.margin, now.mass = torch.where(better, new, now.margin), torch.where(better, tried.mass, now.mass)
    return out


def _begun(ball: Ball, inputs: Points, labels: Labels, rng: RowRng) -> _State:
    image = inputs.shape if inputs.ndim == 4 else (len(inputs), 1, 1, inputs[0].numel())
    flat = inputs.reshape(image).contiguous()
    down, up = (side.expand_as(inputs).reshape(image) for side in ball.box.room(inputs))
    if ball.p == math.inf:
        low, high = flat + down.clamp_min(-ball.radius), flat + up.clamp_max(ball.radius)
        # Stripes from top to bottom; of a row, every feature its own.
        points = torch.where(rng.signs(image[1], 1, image[3], draw=0) > 0, high, low)
        mass = torch.zeros_like(labels, dtype=flat.dtype)
    else:
        low, high = flat + down, flat + up
        delta = _tiles(ball, flat, rng)
        points = (flat + delta).clamp(low, high)
        mass = _mass(points - flat, _power(ball)).flatten(1).sum(1)
    row = torch.arange(len(labels), device=labels.device)
    worst = torch.full_like(mass, torch.inf)
    return _State(row, labels, flat, low, high, points, worst, mass, signs=row)


def _try_corner(now: _State, share: float, draw: list[float], signs: Tensor) -> _Tried:
    """Section 3.3: all of a square to one end of what the ball allows."""
    window = _window(now.points, _side(share, now.points, odd=False), draw[0], draw[1])
    place = window.of(now.points)
    before = place.clone()
    place.copy_(torch.where(signs > 0, window.of(now.high), window.of(now.low)))
    return _Tried((place != before).flatten(1).any(1), ((window, before),), now.mass)


def _try_shift(ball: Ball, now: _State, share: float, draw: list[float], signs: Tensor) -> _Tried:
    """Section 3.4: two bumps of opposite sign are added in one square, with what another and the ball have to give.

    Norms are kept up to date from the two squares alone.  In l1 the same with |delta| for its square.
    """
    power = _power(ball)
    side = _side(share, now.points, odd=True)
    to, source = _window(now.points, side, draw[0], draw[1]), _window(now.points, side, draw[2], draw[3])
    before = tuple((window, window.of(now.points).clone()) for window in (to, source))
    delta = to.of(now.points) - to.of(now.inputs)
    both = to.common(source)
    window_mass = _mass(delta, power)
    taken = window_mass + _mass(source.of(now.points) - source.of(now.inputs), power)
    taken = taken - _mass(both.of(now.points) - both.of(now.inputs), power)
    bumps = _two_bumps(*delta.shape[2:], power, draw[4] < 0.5).to(delta)
    shape = bumps * signs + delta / (window_mass ** (1 / power) + 1e-12)
    left = ((ball.radius * _JUST_INSIDE) ** power - now.mass).clamp_min(0) / delta.shape[1]
    scale = ((taken + per_row(left, taken)) / _mass(shape, power).clamp_min(1e-12)) ** (1 / power)
    source.of(now.points).copy_(source.of(now.inputs))
    to.of(now.points).copy_((to.of(now.inputs) + shape * scale).clamp(to.of(now.low), to.of(now.high)))
    given = _mass(to.of(now.points) - to.of(now.inputs), power) - taken
    return _Tried(torch.ones_like(now.labels, dtype=torch.bool), before, now.mass + given.flatten(1).sum(1))


def _power(ball: Ball) -> int:
    return 1 if ball.p == 1 else 2


def _mass(delta: Tensor, power: int) -> Tensor:
    """[B C 1 1]"""
    return (delta.abs() if power == 1 else delta * delta).sum((-2, -1), keepdim=True)


def _share(query: int, queries: int) -> float:
    of_published = int(query / queries * 10_000)
    return _FIRST_SHARE * 0.5 ** sum(of_published > bound for bound in _HALVED_AFTER)


def _side(share: float, places: Tensor, odd: bool) -> int:
    height, width = places.shape[2:]
    side = round(share * width) if height == 1 else round(math.sqrt(share * height * width))
    side = max(side, 3) // 2 * 2 + 1 if odd else max(side, 1)
    return min(side, width if height == 1 else min(height, width))


def _window(places: Tensor, side: int, down: float, across: float) -> Window:
    height, width = places.shape[2:]
    tall = min(side, height)
    top, left = int(down * (height - tall + 1)), int(across * (width - side + 1))
    return Window(slice(top, top + tall), slice(left, left + side))


@cache
def _two_bumps(height: int, width: int, power: int, upright: bool) -> Tensor:
    """[height width] of norm 1: eq. 2 of the paper in one half, and its negative in the other."""
    if upright and height > 1:
        return _two_bumps(width, height, power, False).T
    half = width // 2
    bumps = torch.cat([_bump(height, half, power), -_bump(height, width - half, power)], 1)
    return bumps / bumps.abs().pow(power).sum() ** (1 / power)


def _bump(height: int, width: int, power: int) -> Tensor:
    """Every ring around the centre is lower than the one inside it."""
    rings = [(torch.arange(side) - side // 2).abs() for side in (height, width)]
    ring = torch.maximum(rings[0][:, None], rings[1][None])
    steps = 1 / torch.arange(1.0, max(height, width) // 2 + 2) ** (2 * (3 - power))
    return steps.flip(0).cumsum(0).flip(0)[ring]


def _tiles(ball: Ball, flat: Tensor, rng: RowRng) -> Tensor:
    """The first guess: bumps side by side, each of its own sign, as long as the radius."""
    _, channels, height, width = flat.shape
    side = max((width if height == 1 else min(height, width)) // _TILES, 1)
    tall = min(side, height)
    down, across = height // tall, width // side
    signs = rng.signs(channels, down, across, draw=0).to(flat)
    bumps = _two_bumps(tall, side, _power(ball), False).to(flat).repeat(down, across)
    tiles = signs.repeat_interleave(tall, 2).repeat_interleave(side, 3) * bumps
    top, left = (height - down * tall) // 2, (width - across * side) // 2
    delta = torch.zeros_like(flat)
    delta[:, :, top : top + down * tall, left : left + across * side] = tiles
    return delta * per_row(ball.radius * _JUST_INSIDE / ball.norm(delta), delta)
