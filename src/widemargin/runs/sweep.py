"""What a sweep searches and what comes out: ranges of parameters, and trials with their validation accuracies."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal

State = Literal["complete", "pruned", "diverged"]


@dataclass(frozen=True)
class Range:
    """From low to high, both included."""

    low: float
    high: float
    log: bool = False
    whole: bool = False

    def __post_init__(self) -> None:
        if not -math.inf < self.low < self.high < math.inf:
            raise ValueError(f"a range must go from a lower to a higher number, got {self.low:g}:{self.high:g}")
        if self.log and self.low <= 0:
            raise ValueError(f"a range on a log scale must begin above 0, got {self.low:g}")
        if self.whole and not (float(self.low).is_integer() and float(self.high).is_integer()):
            raise ValueError(f"a range of whole numbers must begin and end with one, got {self.low:g}:{self.high:g}")

    def rounded(self, value: float) -> float:
        """To four digits, so that a command that repeats a trial can be read and typed."""
        return int(value) if self.whole else min(max(float(f"{value:.4g}"), self.low), self.high)


@dataclass(frozen=True)
class SweepTrial:
    """One setting, and the best validation of its run; there is none if it diverged before the first."""

    number: int
    state: State
    parameters: Mapping[str, float]
    robust: float | None
    clean: float | None

    @property
    def merit(self) -> tuple[float, float]:
        """Robust accuracy decides; among equals the clean one."""
        return (-1.0 if self.robust is None else self.robust, -1.0 if self.clean is None else self.clean)


def best_first(trials: tuple[SweepTrial, ...]) -> list[SweepTrial]:
    """Those that were trained to the end; of two equals the earlier one is first."""
    complete = [trial for trial in trials if trial.state == "complete"]
    return sorted(complete, key=lambda trial: (*(-figure for figure in trial.merit), trial.number))
