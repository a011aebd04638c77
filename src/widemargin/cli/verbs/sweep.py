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
    """Radius of the PGD attack by which all trials are judged on the validation part; it is never searched."""
    eps: Annotated[str | None, _RANGE] = None
    """Radius of the ball in which points are moved."""
    alpha: Annotated[str | None, _RANGE] = None
    """Length of a step."""
    steps: Annotated[str | None, _RANGE] = None
    """How many steps; for the udp methods the most that are drawn."""
    weight: Annotated[str | None, _RANGE] = None
    """Of the regulariser."""
    lr: Annotated[str | None, _RANGE] = None
    """Peak learning rate.  [adam .001, sgd .15]"""
    trials: int = 30
    """How many settings in all, with those that are stopped early; more may be asked for later."""
    out: Path = Path("runs/sweep")
    """Folder for the trials, each with a run's folder in it, and for the report."""


@dataclass(frozen=True)
class SweepOutput:
    title: ClassVar[str] = "validation and output"

    storage: Annotated[str | None, arg(metavar="ADDRESS", help_behavior_hint="")] = None
    """Database: sqlite:///FILE, or one for many computers, as postgresql://HOST/NAME.  [sweep.db in --out]"""
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

    For example: widemargin sweep --data digits --method udp --eps .1:.5 --alpha .01:.05:log --steps 5:40 --judge-eps
    .1.  The same command goes on with a sweep that was interrupted; given several times, on one computer or on
    many that share --storage, it shares the work.  The test part judges the chosen trial alone, at the end."""

    def __call__(self, console: Console) -> None:
        from widemargin.cli.sweep import sweep

        sweep(self, console)
