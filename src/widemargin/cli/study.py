"""Studies from the command line: what there is, doing it, and what it shows."""

from __future__ import annotations

import shlex
from pathlib import Path

import rich.console
import rich.table
from rich.text import Text

from widemargin.cli.display import say
from widemargin.cli.engine import workers_of
from widemargin.cli.stopping import Asked, listening
from widemargin.cli.verbs.study import Demo, StudyList, StudyReport, StudyRun
from widemargin.report import study
from widemargin.report.document import Report
from widemargin.report.results import keep
from widemargin.report.store import Store
from widemargin.runs.stop import Stopped
from widemargin.workers import Workers


def demo(words: Demo, console: rich.console.Console) -> None:
    found, store = study.load("demo"), Store(words.out / "runs")
    with listening(None) as wish:
        again = f"widemargin demo --out {shlex.quote(str(words.out))}"
        _work("demo", store, Workers(console, words.workers, wish), wish, again)
    _report(found, store, words.out, console)


def list_studies(words: StudyList, console: rich.console.Console) -> None:
    table = rich.table.Table(rich.table.Column("study", no_wrap=True), "what it shows", "done", "left, on one core")
    for name in study.names():
        if name == "demo":
            # It has a verb and a folder of its own.
            continue
        found = study.load(name)
        try:
            left = study.left(found, Store(words.runs))
        except ValueError as error:
            table.add_row(name, found.TITLE, "", Text(str(error)))
        else:
            done = f"{left.of - left.pieces} of {left.of}"
            table.add_row(name, found.TITLE, done, _about(left.core_minutes) if left.pieces else "nothing")
    console.print(table)


def run_study(words: StudyRun, console: rich.console.Console) -> None:
    again = f"widemargin study run {words.name} --runs {shlex.quote(str(words.runs))}"
    with (
        listening(words.stop_after) as wish,
        workers_of(words.engine, words.address, words.workers, console, wish) as workers,
    ):
        _work(words.name, Store(words.runs), workers, wish, again)
    say(console, f"Stored in {words.runs}/. Next: widemargin study report {words.name}")


def report_study(words: StudyReport, console: rich.console.Console) -> None:
    report = _report(study.load(words.name), Store(words.runs), words.out / words.name, console)
    if words.keep is not None:
        say(console, f"  {keep(report, words.name, words.keep)}")


def _work(name: str, store: Store, workers: Workers, wish: Asked, again: str) -> None:
    try:
        study.load(name).run(store, workers)
    except Stopped:
        wish.leave("with what was done, and the trainings under way, saved", again)


def _report(found: study.Study, store: Store, out: Path, console: rich.console.Console) -> Report:
    report = found.report(store)
    report.print(console)
    for path in report.write(out):
        say(console, f"  {path}")
    return report


def _about(minutes: float) -> str:
    if minutes < 90:
        return f"about {max(minutes, 1):.0f} min"
    return f"about {minutes / 60:.0f} h" if minutes < 72 * 60 else f"about {minutes / 60 / 24:.0f} days"
