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

    @property
    def percent(self) -> str:
        """Of a share."""
        return f"{100 * self.value:.1f} [{100 * self.low:.1f}, {100 * self.high:.1f}] %"


def mean_of(values: Sequence[float]) -> Estimate:
    """The mean over seeds, by Student's t; of one seed nothing is known but its value."""
    middle = fmean(values)
    half = math.inf if len(values) == 1 else student(len(values)) * stdev(values) / math.sqrt(len(values))
    return Estimate(middle, middle - half, middle + half)


def accuracy_of(shares: Sequence[float], n: int) -> Estimate:
    """A mean accuracy of seeds that were all judged on the same n points: those are a sample too (Wilson), so the
    bounds are the wider ones of both samples; of one seed, those of the points."""
    return _wider(_counted(fmean(shares), n), shares)


def trade_off(clean: Sequence[float], robust: Sequence[float], n_clean: int, n_robust: int) -> Estimate:
    """The mean of clean and robust accuracy, seed by seed, with the wider bounds of points and seeds."""
    counted = mean_of_two(_counted(fmean(clean), n_clean), _counted(fmean(robust), n_robust))
    return _wider(counted, [(one + two) / 2 for one, two in zip(clean, robust, strict=True)])


def reported(share: float, spread: float | None, seeds: int, n: int) -> Estimate:
    """A proportion that was published elsewhere: bounds from n points and the deviation over seeds, if printed."""
    counted = _counted(share, n)
    if spread is None:
        return counted
    half = student(seeds) * spread / math.sqrt(seeds)
    return Estimate(share, min(counted.low, max(share - half, 0.0)), max(counted.high, min(share + half, 1.0)))


def _counted(share: float, n: int) -> Estimate:
    counted = wilson(round(share * n), n)
    # The mean of several seeds need not be a share of n.
    return Estimate(share, min(counted.low, share), max(counted.high, share))


def _wider(counted: Estimate, shares: Sequence[float]) -> Estimate:
    if len(shares) == 1:
        return counted
    seeds = mean_of(shares)
    low, high = min(counted.low, max(seeds.low, 0.0)), max(counted.high, min(seeds.high, 1.0))
    return Estimate(counted.value, low, high)


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
    gap = difference(one, other)
    return "held" if gap.low > 0 else "not held" if gap.high < 0 else "undecided"


def smaller(one: Estimate, two: Estimate | float) -> Outcome:
    other = two if isinstance(two, Estimate) else Estimate(two, two, two)
    return greater(other, one)


def in_most_seeds(seen: Sequence[bool]) -> Outcome:
    """Is it so in more than half of all seeds, going by those that were tried (Wilson)?"""
    counted = wilson(sum(seen), len(seen))
    return "held" if counted.low > 0.5 else "not held" if counted.high < 0.5 else "undecided"


def exactly(seen: bool) -> Outcome:
    """Of what is computed rather than sampled: an identity, a deterministic picture."""
    return "held" if seen else "not held"


def scaled(one: Estimate, factor: float) -> Estimate:
    assert factor > 0
    return Estimate(one.value * factor, one.low * factor, one.high * factor)


def all_of(outcomes: Iterable[Outcome]) -> Outcome:
    listed = list(outcomes)
    if "not held" in listed:
        return "not held"
    return "undecided" if "undecided" in listed else "held"


def most_of(outcomes: Iterable[Outcome]) -> Outcome:
    """Of more than half of these."""
    listed = list(outcomes)
    if 2 * listed.count("held") > len(listed):
        return "held"
    return "not held" if 2 * listed.count("not held") >= len(listed) else "undecided"


def student(count: int) -> float:
    """The factor for the mean of so many values, 95 %."""
    return _T[count - 2] if count - 2 < len(_T) else 1.96 * (1 + 1.3 / (count - 1))
