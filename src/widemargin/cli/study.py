"""Studies from the command line: what there is, doing it, and what it shows."""

from __future__ import annotations

import shlex
from pathlib import Path

import rich.console

from widemargin.cli.display import say
from widemargin.cli.engine import workers_of
from widemargin.cli.reports import print_report
from widemargin.cli.stopping import Asked, listening
from widemargin.cli.verbs.study import Demo, StudyReport, StudyRun
from widemargin.files import Absent
from widemargin.report import study
from widemargin.report.document import Report
from widemargin.report.results import keep, to_dict
from widemargin.report.store import Store
from widemargin.runs.stop import Stopped
from widemargin.workers import Workers


def demo(words: Demo, console: rich.console.Console) -> None:
    work, store = study.load("demo"), Store(words.out / "runs")
    with listening(None) as wish:
        again = f"widemargin demo --out {shlex.quote(str(words.out))}"
        _work("demo", store, Workers(console, words.workers, wish), wish, again)
    _report(work, "demo", store, words.out, words.json, console)


def run_study(words: StudyRun, console: rich.console.Console) -> None:
    again = _run_command(words.name, words.runs)
    with (
        listening(words.stop_after) as wish,
        workers_of(words.engine, words.address, words.workers, console, wish) as workers,
    ):
        _work(words.name, Store(words.runs), workers, wish, again)
    say(console, f"Stored in {words.runs}/. Next: widemargin study report {words.name}")


def report_study(words: StudyReport, console: rich.console.Console) -> None:
    work, store, out = study.load(words.name), Store(words.runs), words.out / words.name
    try:
        report = _report(work, words.name, store, out, words.json, console)
    except Absent:
        done, of = study.stored(work, store)
        if done == of:
            raise
        raise ValueError(
            f"{words.name} cannot be reported with {done} of {of} parts stored in {words.runs}: go on with "
            f"`{_run_command(words.name, words.runs)}`"
        ) from None
    if words.keep is not None:
        say(console, f"  {keep(report, words.name, words.keep)}")


def _run_command(name: str, runs: Path) -> str:
    return f"widemargin study run {name} --runs {shlex.quote(str(runs))}"


def _work(name: str, store: Store, workers: Workers, wish: Asked, again: str) -> None:
    try:
        study.load(name).run(store, workers)
    except Stopped:
        wish.leave("with what was done, and the trainings under way, saved", again)


def _report(work: study.Study, name: str, store: Store, out: Path, json: bool, console: rich.console.Console) -> Report:
    report = work.report(store)
    print_report(report, to_dict(report, name), json, console)
    for path in report.write(out):
        say(console, f"  {path}")
    return report
