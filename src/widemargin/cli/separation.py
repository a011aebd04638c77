"""`widemargin separation`: how far the classes of a dataset are apart."""

from __future__ import annotations

import math
import shlex
from contextlib import nullcontext
from dataclasses import fields, replace
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

from widemargin.cli.describe import check_seed, data_named, notes_on
from widemargin.cli.display import say
from widemargin.cli.inputs import made
from widemargin.cli.local_data import OwnData
from widemargin.cli.reports import print_report, write_report
from widemargin.cli.sweep import words_of
from widemargin.cli.verbs.data import Parts, TableColumns
from widemargin.cli.verbs.separation import Separation as Words
from widemargin.cli.verbs.train import Train
from widemargin.data.dataset import Dataset
from widemargin.data.images import ImageSet
from widemargin.measure.neighbors import NEAREST
from widemargin.measure.separation import (
    AUTO_ROWS,
    Separation,
    auto_radii,
    contradictions,
    duplicates,
    measured_rows,
    movable,
    separation,
)
from widemargin.report.separation_page import Separated, page

_SHARED = ("label", "eps", "seed", *(field.name for group in (Parts, TableColumns) for field in fields(group)))
"""What decides in which units `train` would see which examples."""


def separate(words: Words, console: rich.console.Console) -> None:
    if words.points is not None and words.points < 1:
        raise ValueError(f"--points must be at least 1, got {words.points}")
    unknown = [norm for norm in words.norm if norm not in NEAREST]
    if unknown or not words.norm:
        raise ValueError(f"--norm must be one or more of {', '.join(NEAREST)}, got {' '.join(unknown) or 'none'}")
    check_seed(words.seed)
    if words.eps is not None and not 0 < words.eps < math.inf:
        raise ValueError(f"--eps must be a number above 0, got {words.eps}")
    as_trained = Train(words.data, "udp", **{name: getattr(words, name) for name in _SHARED})
    data = data_named(as_trained, "DATA")
    everything, train = data.undivided(), _to_train_on(data, console)
    # Rows without a label are left out; the others keep their numbers.
    examples, rows = everything.labelled(), tuple(row + 1 for row in everything.known.tolist())
    called = Path(words.data).name
    out = made(Path("separations") / called if words.out is None else words.out)
    groups = duplicates(examples)
    # Distances are those of the ball in which `train` perturbs.
    free = movable(examples)
    contradicting = contradictions(examples, groups)
    apart_in_fixed = [] if free is examples else _apart_in_fixed(free, contradicting)
    # Where columns have radii of their own, `train` takes no --eps auto.
    norms, auto = _measured(words, free, None if words.eps_column else train, console)
    result = Separated(called, examples, norms, groups, contradicting, rows, apart_in_fixed, auto, words.eps)
    report, summary = page(result), result.summary()
    print_report(report, summary, words.json, console)
    write_report(report, summary, out, "separation", console)
    if all(radii["udp"] > 0 for radii in auto.values()) and auto:
        # As docs/choosing.md says: of images the clean loss is kept beside the perturbed one.
        method = {"method": "udpr", "weight": 1.0} if examples.stored.ndim == 4 else {"method": "udp"}
        trained = replace(as_trained, **method, eps="auto", norm=next(iter(norms)))
        say(console, f"Next: widemargin train {shlex.join(words_of(trained))}")


def _to_train_on(data: ImageSet | OwnData, console: rich.console.Console) -> Dataset | None:
    """The labelled training part, with the warnings of `train`; None if the data cannot be divided."""
    try:
        drawn = data.draw()
    except ValueError as problem:
        say(console, f"Warning: `widemargin train` refuses these data, so there is no --eps auto: {problem}")
        return None
    for note in notes_on(drawn):
        say(console, f"Warning: {note}")
    return drawn.train.labelled()


def _apart_in_fixed(free: Dataset, contradicting: list[list[int]]) -> list[list[int]]:
    """Groups of rows of different classes that are the same in all that may change, and only in that."""
    known = {(rows[0], len(rows)) for rows in contradicting}
    return [rows for rows in contradictions(free, duplicates(free)) if (rows[0], len(rows)) not in known]


def _measured(
    words: Words, examples: Dataset, train: Dataset | None, console: rich.console.Console
) -> tuple[dict[str, Separation], dict[str, dict[str, float]]]:
    """In every norm the distances, and the radii of --eps auto of the training part."""
    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn())
    bar = Progress(*columns, TimeRemainingColumn(), console=console)
    results, auto = {}, {}
    with bar if console.is_terminal else nullcontext():
        for norm in dict.fromkeys(words.norm):
            task = bar.add_task(norm, total=measured_rows(len(examples), words.points))
            results[norm] = separation(examples, norm, words.points, words.seed, partial(_shown, bar, task))
            if train is not None:
                task = bar.add_task(f"{norm}, --eps auto", total=min(len(train), AUTO_ROWS))
                radii = auto_radii(train, norm, partial(_shown, bar, task))
                # To three digits, as `train` takes them.
                auto[norm] = {kind: float(f"{radius:.3g}") for kind, radius in radii.items()}
    return results, auto


def _shown(bar: Progress, task: TaskID, done: int) -> None:
    bar.update(task, completed=done)
