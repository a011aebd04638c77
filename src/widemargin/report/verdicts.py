"""Did a claim hold?  Held, not held, or undecided: as far as the seeds and the test points can tell."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from statistics import fmean, stdev
from typing import Literal

from widemargin.measure.interval import wilson

Outcome = Literal["held", "not held", "undecided"]
_T = (12.706, 4.303, 3.182, 2.776, 2.571, 2.447, 2.365, 2.306, 2.262, 2.228, 2.201, 2.179, 2.160, 2.145, 2.131)
"""Student's t for 95 %, by degrees of freedom from 1 on; beyond, the normal distribution's, widened."""


@dataclass(frozen=True)
class Estimate:
    """A number, and between which bounds it lies in 95 of 100 repetitions."""

    value: float
    low: float
    high: float

    def __post_init__(self) -> None:
        if not self.low <= self.value <= self.high:
            raise ValueError(f"an estimate must lie between its bounds, got {self}")

    def __str__(self) -> str:
        return f"{self.value:.3g} [{self.low:.3g}, {self.high:.3g}]"


def mean_of(values: Sequence[float]) -> Estimate:
    """The mean over seeds, by Student's t; of one seed nothing is known but its value."""
    middle = fmean(values)
    half = math.inf if len(values) == 1 else student(len(values)) * stdev(values) / math.sqrt(len(values))
    return Estimate(middle, middle - half, middle + half)


def accuracy_of(shares: Sequence[float], n: int) -> Estimate:
    """A mean accuracy of seeds that were all judged on the same n points: those are a sample too (Wilson), so the
    bounds are the wider ones of both samples; of one seed, those of the points."""
    middle = fmean(shares)
    counted = wilson(round(middle * n), n)
    # The mean of several seeds need not be a share of n.
    low, high = min(counted.low, middle), max(counted.high, middle)
    if len(shares) > 1:
        seeds = mean_of(shares)
        low, high = min(low, max(seeds.low, 0.0)), max(high, min(seeds.high, 1.0))
    return Estimate(middle, low, high)


def mean_of_two(one: Estimate, two: Estimate) -> Estimate:
    """Such as a trade-off, the mean of clean and robust accuracy; errors that do not depend on each other."""
    middle = (one.value + two.value) / 2
    low, high = (
        math.hypot(getattr(one, side) - one.value, getattr(two, side) - two.value) / 2 for side in ("low", "high")
    )
    return Estimate(middle, middle - low, middle + high)


def difference(one: Estimate, two: Estimate) -> Estimate:
    """one - two, with bounds by Newcombe's square-and-add (1998); cautious where both saw the same points."""
    middle = one.value - two.value
    low = math.hypot(one.value - one.low, two.high - two.value)
    high = math.hypot(one.high - one.value, two.value - two.low)
    return Estimate(middle, middle - low, middle + high)


def greater(one: Estimate, two: Estimate | float) -> Outcome:
    """Is one greater than two?  Undecided if the bounds of their difference lie on both sides of 0."""
    other = two if isinstance(two, Estimate) else Estimate(two, two, two)
    found = difference(one, other)
    return "held" if found.low > 0 else "not held" if found.high < 0 else "undecided"


def in_most_seeds(seen: Sequence[bool]) -> Outcome:
    """Is it so in more than half of all seeds, going by those that were tried (Wilson)?"""
    counted = wilson(sum(seen), len(seen))
    return "held" if counted.low > 0.5 else "not held" if counted.high < 0.5 else "undecided"


def exactly(seen: bool) -> Outcome:
    """Of what is computed rather than sampled: an identity, a deterministic picture."""
    return "held" if seen else "not held"


def all_of(outcomes: Iterable[Outcome]) -> Outcome:
    found = list(outcomes)
    if "not held" in found:
        return "not held"
    return "undecided" if "undecided" in found else "held"


def most_of(outcomes: Iterable[Outcome]) -> Outcome:
    """Of more than half of these."""
    found = list(outcomes)
    if 2 * found.count("held") > len(found):
        return "held"
    return "not held" if 2 * found.count("not held") >= len(found) else "undecided"


def student(count: int) -> float:
    """The factor for the mean of so many values, 95 %."""
    return _T[count - 2] if count - 2 < len(_T) else 1.96 * (1 + 1.3 / (count - 1))
