"""The words of `widemargin resume`, `runs` and `export`."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Literal

from rich.console import Console
from tyro.conf import Positional, arg

from widemargin.cli.stopping import StopAfter

RunName = Annotated[Positional[Path], arg(metavar="RUN")]


@dataclass(frozen=True)
class Resume:
    """Resume a run that was interrupted.  A network of your own file is imported again."""

    run: RunName
    """Its folder, or its name in runs/."""
    device: str = "cpu"
    """cpu or cuda."""
    stop_after: StopAfter = None
    """Save and stop after this time, as 90s, 30m, 2h or 1d; Ctrl-C and SIGTERM save too. (default: at the end)"""
    tensorboard: bool = False
    """Write for TensorBoard too."""

    def __call__(self, console: Console) -> None:
        from widemargin.cli.runs import resume

        resume(self, console)


@dataclass(frozen=True)
class Runs:
    """List runs with their metrics: the best validation so far, and those on the test split once a run is done."""

    folder: Annotated[Positional[Path], arg(metavar="[FOLDER]")] = Path("runs")
    """Folder of the runs."""
    json: Annotated[bool, arg(help_behavior_hint="")] = False
    """Print JSON instead of tables; docs/command-line.md has the keys."""

    def __call__(self, console: Console) -> None:
        from widemargin.cli.runs import list_runs

        list_runs(self, console)


@dataclass(frozen=True)
class Export:
    """Write a run's network for use elsewhere."""

    run: RunName
    """Its folder, or its name in runs/."""
    to: Path
    """model.safetensors (weights), model.pt2 (torch.export) or model.onnx (needs widemargin[onnx])."""
    weights: Literal["best", "last"] = "best"
    """Checkpoint: the best by robust accuracy on the validation split, or the last."""

    def __call__(self, console: Console) -> None:
        from widemargin.cli.runs import export_run

        export_run(self, console)
