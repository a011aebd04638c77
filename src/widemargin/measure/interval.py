"""Confidence intervals of proportions."""

from __future__ import annotations

from dataclasses import dataclass
from statistics import NormalDist


@dataclass(frozen=True)
class Proportion:
    """`count` of n, and a confidence interval of the fraction."""

    count: int
    n: int
    low: float
    high: float

    @property
    def fraction(self) -> float:
        return self.count / self.n

    def __str__(self) -> str:
        return f"{self.fraction:.4f} [{self.low:.4f}, {self.high:.4f}] (n = {self.n})"


def wilson(count: int, n: int, level: float = 0.95) -> Proportion:
    """Wilson's score interval (1927): valid also for fractions of 0 and 1, where count +- two deviations is empty."""
    if not 0 <= count <= n or n < 1:
        raise ValueError(f"count must be in 0..n and n at least 1, got {count} of {n}")
    if not 0 < level < 1:
        raise ValueError(f"level must be in (0, 1), got {level}")
    z = NormalDist().inv_cdf((1 + level) / 2)
    fraction = count / n
    middle = (fraction + z**2 / (2 * n)) / (1 + z**2 / n)
    half = z / (1 + z**2 / n) * (fraction * (1 - fraction) / n + z**2 / (4 * n**2)) ** 0.5
    # At 0 and 1 the bounds are exactly these; only rounding would say otherwise.
    return Proportion(count, n, 0.0 if count == 0 else middle - half, 1.0 if count == n else middle + half)
