"""Lines, progress bars and JSON on the terminal, and the same for TensorBoard."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, ProgressColumn, Task, TextColumn, TimeRemainingColumn
from rich.text import Text

from widemargin.cli.validation import ValidationAttack, figures_text
from widemargin.data.optional import import_optional
from widemargin.runs.folder import Line
from widemargin.training.loop import Record


def say(console: Console, line: str) -> None:
    """As it is: what users name their folders is no markup, and no line is broken."""
    console.print(line, markup=False, emoji=False, highlight=False, soft_wrap=True)


def print_json(content: Mapping[str, Any]) -> None:
    """On standard output, whatever else is said elsewhere."""
    print(json.dumps(_finite(content), indent=2, allow_nan=False))


def _finite(value: Any) -> Any:
    """JSON has no infinity and no NaN: they become null."""
    if isinstance(value, Mapping):
        return {str(name): _finite(inner) for name, inner in value.items()}
    if isinstance(value, list | tuple):
        return [_finite(inner) for inner in value]
    return None if isinstance(value, float) and not math.isfinite(value) else value


class _Rate(ProgressColumn):
    def render(self, task: Task) -> Text:
        speed = task.finished_speed or task.speed
        return Text("" if speed is None else f"{speed:.3g} updates/s")


class Display:
    """A bar with the loss, the rate and the time left; a line for every validation."""

    def __init__(self, console: Console, attack: ValidationAttack | str | None = None) -> None:
        self.console = console
        self.attack = attack
        columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), _Rate(), TimeRemainingColumn())
        # The rate of the last minute or so: a search takes longer as a network gets better.
        self.bar = Progress(*columns, console=console, disable=not console.is_terminal, speed_estimate_period=60)
        self.task = self.bar.add_task("loss")

    def begin(self, done: int, updates: int) -> None:
        self.bar.update(self.task, completed=done, total=updates)
        if done:
            say(self.console, f"going on after update {done} of {updates}")
        self.bar.start()

    def updated(self, record: Record) -> None:
        self.bar.update(self.task, completed=record.update, description=f"loss {record.loss:.4f}")

    def validated(self, line: Line) -> None:
        say(self.console, f"epoch {line['epoch']}: {figures_text(line, self.attack)}")

    def end(self) -> None:
        self.bar.stop()


class Board:
    """The same for TensorBoard."""

    def __init__(self, folder: Path) -> None:
        import_optional("tensorboard", "'widemargin[tensorboard]'", "--tensorboard")
        self.folder = folder

    def begin(self, done: int, updates: int) -> None:
        from torch.utils.tensorboard import SummaryWriter

        # What came after the checkpoint happens again.
        self.writer = SummaryWriter(str(self.folder), purge_step=done + 1)

    def updated(self, record: Record) -> None:
        self.writer.add_scalar("loss", record.loss, record.update)

    def validated(self, line: Line) -> None:
        for name in ("clean", "robust"):
            if name in line:
                self.writer.add_scalar(f"validation/{name}", line[name], line["update"])

    def end(self) -> None:
        self.writer.close()
