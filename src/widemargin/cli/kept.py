"""What can be done with runs that are there?"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Literal

import rich.console
import rich.table
from tyro.conf import Positional, arg

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
    tensorboard: bool = False
    """Write for TensorBoard too."""

    def __call__(self, console: rich.console.Console) -> None:
        folder = _folder(self.run)
        title = str(read_description(folder.description).get("title", ""))
        task = task_of(read_trial(folder.description), None, device_of(self.device), title)
        do(task, folder, console, self.tensorboard)


@dataclass(frozen=True)
class Runs:
    """List runs with their figures: the best validation so far, and the test part once a run is done."""

    folder: Annotated[Positional[Path], arg(metavar="FOLDER")] = Path("runs")
    """Where they are."""

    def __call__(self, console: rich.console.Console) -> None:
        table = rich.table.Table()
        for heading in ("run", "what", "update", "loss", "clean", "robust", "test clean", "test robust"):
            table.add_column(heading, no_wrap=heading == "run")
        found = sorted(self.folder.glob("*/run.yaml")) if self.folder.is_dir() else []
        for path in found:
            content = read_description(path)
            # Results of studies live in such folders too, and have tables of their own.
            if "key" in content:
                table.add_row(
                    path.parent.name, str(content.get("title") or "from Python"), *_figures(RunFolder(path.parent))
                )
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
    """By robust accuracy on the validation part, or those of the end."""

    def __call__(self, console: rich.console.Console) -> None:
        if not self.to.absolute().parent.is_dir():
            raise ValueError(f"--to must be in a folder that exists, got {self.to}")
        export(_folder(self.run), self.to, self.weights)
        console.print(str(self.to), highlight=False, soft_wrap=True)


def _folder(run: Path) -> RunFolder:
    named = Path("runs") / run
    return RunFolder(named if not run.exists() and named.exists() else run)


def _figures(folder: RunFolder) -> list[str]:
    lines, tested = folder.lines(), folder.read_figures() or {}
    losses, validations = ([line for line in lines if name in line] for name in ("loss", "clean"))
    best = max(validations, key=lambda line: (line.get("robust", line["clean"]), line["clean"]), default={})
    state = str(losses[-1]["update"]) + ("" if folder.figures.exists() else ", not done") if losses else "not begun"
    shares = [best.get("clean"), best.get("robust"), tested.get("clean"), tested.get("robust")]
    loss = f"{losses[-1]['loss']:.4f}" if losses else ""
    return [state, loss, *("" if share is None else f"{100 * share:.2f} %" for share in shares)]
