"""Within which ball around a point does no other point get another class?"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import cached_property
from math import inf, sqrt

import torch
from torch import Tensor, nn

from widemargin.data.examples import Examples
from widemargin.measure.accuracy import Right
from widemargin.measure.certified.bounds import Program
from widemargin.measure.certified.reading import read
from widemargin.measure.certified.region import Region
from widemargin.perturb.balls import Ball
from widemargin.shapes import PerSample
from widemargin.uncertainty.network import Network

SLACK = 4
"""By how many roundings of its terms, in the network's precision, a lead must be above 0 to count as one."""
TOLERANCE = 0.02
"""A certified radius is not looked for beyond this share of it."""
_PASSES = 12
_HALVINGS = 40
_TINY = 1e-12


def certified(
    network: Network | nn.Module, examples: Examples, ball: Ball, tick: Callable[[int], None] = lambda done: None
) -> Right:
    """For every example, whether it is proven that no point of the ball (cut with its box) is classified otherwise.

    False says nothing: the proof may be too weak.  Who is certified is certified in every smaller ball, too; that a
    proof is found there as well is the rule, but relaxations change with the radius.  `tick` gets the number of
    examples done.  A network that torch.fx cannot trace, of several members, or with an unknown layer: ValueError.
    """
    found = []
    for problem in _problems(network, examples, ball):
        found.append(problem.proven())
        tick(len(found))
    return torch.tensor(found, device=examples.labels.device)


def certified_radius(
    network: Network | nn.Module, examples: Examples, ball: Ball, tick: Callable[[int], None] = lambda done: None
) -> PerSample:
    """For every example, the largest radius up to `ball.radius` for which the ball, cut with its box, is certified.

    0 for an example that is classified wrong.  It is certified indeed, and within about 2 % of the largest that could
    be proven; where bounds are exact, as for a linear network, it is the largest there is.
    """
    found = []
    for problem in _problems(network, examples, ball):
        found.append(problem.largest())
        tick(len(found))
    return torch.tensor(found, dtype=torch.float64, device=examples.labels.device)


@dataclass(frozen=True, eq=False)
class _Leads:
    """Of the right class over each other one: linear functions of the input that lie below them in a region."""

    region: Region
    coefficients: Tensor
    start: Tensor
    """Their values at the center, less what may be rounding."""
    in_interval: Tensor
    """Lower bounds of the leads themselves, by intervals."""

    @property
    def lowest(self) -> float:
        return float(self._linear(self.region).maximum(self.in_interval).min())

    def reach(self, highest: float) -> float:
        """Up to which radius they prove a lead: they hold in every ball that is smaller than their own."""
        if not self._prove(0.0):
            return 0.0
        if self._prove(highest):
            return highest
        low, high = 0.0, highest
        for _ in range(_HALVINGS):
            middle = (low + high) / 2
            low, high = (middle, high) if self._prove(middle) else (low, middle)
        return low

    def _prove(self, radius: float) -> bool:
        return bool((self._linear(self.region.of_radius(radius)) > 0).all())

    def _linear(self, region: Region) -> Tensor:
        return self.start + region.lowest(self.coefficients)


@dataclass(frozen=True, eq=False)
class _Problem:
    """One point, alone: so its answer cannot depend on others, and memory is that of one point's bounds."""

    program: Program
    region: Region
    label: int
    precision: float
    """Of the network's own numbers."""

    def leads(self, radius: float) -> _Leads:
        region = self.region.of_radius(radius)
        known = self.program.intervals(region)
        low, high = (end.flatten() for end in known[-1])
        rows = self._rows
        coefficients, constants = self.program.below(known, len(self.program.steps), rows)
        start = region.at_center(coefficients) + constants - self._slack
        in_interval = low[self.label] - high[torch.arange(len(high)) != self.label] - self._slack
        return _Leads(region, coefficients, start, in_interval)

    def proven(self) -> bool:
        # Cheap, and spares all bounds of a point that is classified wrong.
        return self.leads(0.0).lowest > 0 and self.leads(self.region.radius).lowest > 0

    def largest(self) -> float:
        """By trials, each where the lowest lead would end if it were a quadratic function of the radius."""
        highest = self.region.radius
        clean = self.leads(0.0)
        if not clean.lowest > 0:
            return 0.0
        # As if nothing bent: where nothing does, the truth; elsewhere bounds reach about a sixth of it.
        straight = clean.reach(highest)
        trial = min(straight * (1 + TOLERANCE if self.program.is_linear else 1 / 6), highest)
        low, high = 0.0, inf
        falls = [(0.0, clean.lowest / max(straight, _TINY))]
        for _ in range(_PASSES):
            if trial < _TINY:
                break
            leads = self.leads(trial)
            falls.append((trial, (clean.lowest - leads.lowest) / trial))
            if leads.lowest > 0:
                low = trial
            else:
                low, high = max(low, leads.reach(trial)), trial
            if low >= highest or high <= (1 + TOLERANCE) * low:
                break
            trial = min(_next_trial(falls, clean.lowest, low, high), highest)
        return low

    @cached_property
    def _rows(self) -> Tensor:
        rows = -torch.eye(self.program.steps[-1].features, dtype=torch.float64, device=self.region.center.device)
        rows[:, self.label] = 1.0
        return rows[torch.arange(len(rows)) != self.label]

    @cached_property
    def _slack(self) -> Tensor:
        return SLACK * self.precision * self.program.rounded_terms(self.region.center, self._rows)


def _next_trial(falls: list[tuple[float, float]], clean: float, low: float, high: float) -> float:
    """`falls` are radii and how fast the lead has fallen up to them, on average: taken for a line between the last two.

    Within the bracket, and near one of its ends only to close it.
    """
    (first, fall), (second, later) = sorted(falls, key=lambda tried: abs(clean - tried[0] * tried[1]))[:2]
    bend = (later - fall) / (second - first) if second != first else 0.0
    start = fall - bend * first
    square = start**2 + 4 * bend * clean
    end = 2 * clean / (start + sqrt(square)) if square >= 0 and start + sqrt(square) > 0 else inf
    least = max(low * (1 + 0.8 * TOLERANCE), 0.0 if high == inf else high / 16)
    most = 4 * low if high == inf else high * (1 - 0.8 * TOLERANCE) if low else high / 2
    return sqrt(least * most) if least >= most else min(max(end, least), most)


def _problems(network: Network | nn.Module, examples: Examples, ball: Ball) -> Iterator[_Problem]:
    rows = torch.arange(len(examples))
    # Two points at least: with one, a network's own shapes say nothing of which axis is the batch.
    program = read(network, examples.batch(rows[[0, -1]])[0])
    for row in rows:
        inputs, labels = examples.batch(row[None])
        ball.box.check(inputs)
        yield _Problem(program, Region.around(inputs[0], ball), int(labels), torch.finfo(inputs.dtype).eps)
