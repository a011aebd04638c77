"""The words of `widemargin calibrate`."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Literal

from rich.console import Console
from tyro.conf import Positional, arg

_OPTIONAL = arg(metavar="TEXT", help_behavior_hint="")


@dataclass(frozen=True)
class Calibrate:
    """Measure whether a classifier's confidence can be trusted: accuracy, ECE, NLL, Brier score, and how well each
    measure of uncertainty separates misclassified from correct examples and other data from its own (AUROC).  Writes
    calibration.json and calibration.html.

    With --fit it scales the logits so that confidence agrees with accuracy, as well as it can: the run's predictions
    and exports are then scaled.

    For example: widemargin calibrate runs/1a2b3c --fit temperature --outside digits."""

    model: Annotated[Positional[str], arg(metavar="MODEL")]
    """A run's folder or its name in runs/, model.pt2, model.onnx, zoo:NAME or my_file.py:MyNet (runs that file)."""
    outside: Annotated[tuple[str, ...], arg(metavar="TEXT...", help_behavior_hint="")] = ()
    """Names, folders or files of other datasets; of each the test part, images scaled to the network's size."""
    fit: Annotated[Literal["temperature", "vector"] | None, arg(help_behavior_hint="")] = None
    """Fit one temperature, or a weight and a bias for each class, on the validation part; kept in scaling.json."""
    csv: Annotated[Path | None, arg(metavar="FILE", help_behavior_hint="")] = None
    """Write a row for each test example: label, prediction, confidence, entropy, mutual information, correct."""
    data: Annotated[str | None, _OPTIONAL] = None
    """A name, folder or file, as for `widemargin train`; its test part is used.  [the run's]"""
    test: Annotated[str | None, arg(metavar="FILE", help_behavior_hint="")] = None
    """A file or folder like that of --data, all examples of which are used.  [the run's]"""
    weights: Annotated[Path | None, arg(metavar="FILE", help_behavior_hint="")] = None
    """Weights for my_file.py:MyNet: .safetensors, or a .pt state dict."""
    points: Annotated[int | None, arg(metavar="INT", help_behavior_hint="")] = None
    """The most examples of each set, drawn class by class.  [all]"""
    label: Annotated[str | None, _OPTIONAL] = None
    """Column of the labels in a table.  [as in training; for models of others label]"""
    decimal: Annotated[Literal[",", "."] | None, arg(metavar=",|.", help_behavior_hint="")] = None
    """Decimal mark in columns of a table that could be read with either, such as 1,234.  [the run's]"""
    size: Annotated[tuple[int, int] | None, arg(metavar="HEIGHT WIDTH", help_behavior_hint="")] = None
    """Height and width to which a folder's images are scaled."""
    seed: int = 0
    """Decides which examples are drawn."""
    out: Annotated[Path | None, arg(metavar="FOLDER", help_behavior_hint="")] = None
    """Folder for the results.  [the run's; for other models calibrations/ and the model's path]"""
    device: str = "cpu"
    """cpu or cuda."""
    json: Annotated[bool, arg(help_behavior_hint="")] = False
    """Print JSON instead of tables; docs/command-line.md has the keys."""

    def __call__(self, console: Console) -> None:
        from widemargin.cli.calibrate import calibrate

        calibrate(self, console)
