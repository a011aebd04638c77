"""Balls and boxes: how far a point may move in each norm, and everything else that a norm decides."""

from __future__ import annotations

import math
import re
from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import ClassVar, final

import torch
from jaxtyping import Bool
from torch import Tensor
from torch.nn.functional import pad

from widemargin.arguments import called_as
from widemargin.parts import choice, part
from widemargin.perturb.filling import time_to_fill, time_to_shrink
from widemargin.rng import Rng, RowRng
from widemargin.shapes import Encoded, PerSample

Bound = float | tuple[float, ...]
# A step to a plane meets the box at most so many times before it is given up.
_ROUNDS_TO_PLANE = 20
# By rounding a place may be measured so far outside of the box, and by such a share of the radius outside of the ball.
_OUT_OF_BOX, _OUT_OF_BALL = 1e-6, 1e-4

# Between these widths the maximum of a row costs several times as much as that of one of `_WIDE` numbers.
_NARROW, _WIDE = 8, 32


@part
@called_as("two bounds, such as wm.Box(0, 1)")
@dataclass(frozen=True)
class Box:
    """What values an input may take: one interval for all features, or one for each (in the order of a flat sample)."""

    low: Bound
    high: Bound
    fixed: tuple[int, ...] = ()
    """Features that no perturbation changes, by their places in a flat sample: they may have any value."""

    def __post_init__(self) -> None:
        if self.fixed != tuple(sorted(set(self.fixed))) or (self.fixed and self.fixed[0] < 0):
            raise ValueError(f"Box.fixed must be different places in rising order, got {self.fixed}")
        lows, highs = (torch.as_tensor(bound, dtype=torch.float64) for bound in (self.low, self.high))
        if lows.ndim and highs.ndim and lows.shape != highs.shape:
            raise ValueError(f"Box.low and Box.high must be as many, got {len(lows)} and {len(highs)}")
        if not bool((lows < highs).all()):
            raise ValueError(f"Box.low must be below Box.high, got {self.low} and {self.high}")

    def __repr__(self) -> str:
        if self.fixed:
            return f"{replace(self, fixed=())!r}.holding({self.fixed!r})"
        if self.is_open:
            return "OPEN"
        return "UNIT" if (self.low, self.high) == UNIT_BOUNDS else f"Box(low={self.low!r}, high={self.high!r})"

    @property
    def interval(self) -> str:
        """For sentences, without the features that are fixed."""
        if self.holding(()).is_open:
            return "(-inf, inf)"
        if isinstance(self.low, tuple) or isinstance(self.high, tuple):
            return "with an interval for each feature"
        return f"[{self.low:g}, {self.high:g}]"

    @property
    def is_open(self) -> bool:
        return (self.low, self.high) == OPEN_BOUNDS and not self.fixed

    def holding(self, fixed: tuple[int, ...]) -> Box:
        """The same box, in which perturbations leave these features as they are."""
        return replace(self, fixed=fixed)

    def room(self, center: Encoded) -> tuple[Tensor, Tensor]:
        """How far each feature may go down (<= 0) and up (>= 0) from here: not at all if it is fixed."""
        down, up = self._like(self.low, center) - center, self._like(self.high, center) - center
        return self.free(down), self.free(up)

    def free(self, changes: Encoded) -> Encoded:
        """Changes or gradients with 0 for the features that are fixed."""
        if not self.fixed:
            return changes
        features = changes[0].numel()
        if self.fixed[-1] >= features:
            raise ValueError(f"the box holds feature {self.fixed[-1]} fixed, but a point has {features} features")
        held = torch.zeros(features, dtype=torch.bool, device=changes.device)
        held[list(self.fixed)] = True
        return changes.masked_fill(held.view(changes.shape[1:]), 0.0)

    def free_features(self, like: Encoded) -> int:
        return like[0].numel() - len(self.fixed)

    def room_ahead(self, direction: Encoded, center: Encoded) -> Tensor:
        """[B, features]: how far each feature may go the way that the direction takes it."""
        if self.is_open:
            return torch.full_like(direction, torch.inf).flatten(1)
        way = direction.sign()
        down, up = self.room(center)
        # Of a feature that stays, 0 times what may be infinite.
        return (way * down).maximum(way * up).nan_to_num_(0.0, torch.inf).clamp_min_(0).flatten(1)

    def clamp(self, delta: Encoded, center: Encoded) -> Encoded:
        return self.clamp_around(center)(delta)

    def clamp_around(self, center: Encoded) -> Callable[[Encoded], Encoded]:
        """`clamp` of many changes of the same points."""
        if self.is_open:
            return lambda delta: delta
        down, up = self.room(center)
        return lambda delta: delta.clamp(down, up)

    def inward(self, gradient: Encoded, points: Encoded) -> Encoded:
        """The gradient without what points out of the box at its edge: a step that way would be wasted."""
        if self.is_open:
            return gradient
        # The room's sign, times the largest number there is, bounds the gradient: several times faster than masks.
        most = torch.finfo(gradient.dtype).max
        down, up = self.room(points)
        return gradient.clamp(down.sign().clamp_max_(0).mul_(most), up.sign().clamp_min_(0).mul_(most))

    def check(self, points: Tensor) -> None:
        if self.is_open:
            return
        below, above = (bool((side > slack).any()) for side, slack in self._outside(points))
        if below or above:
            low, high = float(points.min()), float(points.max())
            own = "wm.Box(0, 255)" if low >= 0 and 1 < high <= 255 else f"wm.Box({math.floor(low)}, {math.ceil(high)})"
            raise ValueError(
                f"points must lie in the box [{_short(self.low)}, {_short(self.high)}], got values from {low:.6g} to "
                f"{high:.6g}: rescale them, or give the ball their own box, such as {own} (wm.OPEN for none)"
            )

    def contains(self, points: Encoded, center: Encoded) -> Bool[Tensor, " B"]:
        """Whether each point lies in the box, up to rounding, its fixed features as the centre has them."""
        if self.is_open:
            return torch.ones(len(points), dtype=torch.bool, device=points.device)
        slack = _OUT_OF_BOX + _roundings(points, center)
        down, up = self.room(points)
        held = points - center - self.free(points - center)
        return ((down <= slack) & (-up <= slack) & (held.abs() <= slack)).flatten(1).all(1)

    def _outside(self, points: Tensor) -> tuple[tuple[Tensor, float], tuple[Tensor, float]]:
        down, up = self.room(points)
        return (down, _OUT_OF_BOX), (-up, _OUT_OF_BOX)

    def _like(self, bound: Bound, center: Tensor) -> Tensor:
        values = torch.as_tensor(bound, dtype=center.dtype, device=center.device)
        if values.ndim == 0:
            return values
        if len(values) != center[0].numel():
            raise ValueError(f"the box has {len(values)} intervals, but a point has {center[0].numel()} features")
        return values.view(center.shape[1:])


OPEN_BOUNDS = (-math.inf, math.inf)
UNIT_BOUNDS = (0.0, 1.0)
OPEN = Box(*OPEN_BOUNDS)
"""No box: 2-D data, latent space."""
UNIT = Box(*UNIT_BOUNDS)
"""Images scaled to [0, 1]."""


@dataclass(frozen=True)
class Ball(ABC):
    """All points up to a radius away in a norm, within the box: everything that searches and attacks ask of a norm.

    A new norm is a subclass with the five abstract methods.  What it does not override works for any norm, or refuses.
    """

    radius: float
    box: Box = UNIT

    p: ClassVar[float | None] = None
    """The exponent of an l_p norm.  None for other norms, of which certificates and Square know nothing."""
    sparse: ClassVar[bool] = False
    """Whether a steepest step moves a single feature.  APGD then spreads its steps over several, in radii that fall."""

    def __post_init__(self) -> None:
        name = f"{type(self).__name__}.radius"
        check_python_number(name, self.radius)
        if not 0 <= self.radius < math.inf:
            raise ValueError(f"{name} must be in [0, inf), got {self.radius}")
        check_is_box(f"{type(self).__name__}.box", self.box)

    @property
    def name(self) -> str:
        """Of the norm, as tables and the command line have it."""
        return type(self).__name__.lower()

    @abstractmethod
    def norm(self, delta: Encoded) -> PerSample: ...

    @abstractmethod
    def dual_norm(self, gradient: Encoded) -> PerSample:
        """The climb of the steepest step of length 1."""

    @abstractmethod
    def steepest(self, gradient: Encoded) -> Encoded:
        """The step of length 1 that climbs most; 0 where the gradient is 0."""

    @abstractmethod
    def project(self, delta: Encoded, center: Encoded, radii: PerSample | None = None) -> Encoded:
        """The nearest point (in the Euclidean sense) of the ball within the box; `radii` gives each row its own."""

    @abstractmethod
    def sample(self, center: Encoded, rng: Rng) -> Encoded:
        """Uniform in the ball, then clamped to the box."""

    def contains(self, points: Encoded, center: Encoded) -> Bool[Tensor, " B"]:
        """Whether each point lies in the ball around its centre and in the box, up to rounding."""
        slack = _OUT_OF_BALL * self.radius + self.norm(_roundings(points, center))
        return (self.norm(points - center) <= self.radius + slack) & self.box.contains(points, center)

    def to_plane(self, gradient: Encoded, needed: PerSample, center: Encoded) -> Encoded:
        """The shortest step in the box along which a linear function with this gradient climbs by `needed`.

        To the corner of the box where even all of it is not enough, nowhere where nothing is needed.  Of the ball, norm
        and box count, not its radius.

        Of a norm that does not override it a short step: features that meet the box stop there, the others go on.
        """
        delta = torch.zeros_like(gradient)
        for _ in range(_ROUNDS_TO_PLANE):
            missing = (needed - (gradient * delta).flatten(1).sum(1)).clamp_min(0)
            uphill = self.box.inward(gradient, center + delta)
            length = missing / self.dual_norm(uphill).clamp_min(_tiny(gradient))
            length = torch.where((uphill != 0).flatten(1).any(1), length, 0.0)
            delta = self.box.clamp(delta + self.steepest(uphill) * _per_row(length, gradient), center)
        return delta

    def draw_direction(self, rng: RowRng, like: Encoded) -> Encoded:
        """Any direction, of any length, among the features that are free."""
        return self.box.free(rng.normal(*like.shape[1:]).to(like))

    def draw_surface(self, rng: RowRng, like: Encoded) -> Encoded:
        """Anywhere on the surface, still to be cut by the box."""
        drawn = self.draw_direction(rng, like)
        return drawn * _per_row(self.radius / self.norm(drawn).clamp_min(1e-12), drawn)

    def l2_reach(self, like: Encoded) -> float:
        """The largest l2 length in the ball of radius 1; if not overridden, along the first feature or all of them."""
        even, one = torch.ones_like(like[:1]), torch.zeros_like(like[:1])
        one.view(-1)[0] = 1
        return max(float(torch.linalg.vector_norm(step) / self.norm(step)) for step in (even, one))


@final
@choice("norm")
@called_as()
@dataclass(frozen=True)
class Linf(Ball):
    p = math.inf

    def norm(self, delta: Encoded) -> PerSample:
        return _largest(delta.flatten(1).abs())

    def dual_norm(self, gradient: Encoded) -> PerSample:
        return gradient.flatten(1).abs().sum(1)

    def steepest(self, gradient: Encoded) -> Encoded:
        return gradient.sign()

    def project(self, delta: Encoded, center: Encoded, radii: PerSample | None = None) -> Encoded:
        radius = self.radius if radii is None else _per_row(radii, delta)
        return self.box.clamp(delta.clamp(-radius, radius), center)  # type: ignore[arg-type]

    def sample(self, center: Encoded, rng: Rng) -> Encoded:
        return self.box.clamp((2 * rng.uniform(center) - 1) * self.radius, center)

    def to_plane(self, gradient: Encoded, needed: PerSample, center: Encoded) -> Encoded:
        size, room = gradient.flatten(1).abs(), self.box.room_ahead(gradient, center)
        length = room.minimum(time_to_fill(size, _climbs(size, room), needed.clamp_min(0)))
        return length.view_as(gradient) * gradient.sign()

    def draw_direction(self, rng: RowRng, like: Encoded) -> Encoded:
        return self.box.free(2 * rng.uniform(*like.shape[1:]).to(like) - 1)

    def l2_reach(self, like: Encoded) -> float:
        return float(like[0].numel() ** 0.5)


@final
@choice("norm")
@called_as()
@dataclass(frozen=True)
class L2(Ball):
    p = 2

    def norm(self, delta: Encoded) -> PerSample:
        return torch.linalg.vector_norm(delta.flatten(1), dim=1)  # type: ignore[no-any-return]

    def dual_norm(self, gradient: Encoded) -> PerSample:
        return self.norm(gradient)

    def steepest(self, gradient: Encoded) -> Encoded:
        # Scaled by the largest entry first: the square of a tiny gradient underflows.
        scaled = gradient / _per_row(gradient.flatten(1).abs().amax(1), gradient).clamp_min(_tiny(gradient))
        return scaled / _per_row(self.norm(scaled), gradient).clamp_min(_tiny(gradient))

    def project(self, delta: Encoded, center: Encoded, radii: PerSample | None = None) -> Encoded:
        radius = self.radius if radii is None else radii
        if self.box.is_open:
            longest = self.norm(delta).clamp_min(_tiny(delta)).reciprocal() * radius
            return delta * _per_row(longest.clamp_max(1.0), delta)
        down, up = self.box.room(center)
        clamped = delta.clamp(down, up)
        shrink = _shrink_into_l2(delta.flatten(1), clamped.flatten(1), radius)
        return clamped if shrink is None else (delta * _per_row(shrink, delta)).clamp_(down, up)

    def sample(self, center: Encoded, rng: Rng) -> Encoded:
        direction = self.steepest(self.box.free(rng.normal(center)))
        distance = rng.uniform(center.flatten(1)[:, 0]) ** (1 / self.box.free_features(center)) * self.radius
        return self.box.clamp(direction * _per_row(distance, center), center)

    def to_plane(self, gradient: Encoded, needed: PerSample, center: Encoded) -> Encoded:
        size, room = gradient.flatten(1).abs(), self.box.room_ahead(gradient, center)
        # The square of a tiny slope underflows; only ratios matter.
        steepest = size.amax(1).clamp_min(_tiny(size))
        size = size / steepest[:, None]
        length = time_to_fill(size * size, _climbs(size, room), needed.clamp_min(0) / steepest) * size
        return length.minimum(room).view_as(gradient) * gradient.sign()

    def draw_surface(self, rng: RowRng, like: Encoded) -> Encoded:
        return self.steepest(self.draw_direction(rng, like)) * self.radius

    def l2_reach(self, like: Encoded) -> float:
        return 1.0


@final
@choice("norm")
@called_as()
@dataclass(frozen=True)
class L1(Ball):
    p = 1
    sparse = True

    def norm(self, delta: Encoded) -> PerSample:
        return delta.flatten(1).abs().sum(1)

    def dual_norm(self, gradient: Encoded) -> PerSample:
        return _largest(gradient.flatten(1).abs())

    def steepest(self, gradient: Encoded) -> Encoded:
        flat = gradient.flatten(1)
        largest = flat.abs().argmax(1, keepdim=True)
        return torch.zeros_like(flat).scatter(1, largest, flat.gather(1, largest).sign()).view_as(gradient)

    def project(self, delta: Encoded, center: Encoded, radii: PerSample | None = None) -> Encoded:
        size = delta.flatten(1).abs()
        if self.box.is_open:
            less = time_to_shrink(size, size.new_full((len(size),), self.radius) if radii is None else radii)
            return (size - less).clamp_min(0).view_as(delta) * delta.sign()
        room = self.box.room_ahead(delta, center)
        less = _soften_into_l1(size, room, self.radius if radii is None else radii[:, None])
        return ((size - less).clamp_min(0).minimum(room)).view_as(delta) * delta.sign()

    def sample(self, center: Encoded, rng: Rng) -> Encoded:
        # Exponential spacings: d of d + 1 shares of a whole are uniform in the simplex.
        spacings = -torch.log1p(-rng.uniform(torch.cat([center.flatten(1), center.flatten(1)[:, :1]], 1)))
        spacings = torch.cat([self.box.free(spacings[:, :-1].view_as(center)).flatten(1), spacings[:, -1:]], 1)
        shares = spacings[:, :-1] / spacings.sum(1, keepdim=True) * self.radius
        signs = (rng.uniform(center) < 0.5).to(center) * 2 - 1
        return self.box.clamp(shares.view_as(center) * signs, center)

    def to_plane(self, gradient: Encoded, needed: PerSample, center: Encoded) -> Encoded:
        """The features of largest slope first, each as far as the box lets it."""
        size, order = gradient.flatten(1).abs().sort(1, descending=True)
        room = self.box.room_ahead(gradient, center).gather(1, order)
        before = pad(_climbs(size, room).cumsum(1)[:, :-1], (1, 0))
        length = ((needed.clamp_min(0)[:, None] - before).clamp_min(0) / size.clamp_min(_tiny(size))).minimum(room)
        length = torch.zeros_like(length).scatter(1, order, torch.where(size > 0, length, 0.0))
        return length.view_as(gradient) * gradient.sign()

    def draw_surface(self, rng: RowRng, like: Encoded) -> Encoded:
        # As published: a normal draw, far outside; its projection is on the surface, and sparse.
        return self.draw_direction(rng, like)

    def l2_reach(self, like: Encoded) -> float:
        return 1.0


Norm = type[Ball]
"""A norm is named by its ball: Linf, L2, L1 or one of your own."""


def norms() -> dict[str, Norm]:
    """Every norm that is defined, by its name."""
    return {kind.__name__.lower(): kind for kind in Ball.__subclasses__()}


def norm_named(norm: object) -> Norm:
    """A norm as people write it: "linf", "l_inf", "inf" and infinity are one, and so are "l2", "L2" and 2."""
    known = norms()
    if isinstance(norm, type) and issubclass(norm, Ball):
        return norm
    word = f"{norm:g}" if isinstance(norm, int | float) else norm.lower() if isinstance(norm, str) else ""
    for name in (word, f"l{re.sub('^l[_-]?', '', word)}"):
        if name in known:
            return known[name]
    raise ValueError(f"norm must be one of {', '.join(known)}, got {norm!r}")


def check_is_ball(ball: object) -> None:
    """The wrong guesses about what a ball is, each with the right call."""
    name = getattr(ball, "__name__", "")
    if isinstance(ball, type):
        raise ValueError(f"the ball must have a radius, got the class {name}: give one such as wm.{name}(8 / 255)")
    if isinstance(ball, int | float | str):
        example = "8 / 255" if isinstance(ball, str) else repr(ball)
        raise ValueError(f"the ball must have a norm and a radius, got {ball!r}: give one such as wm.Linf({example})")
    if not hasattr(ball, "radius"):
        raise ValueError(f"the ball must be one such as wm.Linf(8 / 255), got a {type(ball).__name__}")


def radius_of(ball: Ball) -> float:
    check_is_ball(ball)
    return ball.radius


def check_is_box(name: str, box: object) -> None:
    if isinstance(box, Box):
        return
    pair = isinstance(box, tuple | list) and len(box) == 2
    advice = f"give wm.Box({box[0]!r}, {box[1]!r})" if pair else "give one such as wm.Box(0, 1)"  # type: ignore[index]
    raise ValueError(f"{name} must be a Box, got {box!r}: {advice}, or wm.OPEN for none")


def check_python_number(name: str, value: float) -> None:
    """Parts are named by their repr, and only a plain number's repr is the number."""
    if not isinstance(value, int | float):
        advice = "give one such as 8 / 255" if value is None or isinstance(value, str) else "call float()"
        raise ValueError(f"{name} must be a Python number, got {value!r}: {advice}")


def _short(bound: Bound) -> str:
    return f"{bound:g}" if isinstance(bound, int | float) else f"{bound[0]:g}, ..."


def _per_row(values: PerSample, like: Encoded) -> Tensor:
    return values.view(-1, *[1] * (like.ndim - 1))


def _roundings(points: Encoded, center: Encoded) -> Encoded:
    """By how much each feature's difference may be off."""
    return 2 * torch.finfo(points.dtype).eps * points.abs().maximum(center.abs())


def _largest(size: Tensor) -> PerSample:
    """Of each row of numbers >= 0.  Rows shorter than a few vectors are filled up: the maximum is taken faster then."""
    short = _NARROW < size.shape[1] < _WIDE
    return (pad(size, (0, _WIDE - size.shape[1])) if short else size).amax(1)


def _tiny(like: Tensor) -> float:
    return torch.finfo(like.dtype).tiny


def _shrink_into_l2(delta: Tensor, clamped: Tensor, radius: float | PerSample) -> PerSample | None:
    """The largest s in [0, 1] for which s delta has norm `radius` or less in the box, or None where all are 1.

    Of s squared, each square grows until it is as large as the box lets it be, which is known from where s is 1.
    """
    squares, most = delta * delta, clamped * clamped
    inside = most.sum(1) <= radius**2
    if bool(inside.all()):
        return None
    grown = time_to_fill(squares, most, torch.zeros_like(delta[:, 0]) + radius**2).squeeze(1)
    return torch.where(inside, 1.0, grown.sqrt().clamp_max(1.0))


def _soften_into_l1(size: Tensor, room: Tensor, radius: float | Tensor) -> Tensor:
    """[B, 1]: the smallest t >= 0 with sum of min(max(size - t, 0), room) <= radius.

    Going down in t, a feature starts to grow at t = size and stops at t = size - room: the sum is linear in between.
    """
    turns = torch.cat([size, (size - room).clamp_min(0)], 1)
    growth = torch.cat([torch.ones_like(size), -torch.ones_like(size)], 1)
    turns, order = turns.sort(1, descending=True)
    growing = growth.gather(1, order).cumsum(1)
    grown = ((turns[:, :-1] - turns[:, 1:]) * growing[:, :-1]).cumsum(1)
    reached = torch.cat([torch.zeros_like(turns[:, :1]), grown], 1)
    piece = (reached < radius).sum(1, keepdim=True)
    inside = piece == turns.shape[1]
    piece = piece.clamp_max(turns.shape[1] - 1)
    slope = growing.gather(1, (piece - 1).clamp_min(0)).clamp_min(1)
    back = (reached.gather(1, piece) - radius) / slope
    return torch.where(inside, 0.0, turns.gather(1, piece) + back.clamp_min(0))


def _climbs(size: Tensor, room: Tensor) -> Tensor:
    """What each feature can give.  Of one without slope and without bounds: nothing, not 0 times infinity."""
    return (size * room).nan_to_num_(0.0, torch.inf)
