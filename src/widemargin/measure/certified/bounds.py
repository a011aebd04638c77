"""Interval and linear (CROWN) bounds on a network's outputs for all inputs of a region."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass
from enum import Enum
from functools import cached_property

import torch
from torch import Tensor
from torch.nn import functional as F

from widemargin.measure.certified.layers import (
    Constants,
    Conv,
    Interval,
    Layer,
    Linear,
    MaxPool,
    ReLU,
    Reshape,
    Scale,
    Window,
)
from widemargin.measure.certified.region import Region

_COEFFICIENTS_AT_ONCE = 2**20


class Refined(Enum):
    """Which values have better bounds than intervals: none, those that see most of the input (few features), all."""

    NONE = 0
    LATE = 1
    ALL = 2


@dataclass(frozen=True, eq=False)
class Step:
    layer: Layer
    sources: tuple[int, ...]
    """Numbers of the values it takes: 0 is the input, k the output of step k - 1."""
    shape: torch.Size
    """Of its output for a point."""


@dataclass(frozen=True, eq=False)
class Program:
    """A network as a list of steps on the outputs of earlier ones; the last one returns the logits."""

    shape: torch.Size
    """Of a point."""
    steps: tuple[Step, ...]
    work_per_layer: int = 2**25
    """Coefficients that may be computed to refine one layer for one point: see `intervals`."""
    tile: int = 3
    """Neighbors along each axis of an image whose bounds are computed together, in the window of the input they see."""

    def intervals(self, region: Region, refined: Refined = Refined.ALL) -> list[Interval]:
        """Of every value, the input first: the tightest known bounds.

        Interval bounds for all.  The inputs of a ReLU or a max-pooling are refined by linear bounds back to the input
        (CROWN), feature by feature, those first whose relaxation is loosest, until `work_per_layer` is spent: all
        features that need it for a LeNet or an MLP, a part of them for a ResNet; the others keep the interval bounds
        of refined sources (as CROWN-IBP has for all).
        """
        known, exact = [region.interval()], self._exact(region.dual)
        for number, step in enumerate(self.steps, start=1):
            interval = step.layer.interval(*(known[source] for source in step.sources))
            if isinstance(step.layer, Linear | Conv) and number in self._on_input:
                # The center as the layer takes it: flat, say, where points are images.
                center = region.center.reshape(known[step.sources[0]].low.shape)
                middle = step.layer.interval(Interval(center, center)).low
                reach = region.radius * step.layer.lengths(region.dual, region.moves.reshape(center.shape))
                interval = interval.cut(Interval(middle - reach, middle + reach))
            known.append(interval)
            if refined is not Refined.NONE and number in self._bent and number not in exact:
                if refined is Refined.LATE and self._upstream[number][2]:
                    continue
                known[number] = self._refined(known, number, region)
        return known

    @property
    def is_linear(self) -> bool:
        return not any(isinstance(step.layer, ReLU | MaxPool) for step in self.steps)

    def below(
        self, known: list[Interval], number: int, rows: Tensor, window: Window = ()
    ) -> tuple[Tensor, Constants, Window]:
        """Linear functions of the input that lie below `rows` of (a window of) value `number`.

        Their coefficients, their constants, and the window of the input that they are functions of.
        """
        coefficients, constants = rows.new_zeros(len(rows), *known[0].low.shape[1:]), rows.new_zeros(len(rows))
        seen: Window = ()
        for reached, part, constant, reads in self._back(known, number, rows, window):
            constants = constants + constant
            if reached == 0:
                coefficients, seen = part, reads
        return coefficients, constants, seen

    def rounded_terms(self, point: Tensor, rows: Tensor) -> Constants:
        """The size of all terms that are rounded between the point [1, *F] and `rows` of the logits.

        To first order, as in a running error analysis (Higham 2002, Sec. 3.3): each step's terms without their signs,
        times the sensitivity of the logits to them.  The precision times this bounds the error of the logits.
        """
        known = [Interval(point, point)]
        sizes = [point.abs()]
        for step in self.steps:
            sources = [known[source] for source in step.sources]
            known.append(step.layer.interval(*sources))
            low, high = step.layer.interval(*(Interval(-source.low.abs(), source.low.abs()) for source in sources))
            sizes.append(torch.maximum(low.abs(), high.abs()))
        rounded = rows.new_zeros(())
        for reached, part, _, _ in self._back(known, len(self.steps), rows):
            # Another shape rounds nothing.
            if reached == 0 or not isinstance(self.steps[reached - 1].layer, Reshape):
                rounded = rounded + part.abs().flatten(1) @ sizes[reached].flatten()
        return rounded

    def _back(
        self, known: list[Interval], number: int, rows: Tensor, window: Window = ()
    ) -> Iterator[tuple[int, Tensor, Constants, Window]]:
        """For each value back to the input: its number, coefficients, the constants of its step, and their window."""
        waiting = {number: (rows, window)}
        for reached in range(number, 0, -1):
            if reached not in waiting:
                continue
            step, (rows, window) = self.steps[reached - 1], waiting.pop(reached)
            sources = [known[source] for source in step.sources]
            local = step.layer.at(window, sources[0].low.shape) if window else None
            if local is None:
                rows = _placed(rows, window, (), step.shape)
                parts, constants = step.layer.substitute(rows, *sources)
                taken: Window = ()
            else:
                layer, taken = local
                parts, constants = layer.substitute(rows, *(source.within(taken) for source in sources))
            yield reached, rows, constants, window if local else ()
            for source, part in zip(step.sources, parts, strict=True):
                waiting[source] = _sum(waiting.get(source), (part, taken), known[source].low.shape[1:])
        if 0 in waiting:
            rows, window = waiting[0]
            yield 0, rows, rows.new_zeros(len(rows)), window

    def _refined(self, known: list[Interval], number: int, region: Region) -> Interval:
        low, high = (end.flatten().clone() for end in known[number])
        by_layer = [layer.looseness(known[number], rectified).flatten() for layer, rectified in self._bent[number]]
        looseness = torch.stack(by_layer).amax(0)
        work, widest, tile = self._upstream[number]
        loosest = looseness.sort(descending=True, stable=True).indices[: self.work_per_layer // work]
        loosest = loosest[looseness[loosest] > 0]
        shape = known[number].low.shape[1:]
        at_once = max(1, _COEFFICIENTS_AT_ONCE // (2 * widest))
        for tiled, window in _tiles(loosest, shape, tile):
            for features in tiled.split(at_once):
                source, rows, added, taken = self._first_rows(known, number, _within(features, shape, window), window)
                # The highest value of a feature is minus the lowest of its negative.
                coefficients, constants, seen = self.below(known, source, torch.cat([rows, -rows]), taken)
                part = region.within(seen)
                lowest = part.lowest(coefficients) + part.at_center(coefficients) + constants
                lowest += torch.cat([added, -added])
                low[features] = low[features].maximum(lowest[: len(features)])
                high[features] = high[features].minimum(-lowest[len(features) :])
        return known[number].cut(Interval(low.view(1, *shape), high.view(1, *shape)))

    def _first_rows(
        self, known: list[Interval], number: int, places: Tensor, window: Window
    ) -> tuple[int, Tensor, Constants, Window]:
        """Features of a value as linear functions of it, or of the source of a convolution, where they are its filters.

        These are the same away from the edges of an image, for every region and point, and are cached.
        """
        step, extent = self.steps[number - 1], _extent(self._shape(number), window)
        features = math.prod(extent)
        if isinstance(step.layer, Conv) and window:
            (source,) = step.sources
            layer, taken = step.layer.at(window, known[source].low.shape)
            if features * math.prod(_extent(self._shape(source), taken)) <= _COEFFICIENTS_AT_ONCE:
                key = (number, layer.cut, extent, tuple(map(len, taken)))
                if key not in self._filters:
                    each = torch.eye(features, dtype=known[0].low.dtype, device=known[0].low.device)
                    (rows,), constants = layer.substitute(each.view(-1, *extent), known[source].within(taken))
                    self._filters[key] = rows.contiguous(), constants
                rows, constants = self._filters[key]
                return source, rows[places], constants[places], taken
        rows = known[0].low.new_zeros(len(places), features)
        rows[torch.arange(len(places), device=rows.device), places] = 1.0
        return number, rows.view(-1, *extent), rows.new_zeros(len(rows)), window

    @cached_property
    def _filters(self) -> dict[object, tuple[Tensor, Constants]]:
        return {}

    @cached_property
    def _bent(self) -> dict[int, list[tuple[ReLU | MaxPool, bool]]]:
        """For each value, the nonlinear layers that take it, and whether only ReLUs take their outputs.

        Outputs of a ReLU or a max-pooling are not among the values: their bounds are (nearly) as good as those of
        their inputs.
        """
        bent: dict[int, list[tuple[ReLU | MaxPool, bool]]] = {}
        for number, step in enumerate(self.steps, start=1):
            (source, *_) = step.sources
            behind_one = source and isinstance(self.steps[source - 1].layer, ReLU | MaxPool)
            if isinstance(step.layer, ReLU | MaxPool) and not behind_one:
                users = [user.layer for user in self.steps if number in user.sources]
                only_relus = bool(users) and all(isinstance(user, ReLU) for user in users)
                bent.setdefault(source, []).append((step.layer, only_relus))
        return bent

    @cached_property
    def _on_input(self) -> set[int]:
        """Linear layers and convolutions of the input itself, perhaps in another shape."""
        return self._first((Reshape,))

    def _exact(self, dual: float) -> set[int]:
        """Values whose interval bounds are as good as linear ones: linear functions of the input.

        For Linf that holds behind anything done feature by feature, for L2 and L1 the dual norm is that of the input.
        """
        exact = self._first((Reshape, Scale) if dual == 1 else (Reshape,)) | {0}
        for number, step in enumerate(self.steps, start=1):
            if isinstance(step.layer, Reshape | Scale) and step.sources[0] in exact:
                exact.add(number)
        return exact

    def _first(self, through: tuple[type, ...]) -> set[int]:
        passed, first = {0}, set()
        for number, step in enumerate(self.steps, start=1):
            if step.sources[0] in passed and isinstance(step.layer, through):
                passed.add(number)
            elif step.sources[0] in passed and isinstance(step.layer, Linear | Conv):
                first.add(number)
        return first

    @cached_property
    def _upstream(self) -> dict[int, tuple[int, int, int]]:
        """How many coefficients a linear bound of a value has back to the input: in total, and at most at once.

        The total is without elementwise layers, which exporters fold into those before them.
        And the side of tiles whose bounds are computed together: 0 where they would see most of the input anyway.
        """
        return {number: self._cost(number) for number in self._bent}

    def _cost(self, number: int) -> tuple[int, int, int]:
        whole = [math.prod(self._shape(reached)) for reached, _ in self._worked(number, ())]
        axes = self._shape(number)[1:]
        # In the middle, where edges cut nothing off.
        middle = tuple(range(size)[max(0, (size - self.tile) // 2) :][: self.tile] for size in axes)
        tiled = [math.prod(_extent(self._shape(reached), window)) for reached, window in self._worked(number, middle)]
        if not axes or sum(tiled) > sum(whole) / 2:
            return sum(whole), max(whole), 0
        return sum(tiled), max(tiled), self.tile

    def _worked(self, number: int, window: Window) -> list[tuple[int, Window]]:
        folded = {number for number, step in enumerate(self.steps, start=1) if isinstance(step.layer, Reshape | Scale)}
        return [(reached, of_it) for reached, of_it in self._seen(number, window) if reached not in folded]

    def _seen(self, number: int, window: Window) -> list[tuple[int, Window]]:
        """The values between a window of one and the input, and the window of each."""
        waiting, seen = {number: window}, []
        for reached in range(number, 0, -1):
            if reached not in waiting:
                continue
            step, window = self.steps[reached - 1], waiting.pop(reached)
            seen.append((reached, window))
            for source in step.sources:
                local = step.layer.at(window, torch.Size([1, *self._shape(source)])) if window else None
                taken = () if local is None else local[1]
                waiting[source] = _union(waiting[source], taken) if source in waiting else taken
        return [*seen, *waiting.items()]

    def _shape(self, number: int) -> torch.Size:
        return self.steps[number - 1].shape if number else self.shape


def _extent(shape: torch.Size, window: Window) -> tuple[int, ...]:
    return (shape[0], *(len(places) for places in window)) if window else tuple(shape)


def _union(one: Window, other: Window) -> Window:
    """The smallest window around both."""
    if not one or not other:
        return ()
    return tuple(range(min(a.start, b.start), max(a.stop, b.stop)) for a, b in zip(one, other, strict=True))


def _sum(one: tuple[Tensor, Window] | None, other: tuple[Tensor, Window], shape: torch.Size) -> tuple[Tensor, Window]:
    if one is None:
        return other
    union = _union(one[1], other[1])
    return _placed(*one, union, shape) + _placed(*other, union, shape), union


def _placed(rows: Tensor, window: Window, target: Window, shape: torch.Size) -> Tensor:
    """The same coefficients in a larger window: 0 around them."""
    if window == target:
        return rows
    places = target or tuple(range(size) for size in shape[1:])
    sides = [(a.start - b.start, b.stop - a.stop) for a, b in zip(window, places, strict=True)]
    return F.pad(rows, [side for pair in reversed(sides) for side in pair])


def _tiles(features: Tensor, shape: torch.Size, side: int) -> Iterator[tuple[Tensor, Window]]:
    """Features by the tile of the image they are in; all at once if the side is 0."""
    if not side:
        if len(features):
            yield features, ()
        return
    axes = torch.unravel_index(features % math.prod(shape[1:]), shape[1:])
    tile = torch.stack([places // side for places in axes], 1)
    for corner in tile.unique(dim=0):
        starts = [int(place) * side for place in corner]
        window = tuple(range(start, min(start + side, size)) for start, size in zip(starts, shape[1:], strict=True))
        yield features[(tile == corner).all(1)], window


def _within(features: Tensor, shape: torch.Size, window: Window) -> Tensor:
    """Their numbers among those of the window alone."""
    if not window:
        return features
    channel, *places = torch.unravel_index(features, shape)
    for place, axis in zip(places, window, strict=True):
        channel = channel * len(axis) + place - axis.start
    return channel
