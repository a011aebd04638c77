"""`widemargin audit`: attacks, margins and diagnoses of a classifier, into files and onto the terminal."""

from __future__ import annotations

import math
import re
from collections.abc import Callable
from contextlib import nullcontext
from dataclasses import fields, replace
from pathlib import Path

import rich.console
import torch
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn, TimeRemainingColumn

from widemargin.auditing.adversarial import npz
from widemargin.auditing.clock import Clock
from widemargin.auditing.config import AuditConfig
from widemargin.auditing.result import Audit as Audited
from widemargin.auditing.runner import audit
from widemargin.auditing.shares import Shares, patient
from widemargin.auditing.target import AuditTarget
from widemargin.cli.describe import ball_named, box_of, check_seed
from widemargin.cli.display import say
from widemargin.cli.inputs import (
    answers,
    check_as_trained,
    data_asked,
    folder_for,
    foreign,
    made,
    notes_on,
    place_of,
    with_tests,
)
from widemargin.cli.local_data import changes_asked, names_asked
from widemargin.cli.reports import print_report
from widemargin.cli.train import device_of
from widemargin.cli.verbs.audit import Audit
from widemargin.data.dataset import Dataset
from widemargin.files import Damaged, read_json, write_json, write_whole
from widemargin.io.load import check_gradients, load_model
from widemargin.perturb.balls import OPEN, UNIT, Ball, Box
from widemargin.perturb.categories import CategoryChanges, changes_of
from widemargin.report.audit_page import page
from widemargin.report.audit_pictures import SHEET, sheet
from widemargin.report.figures import png
from widemargin.training.processes import process_group

Configure = Callable[[tuple[Ball, ...], int, int], AuditConfig]
"""Balls, points and a seed -> what is measured."""


def audit_model(words: Audit, console: rich.console.Console, configure: Configure = AuditConfig) -> None:
    check_seed(words.seed)
    budget, radii, box = _seconds(words.budget), _radii(words.eps), _box_said(words.box)
    place = place_of(words.model)
    device = device_of(words.device)
    model = load_model(place, words.weights)
    model.network.to(device)
    data = data_asked(words, model)
    called, drawn = with_tests(data)
    check_as_trained(data, drawn, model, place)
    each_feature = words.box == ("data",)
    box = _box_of(drawn.test, each_feature) if box is None else box.holding(box_of(drawn.test).fixed)
    balls = tuple(ball_named(words.norm, radius, box) for radius in radii)
    changes = _changes(words, drawn.test)
    notes = notes_on(data, drawn, model)
    target = AuditTarget(model.network, model.name, model.digest, drawn.test.to(device), called, notes)
    answers(target.network, target.examples, called)
    check_gradients(target.network, target.examples[torch.arange(1)][0])
    usual = folder_for(words.out, place, "audits", words.weights)
    apart = words.out is None and foreign(data, drawn, model, place)
    out = made(usual if words.out else _free_folder(usual, called, target.examples.digest, apart))
    with process_group(device) as started:
        processes = patient(started)
        config = _shared(configure(balls, min(words.points, len(drawn.test)), words.seed), processes.count)
        config = replace(config, categories=changes)
        result = _watched(target, config, out / "audit", Clock(budget), console, processes)
    if result is not None:
        _write(result, out, words, console)


def _box_said(words: tuple[str, ...] | None) -> Box | None:
    """None if the examples decide."""
    if words is None or words == ("data",):
        return None
    if words in (("unit",), ("open",)):
        return UNIT if words == ("unit",) else OPEN
    try:
        low, high = map(float, words)
    except ValueError:
        low = high = math.nan
    if not -math.inf < low < high < math.inf:
        raise ValueError(
            f"--box must be unit, open, data or two numbers, the lower one first, such as -1 1, got {' '.join(words)}"
        )
    return Box(low, high)


def _box_of(examples: Dataset, each_feature: bool) -> Box:
    """The usual one, or one in which each feature has the values from its least to its largest."""
    image = examples.stored.ndim == 4
    if not each_feature:
        return box_of(examples)
    if image:
        raise ValueError("--box data is for tables: for images give unit, open or two numbers such as -1 1")
    low, high = (end.flatten().double() for end in (examples.points.amin(0), examples.points.amax(0)))
    # A box has some room; in the points' own precision a feature that never varies has none.
    high = torch.where(low < high, high, torch.nextafter(high, torch.tensor(math.inf, dtype=high.dtype)))
    return Box(tuple(low.tolist()), tuple(high.tolist()), box_of(examples).fixed)


def _changes(words: Audit, examples: Dataset) -> CategoryChanges | None:
    """As in training, unless the options say otherwise."""
    schema, most = examples.schema, changes_asked(words.perturb_categories, words.category_changes)
    if most is None:
        return changes_of(schema)
    if schema is None:
        raise ValueError("--perturb-categories and --category-changes are for runs on tables: leave them out")
    names = names_asked(words.perturb_categories)
    if words.perturb_categories is None:
        # Another number of changes in the same columns.
        names = schema.perturbed_columns
    return changes_of(schema.changing(most, names))


def _shared(config: AuditConfig, processes: int) -> AuditConfig:
    """In chunks as large as usual, but with one for each process."""
    return replace(config, chunk=max(1, min(config.chunk, math.ceil(config.points / processes))))


def _radii(eps: tuple[float, ...]) -> tuple[float, ...]:
    if not eps or any(not 0 < radius < math.inf for radius in eps):
        raise ValueError(f"--eps must be one or more numbers above 0, got {' '.join(map(str, eps)) or 'none'}")
    return tuple(sorted(set(eps)))


def _seconds(budget: str | None) -> float | None:
    if budget is None:
        return None
    parts = re.fullmatch(r"(\d+(?:\.\d+)?|\.\d+)([smh]?)", budget)
    if parts is None:
        raise ValueError(f"--budget must be a time such as 90s, 10m or 2h, got {budget}")
    return float(parts[1]) * {"": 1, "s": 1, "m": 60, "h": 3600}[parts[2]]


def _watched(
    target: AuditTarget,
    config: AuditConfig,
    folder: Path,
    clock: Clock,
    console: rich.console.Console,
    processes: Shares,
) -> Audited | None:
    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn())
    # A chunk takes a while: the estimate must not be that of the last half minute.
    bar = Progress(*columns, TimeRemainingColumn(), console=console, speed_estimate_period=3_600)
    with bar if processes.rank == 0 and console.is_terminal else nullcontext():
        shown = bar.add_task("points", total=config.points)
        return audit(
            target, config, folder, clock, lambda done, of: bar.update(shown, completed=done, total=of), processes
        )


def _free_folder(usual: Path, called: str, digest: str, apart: bool) -> Path:
    """One in which there is no audit on other data, which would be replaced."""
    beside = [usual / f"on-{called}", usual / f"on-{called}-{digest[:8]}"]
    folders = beside if apart else [usual, *beside]
    return next((folder for folder in folders if _is_free(folder, called, digest)), beside[-1])


def _is_free(folder: Path, called: str, digest: str) -> bool:
    for path in folder.glob("audit*.json"):
        try:
            stored = read_json(path)
        except Damaged:
            # Nothing is lost with it.
            continue
        # Those of before name the data and no digest.
        if stored.get("data_digest", digest) != digest or stored.get("data", called) != called:
            return False
    return True


def _write(result: Audited, out: Path, words: Audit, console: rich.console.Console) -> None:
    report, summary = page(result, _words(words)), result.summary()
    print_report(report, summary, words.json, console)
    # Norms are kept side by side.
    norm = "" if result.norm == "linf" else f"-{result.norm}"
    names = [f"audit{norm}.json", f"points{norm}.json", f"audit{norm}.html"]
    write_json(out / names[0], summary)
    write_json(out / names[1], {"classes": list(result.classes), "points": result.per_point()})
    write_whole(out / names[2], report.html().encode())
    if words.save_adversarial:
        names += _write_adversarial(result, out, f"adversarial{norm}")
    for name in names:
        say(console, f"  {out / name}")


def _write_adversarial(result: Audited, out: Path, name: str) -> list[str]:
    """An .npz of all, and a picture of the nearest if they are images; the names of what was written."""
    examples = result.adversarial
    if examples is None:
        return []
    write_whole(out / f"{name}.npz", npz(examples))
    if not examples.are_images or len(examples) == 0:
        return [f"{name}.npz"]
    write_whole(out / f"{name}.png", png(sheet(examples.nearest(SHEET), result.classes)))
    return [f"{name}.npz", f"{name}.png"]


def _words(words: Audit) -> dict[str, tuple[str, ...]]:
    """The command that makes this audit again; what is as usual is not said."""
    said: dict[str, tuple[str, ...]] = {"": ("widemargin", "audit", words.model)}
    for field in fields(words):
        value = getattr(words, field.name)
        if field.name in ("model", "json") or (field.name != "eps" and value == field.default):
            continue
        values = value if isinstance(value, tuple) else () if value is True else (value,)
        text = (f"{one:.12g}" if isinstance(one, float) else str(one) for one in values)
        said[f"--{field.name.replace('_', '-')}"] = tuple(text)
    return said
