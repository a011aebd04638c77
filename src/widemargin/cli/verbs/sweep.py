"""The words of `widemargin sweep`."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated, ClassVar

from rich.console import Console
from tyro.conf import arg

from widemargin.cli.verbs.data import Parts, TableColumns
from widemargin.cli.verbs.numbers import Number
from widemargin.cli.verbs.train import (
    MethodDetails,
    NetworkDetails,
    Optimization,
    TrainingData,
    Validating,
    WhatToTrain,
)

SEARCHED = ("eps", "alpha", "steps", "weight", "lr")
_RANGE = arg(metavar="NUMBER|LOW:HIGH[:log]", help_behavior_hint="")


@dataclass(frozen=True)
class SweepRanges:
    judge_eps: Number = field(kw_only=True)
    """Evaluation eps: radius of the PGD attack on the validation split by which trials are ranked; never searched."""
    eps: Annotated[str | None, _RANGE] = None
    """Radius of the ball in which points are perturbed."""
    alpha: Annotated[str | None, _RANGE] = None
    """Step size."""
    steps: Annotated[str | None, _RANGE] = None
    """Number of steps; the udp methods draw from 1 to this many."""
    weight: Annotated[str | None, _RANGE] = None
    """Weight of the regulariser."""
    lr: Annotated[str | None, _RANGE] = None
    """Peak learning rate. (default: adam .001, sgd .15)"""
    trials: int = 30
    """Number of trials in all, with those that are stopped early; more may be asked for later."""
    out: Path = Path("runs/sweep")
    """Folder for the trials, each with a run's folder in it, and for the report."""


@dataclass(frozen=True)
class SweepOutput:
    title: ClassVar[str] = "validation and output"

    storage: Annotated[str | None, arg(metavar="ADDRESS", help_behavior_hint="")] = None
    """Database: sqlite:///FILE, or one for many computers, as postgresql://HOST/NAME. (default: sweep.db in --out)"""
    json: Annotated[bool, arg(help_behavior_hint="")] = False
    """Print JSON instead of tables; docs/command-line.md has the keys."""


@dataclass(frozen=True)
class Sweep(
    SweepOutput,
    Validating,
    Optimization,
    NetworkDetails,
    MethodDetails,
    TableColumns,
    TrainingData,
    Parts,
    SweepRanges,
    WhatToTrain,
):
    """Search eps, alpha, steps, weight and lr for the best robust validation accuracy; needs 'widemargin[sweeps]'.

    The same command resumes a sweep that was interrupted; given several times, on one computer or on many with the
    same --storage, it shares the work.  Only the chosen trial is evaluated on the test split, at the end.  For example:

    widemargin sweep --data digits --method udp --judge-eps .1 --eps .1:.5 --alpha .01:.05:log --steps 5:40"""

    def __call__(self, console: Console) -> None:
        from widemargin.cli.sweep import sweep

        sweep(self, console)
