"""The words of `widemargin audit`."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, ClassVar

from rich.console import Console
from tyro.conf import Positional, arg

from widemargin.cli.verbs.choices import NORM
from widemargin.cli.verbs.data import CATEGORY_CHANGES, PERTURB_CATEGORIES, Measured
from widemargin.cli.verbs.numbers import Number

_OPTIONAL = arg(metavar="TEXT", help_behavior_hint="")


@dataclass(frozen=True)
class WhatToAudit:
    model: Annotated[Positional[str], arg(metavar="MODEL")]
    """A run's folder or its name in runs/, model.pt2, model.onnx, zoo:NAME or my_file.py:MyNet (runs that file)."""
    eps: Annotated[tuple[Number, ...], arg(metavar="NUMBER...")]
    """Radii, one or more, as .05 .1 or 8/255."""
    norm: Annotated[str, NORM] = "linf"
    """Norm of the balls."""
    points: int = 1_000
    """How many test points, drawn at random."""
    budget: Annotated[str | None, _OPTIONAL] = None
    """Stop after this time, as 90s, 10m or 2h, and say what was left out. (default: none)"""
    box: Annotated[tuple[str, ...] | None, arg(metavar="unit|open|data|LOW HIGH", help_behavior_hint="")] = None
    """Valid inputs: [0, 1], any, each column's range, or LOW to HIGH. (default: unit for images, open for tables)"""
    perturb_categories: Annotated[tuple[str, ...] | None, PERTURB_CATEGORIES] = None
    category_changes: Annotated[int | None, CATEGORY_CHANGES] = None
    seed: int = 0
    """Decides which points are drawn, and all that attacks draw."""
    device: str = "cpu"
    """cpu or cuda."""


@dataclass(frozen=True)
class AuditOutput:
    title: ClassVar[str] = "output"

    out: Annotated[Path | None, arg(metavar="FOLDER", help_behavior_hint="")] = None
    """Folder for the results. (default: the run's; for other models audits/ and the model's path)"""
    save_adversarial: Annotated[bool, arg(help_behavior_hint="")] = False
    """Write the adversarial examples, too: adversarial.npz, and adversarial.png for images."""
    json: Annotated[bool, arg(help_behavior_hint="")] = False
    """Print JSON instead of tables; docs/command-line.md has the keys."""


@dataclass(frozen=True)
class Audit(AuditOutput, Measured, WhatToAudit):
    """Measure how robust any classifier is: AutoAttack at several radii, margins, certified bounds, and
    whether the numbers can be trusted.  Writes audit.json, points.json and audit.html; for l2
    and l1 audit-l2.json and so on, so that norms are kept side by side.

    The same command resumes an audit that was interrupted.  For example:

    widemargin audit runs/1a2b3c --eps .05 .1 .2"""

    def __call__(self, console: Console) -> None:
        from widemargin.cli.audit import audit_model

        audit_model(self, console)
