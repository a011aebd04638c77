"""`widemargin separation`: how far the classes of a dataset are apart."""

from __future__ import annotations

from contextlib import nullcontext
from functools import partial
from pathlib import Path

import rich.console
from rich.progress import (
    BarColumn,
    MofNCompleteColumn,
    Progress,
    TaskID,
    TextColumn,
    TimeElapsedColumn,
    TimeRemainingColumn,
)

from widemargin.cli.describe import check_seed, data_named
from widemargin.cli.display import print_json, say
from widemargin.cli.inputs import made
from widemargin.cli.verbs.separation import Separation as Words
from widemargin.cli.verbs.train import Train
from widemargin.data.dataset import Dataset
from widemargin.files import write_json, write_whole
from widemargin.measure.neighbors import NEAREST
from widemargin.measure.separation import Separation, contradictions, duplicates, measured_rows, separation
from widemargin.report.separation_page import Separated, page


def separate(words: Words, console: rich.console.Console) -> None:
    if words.points is not None and words.points < 1:
        raise ValueError(f"--points must be at least 1, got {words.points}")
    unknown = [norm for norm in words.norm if norm not in NEAREST]
    if unknown or not words.norm:
        raise ValueError(f"--norm must be one or more of {', '.join(NEAREST)}, got {' '.join(unknown) or 'none'}")
    check_seed(words.seed)
    shared = ("label", "decimal", "drop", "only", "categories", "no_standardize", "unlabelled", "size")
    everything = data_named(
        Train(words.data, "", **{name: getattr(words, name) for name in shared}), "DATA"
    ).undivided()
    # Rows without a label are left out; the others keep their numbers.
    examples, rows = everything.labelled(), tuple(row + 1 for row in everything.known.tolist())
    called = Path(words.data).name
    out = made(Path("separations") / called if words.out is None else words.out)
    groups = duplicates(examples)
    norms = _measured(words, examples, console)
    result = Separated(called, examples, norms, groups, contradictions(examples, groups), rows)
    report = page(result)
    if words.json:
        print_json(result.summary())
    else:
        report.print(console)
    write_json(out / "separation.json", result.summary())
    write_whole(out / "separation.html", report.html().encode())
    for name in ("separation.json", "separation.html"):
        say(console, f"  {out / name}")


def _measured(words: Words, examples: Dataset, console: rich.console.Console) -> dict[str, Separation]:
    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn())
    bar = Progress(*columns, TimeRemainingColumn(), console=console)
    results = {}
    with bar if console.is_terminal else nullcontext():
        for norm in dict.fromkeys(words.norm):
            task = bar.add_task(norm, total=measured_rows(len(examples), words.points))
            results[norm] = separation(examples, norm, words.points, words.seed, partial(_shown, bar, task))
    return results


def _shown(bar: Progress, task: TaskID, done: int) -> None:
    bar.update(task, completed=done)
