"""What can be done with runs that are there?"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Literal

import rich.console
import rich.table
from rich.text import Text
from tyro.conf import Positional, arg

from widemargin.cli.display import say
from widemargin.cli.stopping import StopAfter, listening
from widemargin.cli.train import device_of, do
from widemargin.conduct.description import read_description, read_trial
from widemargin.conduct.export import export
from widemargin.conduct.folder import RunFolder
from widemargin.conduct.task import task_of

RunName = Annotated[Positional[Path], arg(metavar="RUN")]


@dataclass(frozen=True)
class Resume:
    """Go on with a run that was interrupted.  A network of your own file is imported again."""

    run: RunName
    """Its folder, or its name in runs/."""
    device: str = "cpu"
    """cpu or cuda."""
    stop_after: StopAfter = None
    """Save and leave after this time, as 90s, 30m, 2h or 1d, with exit code 0.  Ctrl-C (exit code 130; twice leaves at
    once) and SIGTERM (143) save too.  [at the end]"""
    tensorboard: bool = False
    """Write for TensorBoard too."""

    def __call__(self, console: rich.console.Console) -> None:
        with listening(self.stop_after) as wish:
            folder = _folder(self.run)
            folder.restore_description()
            title = str(read_description(folder.description).get("title", ""))
            task = task_of(read_trial(folder.description), None, device_of(self.device), title)
            do(task, folder, console, self.tensorboard, wish)


@dataclass(frozen=True)
class Runs:
    """List runs with their figures: the best validation so far, and the test part once a run is done."""

    folder: Annotated[Positional[Path], arg(metavar="FOLDER")] = Path("runs")
    """Where they are."""

    def __call__(self, console: rich.console.Console) -> None:
        table = rich.table.Table()
        for heading in ("run", "what", "update", "loss", "clean", "robust", "test clean", "test robust"):
            table.add_column(heading, no_wrap=heading == "run")
        names = ("run.yaml", "checkpoint.safetensors")
        found = {path.parent for name in names for path in self.folder.glob(f"*/{name}")}
        for path in sorted(found):
            cells = _row(RunFolder(path))
            if cells:
                # Text, since what users call their folders is no markup.
                table.add_row(*map(Text, (path.name, *cells)))
        if table.row_count == 0:
            raise ValueError(f"there is no run in {self.folder}/: begin one with `widemargin train`")
        console.print(table)


@dataclass(frozen=True)
class Export:
    """Write a run's network for use elsewhere."""

    run: RunName
    """Its folder, or its name in runs/."""
    to: Path
    """model.safetensors (weights), model.pt2 (torch.export) or model.onnx (needs widemargin[onnx])."""
    weights: Literal["best", "last"] = "best"
    """By robust accuracy on the validation part, or those of the end, also where the best are lost."""

    def __call__(self, console: rich.console.Console) -> None:
        if not self.to.absolute().parent.is_dir():
            raise ValueError(f"--to must be in a folder that exists, got {self.to}")
        export(_folder(self.run), self.to, self.weights)
        say(console, str(self.to))


def _folder(run: Path) -> RunFolder:
    named = Path("runs") / run
    return RunFolder(named if not run.exists() and named.exists() else run)


def _row(folder: RunFolder) -> list[str]:
    """Empty for the results of studies, which live in such folders too and have tables of their own."""
    try:
        content = read_description(folder.description)
        if "key" not in content:
            return []
        return [str(content.get("title") or "from Python"), *_figures(folder)]
    except (ValueError, KeyError, TypeError) as problem:
        # One damaged run keeps nobody from seeing the others.
        return [str(problem) if isinstance(problem, ValueError) else f"damaged ({problem!r})"]


def _figures(folder: RunFolder) -> list[str]:
    lines, tested = folder.lines(), folder.read_figures() or {}
    losses, validations = ([line for line in lines if name in line] for name in ("loss", "clean"))
    best = max(validations, key=lambda line: (line.get("robust", line["clean"]), line["clean"]), default={})
    state = str(losses[-1]["update"]) + ("" if folder.figures.exists() else ", not done") if losses else "not begun"
    shares = [best.get("clean"), best.get("robust"), tested.get("clean"), tested.get("robust")]
    loss = f"{losses[-1]['loss']:.4f}" if losses else ""
    return [state, loss, *("" if share is None else f"{100 * share:.2f} %" for share in shares)]
