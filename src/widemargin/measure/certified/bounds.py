"""Between which values do a network's outputs stay, wherever in a region its input is?"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property

import torch
from torch import Tensor

from widemargin.measure.certified.layers import Constants, Conv, Interval, Layer, Linear, MaxPool, ReLU, Reshape, Scale
from widemargin.measure.certified.region import Region

WORK_PER_LAYER = 2**25
"""Coefficients that may be computed to refine one layer for one point: see `Program.intervals`."""
_COEFFICIENTS_AT_ONCE = 2**20


@dataclass(frozen=True, eq=False)
class Step:
    layer: Layer
    sources: tuple[int, ...]
    """Numbers of the values it takes: 0 is the input, k what step k - 1 returns."""
    features: int
    """How many it returns for a point."""


@dataclass(frozen=True, eq=False)
class Program:
    """A network as a list of steps, each taking what earlier ones return; the last one returns the logits."""

    inputs: int
    """Features of a point."""
    steps: tuple[Step, ...]

    def intervals(self, region: Region) -> list[Interval]:
        """Of every value, the input first: the tighter end of all that is known.

        Interval bounds for all.  What goes into a ReLU or a max-pooling is refined by linear bounds back to the input
        (CROWN), feature by feature, those first whose relaxation is loosest, until `WORK_PER_LAYER` is spent: all
        features that need it for a LeNet or an MLP, all of the few that bend in a small ball for a narrow ResNet;
        the others keep what interval bounds of refined sources say (as CROWN-IBP has for all).
        """
        known, exact = [region.interval()], self._exact(region.dual)
        for number, step in enumerate(self.steps, start=1):
            interval = step.layer.interval(*(known[source] for source in step.sources))
            if isinstance(step.layer, Linear | Conv) and number in self._on_input:
                middle = step.layer.interval(Interval(region.center, region.center)).low
                reach = region.radius * step.layer.lengths(region.dual)
                interval = interval.cut(Interval(middle - reach, middle + reach))
            known.append(interval)
            if number in self._bent and number not in exact:
                known[number] = self._refined(known, number, region)
        return known

    @property
    def is_linear(self) -> bool:
        return not any(isinstance(step.layer, ReLU | MaxPool) for step in self.steps)

    def below(self, known: list[Interval], number: int, rows: Tensor) -> tuple[Tensor, Constants]:
        """Linear functions of the input that lie below `rows` of value `number`: coefficients and constants."""
        coefficients, constants = rows.new_zeros(len(rows), *known[0].low.shape[1:]), rows.new_zeros(len(rows))
        for reached, part, constant in self._back(known, number, rows):
            constants = constants + constant
            if reached == 0:
                coefficients = part
        return coefficients, constants

    def rounded_terms(self, point: Tensor, rows: Tensor) -> Constants:
        """The size of all terms that are rounded on the way from the point [1, *F] to `rows` of the logits.

        To first order, as in a running error analysis (Higham 2002, Sec. 3.3): each step's terms without their signs,
        times what the logits make of a change there.  The precision times this is how wrong an answer may be.
        """
        known = [Interval(point, point)]
        sizes = [point.abs()]
        for step in self.steps:
            sources = [known[source] for source in step.sources]
            known.append(step.layer.interval(*sources))
            low, high = step.layer.interval(*(Interval(-source.low.abs(), source.low.abs()) for source in sources))
            sizes.append(torch.maximum(low.abs(), high.abs()))
        back = self._back(known, len(self.steps), rows)
        return sum((part.abs().flatten(1) @ sizes[reached].flatten() for reached, part, _ in back), rows.new_zeros(()))

    def _back(self, known: list[Interval], number: int, rows: Tensor) -> Iterator[tuple[int, Tensor, Constants]]:
        """For each value on the way to the input: its number, coefficients of it, and constants its step adds."""
        waiting = {number: rows}
        for reached in range(number, 0, -1):
            if reached not in waiting:
                continue
            step, rows = self.steps[reached - 1], waiting.pop(reached)
            parts, constants = step.layer.substitute(rows, *(known[source] for source in step.sources))
            yield reached, rows, constants
            for source, part in zip(step.sources, parts, strict=True):
                waiting[source] = waiting[source] + part if source in waiting else part
        if 0 in waiting:
            yield 0, waiting[0], rows.new_zeros(len(rows))

    def _refined(self, known: list[Interval], number: int, region: Region) -> Interval:
        low, high = (end.flatten().clone() for end in known[number])
        found = [layer.looseness(known[number], rectified).flatten() for layer, rectified in self._bent[number]]
        looseness = torch.stack(found).amax(0)
        work, widest = self._upstream[number]
        loosest = looseness.sort(descending=True, stable=True).indices[: WORK_PER_LAYER // work]
        loosest = loosest[looseness[loosest] > 0]
        for features in loosest.split(max(1, _COEFFICIENTS_AT_ONCE // (2 * widest))) if len(loosest) else ():
            rows = low.new_zeros(2, len(features), len(low))
            each = torch.arange(len(features), device=low.device)
            # The highest value of a feature is minus the lowest of its negative.
            rows[0, each, features], rows[1, each, features] = 1.0, -1.0
            rows = rows.view(-1, *known[number].low.shape[1:])
            coefficients, constants = self.below(known, number, rows)
            lowest = region.lowest(coefficients) + region.at_center(coefficients) + constants
            low[features] = low[features].maximum(lowest[: len(features)])
            high[features] = high[features].minimum(-lowest[len(features) :])
        return known[number].cut(Interval(low.view_as(known[number].low), high.view_as(known[number].high)))

    @cached_property
    def _bent(self) -> dict[int, list[tuple[ReLU | MaxPool, bool]]]:
        """For each value, the layers with bends that take it, and whether only ReLUs take what these return.

        What a ReLU returns is not among the values: it is known as well as what it takes.
        """
        bent: dict[int, list[tuple[ReLU | MaxPool, bool]]] = {}
        for number, step in enumerate(self.steps, start=1):
            (source, *_) = step.sources
            rectified = source and isinstance(self.steps[source - 1].layer, ReLU)
            if isinstance(step.layer, ReLU | MaxPool) and not rectified:
                users = [user.layer for user in self.steps if number in user.sources]
                only_relus = bool(users) and all(isinstance(user, ReLU) for user in users)
                bent.setdefault(source, []).append((step.layer, only_relus))
        return bent

    @cached_property
    def _on_input(self) -> set[int]:
        """Linear layers and convolutions of the input itself, perhaps in another shape."""
        return self._first((Reshape,))

    def _exact(self, dual: float) -> set[int]:
        """Values that are known as well as linear bounds could tell: functions of the input that do not bend.

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
    def _upstream(self) -> dict[int, tuple[int, int]]:
        """How many coefficients a linear bound of a value has on its way to the input: in all, and at most at once."""
        sizes = [self.inputs, *(step.features for step in self.steps)]
        needs: list[set[int]] = [{0}]
        for number, step in enumerate(self.steps, start=1):
            needs.append({number}.union(*(needs[source] for source in step.sources)))
        return {number: (sum(sizes[i] for i in need), max(sizes[i] for i in need)) for number, need in enumerate(needs)}
