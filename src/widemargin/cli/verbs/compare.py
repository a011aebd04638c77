"""The words of `widemargin compare`."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

from rich.console import Console
from tyro.conf import Positional, arg


@dataclass(frozen=True)
class Compare:
    """Compare runs that are done: clean and robust accuracy and their mean, over seeds; one table for each dataset.

    Robust accuracy is the audit's if all runs have one, else that under the PGD attack of the validation.  Other models
    are compared by their audits.  For example:

    widemargin compare runs/1a2b3c model.onnx audits/other.pt2"""

    runs: Annotated[Positional[tuple[Path, ...]], arg(metavar="RUN...", help_behavior_hint="")]
    """Folders of runs, folders of such folders, folders of audits, or model files that were audited."""
    to: Annotated[Path | None, arg(metavar="FILE", help_behavior_hint="")] = None
    """table.md, table.tex or table.html; without it the table is printed."""
    json: Annotated[bool, arg(help_behavior_hint="")] = False
    """Print JSON instead of tables; docs/command-line.md has the keys."""

    def __call__(self, console: Console) -> None:
        from widemargin.cli.compare import compare_runs

        compare_runs(self, console)
