"""What can be done with runs that are there?"""

from __future__ import annotations

from pathlib import Path

import rich.console
import rich.table
from rich.text import Text

from widemargin.cli.display import say
from widemargin.cli.stopping import listening
from widemargin.cli.train import device_of, do
from widemargin.cli.verbs.runs import Export, Resume, Runs
from widemargin.io.export import export
from widemargin.runs.folder import RunFolder
from widemargin.runs.prepare import prepare
from widemargin.runs.run_yaml import is_run, read_description, read_run


def resume(words: Resume, console: rich.console.Console) -> None:
    with listening(words.stop_after) as wish:
        folder = _folder(words.run)
        folder.restore_description()
        title = str(read_description(folder.description).get("title", ""))
        task = prepare(read_run(folder.description), None, device_of(words.device), title)
        do(task, folder, console, words.tensorboard, wish)


def list_runs(words: Runs, console: rich.console.Console) -> None:
    table = rich.table.Table()
    for heading in ("run", "what", "update", "loss", "clean", "robust", "test clean", "test robust"):
        table.add_column(heading, no_wrap=heading == "run")
    names = ("run.yaml", "checkpoint.safetensors")
    found = {path.parent for name in names for path in words.folder.glob(f"*/{name}")}
    for path in sorted(found):
        cells = _row(RunFolder(path))
        if cells:
            # Text, since what users call their folders is no markup.
            table.add_row(*map(Text, (path.name, *cells)))
    if table.row_count == 0:
        raise ValueError(f"there is no run in {words.folder}/: begin one with `widemargin train`")
    console.print(table)


def export_run(words: Export, console: rich.console.Console) -> None:
    if not words.to.absolute().parent.is_dir():
        raise ValueError(f"--to must be in a folder that exists, got {words.to}")
    export(_folder(words.run), words.to, words.weights)
    say(console, str(words.to))


def _folder(run: Path) -> RunFolder:
    named = Path("runs") / run
    return RunFolder(named if not run.exists() and named.exists() else run)


def _row(folder: RunFolder) -> list[str]:
    """Empty for the results of studies, which live in such folders too and have tables of their own."""
    try:
        content = read_description(folder.description)
        if not is_run(content):
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
