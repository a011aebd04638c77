"""Runs that exist: resume one, list all, export one."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import rich.console

from widemargin.cli.display import print_json, say
from widemargin.cli.stopping import listening
from widemargin.cli.train import device_of, do
from widemargin.cli.validation import ValidationAttack, validation_attack
from widemargin.cli.verbs.runs import Export, Resume, Runs
from widemargin.io.export import export
from widemargin.report.tables import Table
from widemargin.runs.folder import RunFolder
from widemargin.runs.prepare import prepare
from widemargin.runs.run_yaml import is_run, read_description, read_run

_COLUMNS = ("run", "trained", "updates", "clean", "robust", "test clean", "test robust", "attack")
_NOTE = (
    "Percent of the validation split at the best checkpoint, and of the test split once a run is done; robust: under "
    "the attack of the last column, an optimistic estimate; `widemargin audit RUN --eps ...` measures more exactly."
)


@dataclass(frozen=True)
class _Listed:
    """A run as `widemargin runs` shows it."""

    run: str
    title: str = ""
    state: str = "damaged"
    """done, not done, not begun or damaged."""
    problem: str = ""
    updates: int = 0
    loss: float | None = None
    attack: ValidationAttack | str | None = None
    validation: Mapping[str, float] | None = None
    test: Mapping[str, float] | None = None

    def cells(self) -> tuple[str, ...]:
        if self.problem:
            return (self.run, self.problem, *("" for _ in _COLUMNS[2:]))
        updates = {"done": str(self.updates), "not begun": "not begun"}.get(self.state, f"{self.updates}, not done")
        shares = [(part or {}).get(name) for part in (self.validation, self.test) for name in ("clean", "robust")]
        figures = ("" if share is None else f"{100 * share:.2f}" for share in shares)
        return (self.run, self.title or "from Python", updates, *figures, str(self.attack or ""))


def resume(words: Resume, console: rich.console.Console) -> None:
    with listening(words.stop_after) as wish:
        folder = _folder(words.run)
        folder.restore_description()
        title = str(read_description(folder.description).get("title", ""))
        task = prepare(read_run(folder.description), None, device_of(words.device), title)
        do(task, folder, console, words.tensorboard, wish)


def list_runs(words: Runs, console: rich.console.Console) -> None:
    names = ("run.yaml", "checkpoint.safetensors")
    paths = {path.parent for name in names for path in words.folder.glob(f"*/{name}")}
    runs = [run for path in sorted(paths) if (run := _listed(RunFolder(path)))]
    if not runs:
        raise ValueError(f"there is no run in {words.folder}/: begin one with `widemargin train`")
    if words.json:
        print_json({"runs": [asdict(run) for run in runs]})
        return
    Table(f"Runs in {words.folder}/", _COLUMNS, tuple(run.cells() for run in runs), _NOTE).print(console)


def export_run(words: Export, console: rich.console.Console) -> None:
    if not words.to.absolute().parent.is_dir():
        raise ValueError(f"--to must be in a folder that exists, got {words.to}")
    export(_folder(words.run), words.to, words.weights)
    say(console, str(words.to))


def _folder(run: Path) -> RunFolder:
    named = Path("runs") / run
    return RunFolder(named if not run.exists() and named.exists() else run)


def _listed(folder: RunFolder) -> _Listed | None:
    """None for the results of studies, which live in such folders too and have tables of their own."""
    try:
        content = read_description(folder.description)
        return _read(folder, content) if is_run(content) else None
    except (ValueError, KeyError, TypeError, AttributeError) as problem:
        # One damaged run does not hide the others.
        text = str(problem) if isinstance(problem, ValueError) else f"damaged ({problem!r})"
        return _Listed(folder.path.name, problem=text)


def _read(folder: RunFolder, content: Mapping[str, Any]) -> _Listed:
    lines, tested = folder.lines(), folder.read_figures()
    losses, validations = ([line for line in lines if name in line] for name in ("loss", "clean"))
    best = max(validations, key=lambda line: (line.get("robust", line["clean"]), line["clean"]), default=None)
    run = content.get("run") or content.get("fitted") or {}
    return _Listed(
        folder.path.name,
        str(content.get("title") or ""),
        ("done" if folder.figures.exists() else "not done") if losses else "not begun",
        "",
        losses[-1]["update"] if losses else 0,
        losses[-1]["loss"] if losses else None,
        validation_attack(run) if "validation" in run.get("Run", run) else None,
        _shares(best),
        _shares(tested),
    )


def _shares(figures: Mapping[str, Any] | None) -> dict[str, float] | None:
    return None if not figures else {name: figures[name] for name in ("clean", "robust") if name in figures}
