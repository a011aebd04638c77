"""The words of `widemargin calibrate`."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, ClassVar, Literal

from rich.console import Console
from tyro.conf import Positional, arg

from widemargin.cli.verbs.data import Measured

_FIT = arg(metavar="temperature|vector", help_behavior_hint="")
_OUTSIDE = arg(metavar="TEXT...", help_behavior_hint="", aliases=("--ood",))


@dataclass(frozen=True)
class WhatToCalibrate:
    model: Annotated[Positional[str], arg(metavar="MODEL")]
    """A run's folder or its name in runs/, model.pt2, model.onnx, zoo:NAME or my_file.py:MyNet (runs that file)."""
    fit: Annotated[Literal["temperature", "vector"] | None, _FIT] = None
    """Fit one temperature, or a weight and a bias for each class, on the validation split; kept in scaling.json."""
    outside: Annotated[tuple[str, ...], _OUTSIDE] = ()
    """Out-of-distribution datasets, by name, folder or file: their test splits, images scaled to the network's size."""
    points: Annotated[int | None, arg(metavar="INT", help_behavior_hint="")] = None
    """The most examples of each set, drawn class by class. (default: all)"""
    seed: int = 0
    """Decides which examples are drawn."""
    device: str = "cpu"
    """cpu or cuda."""


@dataclass(frozen=True)
class CalibrationOutput:
    title: ClassVar[str] = "output"

    out: Annotated[Path | None, arg(metavar="FOLDER", help_behavior_hint="")] = None
    """Folder for the results. (default: the run's; for other models calibrations/ and the model's path)"""
    csv: Annotated[Path | None, arg(metavar="FILE", help_behavior_hint="")] = None
    """Write a row for each test example: label, prediction, confidence, entropy, mutual information, correct."""
    json: Annotated[bool, arg(help_behavior_hint="")] = False
    """Print JSON instead of tables; docs/command-line.md has the keys."""


@dataclass(frozen=True)
class Calibrate(CalibrationOutput, Measured, WhatToCalibrate):
    """Measure whether a classifier's confidence can be trusted: accuracy, ECE, NLL, Brier score, and how well each
    measure of uncertainty detects misclassified and out-of-distribution examples (AUROC).  Writes
    calibration.json and calibration.html.

    With --fit it scales the logits so that confidence agrees with accuracy, as well as it can: the run's predictions
    and exports are then scaled.

    For example: widemargin calibrate runs/1a2b3c --fit temperature --ood digits"""

    def __call__(self, console: Console) -> None:
        from widemargin.cli.calibrate import calibrate

        calibrate(self, console)
