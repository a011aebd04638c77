"""The verbs.  This room knows machines, files and terminals, and no mathematics."""

from __future__ import annotations

import os
import sys
from concurrent.futures.process import BrokenProcessPool
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

import rich.console
import rich.table
import tyro
from tyro.conf import Positional, arg, subcommand

from widemargin import __version__
from widemargin.cli.audit import Audit
from widemargin.cli.calibrate import Calibrate
from widemargin.cli.compare import Compare
from widemargin.cli.kept import Export, Resume, Runs
from widemargin.cli.train import Train
from widemargin.report import study
from widemargin.report.document import Report
from widemargin.report.results import keep
from widemargin.report.store import Store
from widemargin.workers import Workers

StudyName = Annotated[Positional[str], arg(metavar="NAME")]


@dataclass(frozen=True)
class Demo:
    """Train standard, LDP-PGD, TRADES, UDP-PGD, UDPR and our own method on two point sets, and show how wide their
    margins are; then standard training and UDP on digits, both audited: tables, figures and a page.  About three
    minutes; a second call reads what the first has stored."""

    out: Path = Path("widemargin-demo")
    """Folder for the page and the figure."""
    workers: int = os.cpu_count() or 1
    """How many processes train side by side."""

    def __call__(self, console: rich.console.Console) -> None:
        _run_and_report("demo", self.out, self.out / "runs", self.workers, console)


@dataclass(frozen=True)
class StudyList:
    """Show every study, what of it is done, and about how long the rest takes."""

    runs: Path = Path("runs")
    """Folder of stored results."""

    def __call__(self, console: rich.console.Console) -> None:
        table = rich.table.Table(rich.table.Column("study", no_wrap=True), "what it shows", "done", "left, on one core")
        for name in study.names():
            if name == "demo":
                # It has a verb and a folder of its own.
                continue
            found = study.load(name)
            try:
                left = study.left(found, Store(self.runs))
            except ValueError as error:
                table.add_row(name, found.TITLE, "", str(error))
            else:
                done = f"{left.of - left.pieces} of {left.of}"
                table.add_row(name, found.TITLE, done, _about(left.core_minutes) if left.pieces else "nothing")
        console.print(table)


@dataclass(frozen=True)
class StudyRun:
    """Do a study's work; what is stored already is not done again, so an interrupted study goes on."""

    name: StudyName
    """The study, as `widemargin study list` names it."""
    runs: Path = Path("runs")
    """Folder for the results."""
    workers: int = os.cpu_count() or 1
    """How many processes work side by side."""

    def __call__(self, console: rich.console.Console) -> None:
        found = study.load(self.name)
        found.run(Store(self.runs), Workers(console, self.workers))
        console.print(f"Stored in {self.runs}/. Next: widemargin study report {self.name}", highlight=False)


@dataclass(frozen=True)
class StudyReport:
    """Print a study's tables and verdicts, and write its figures, report.md and page.html."""

    name: StudyName
    """The study, as `widemargin study list` names it."""
    runs: Path = Path("runs")
    """Folder of stored results."""
    out: Path = Path("reports")
    """Folder for the report; each study gets its own inside."""
    keep: Annotated[Path | None, arg(metavar="FOLDER", help_behavior_hint="")] = None
    """Folder for verdicts and tables as one small JSON file, NAME.json, from which pages can be made.  [none]"""

    def __call__(self, console: rich.console.Console) -> None:
        report = _report(study.load(self.name), Store(self.runs), self.out / self.name, console)
        if self.keep is not None:
            console.print(f"  {keep(report, self.name, self.keep)}", highlight=False, soft_wrap=True)


@dataclass(frozen=True)
class Study:
    """Repeat the experiments of the paper and our own."""

    verb: (
        Annotated[StudyList, subcommand("list", prefix_name=False)]
        | Annotated[StudyRun, subcommand("run", prefix_name=False)]
        | Annotated[StudyReport, subcommand("report", prefix_name=False)]
    )

    def __call__(self, console: rich.console.Console) -> None:
        self.verb(console)


@dataclass(frozen=True)
class Version:
    """Print the version."""

    def __call__(self, console: rich.console.Console) -> None:
        console.print(__version__, highlight=False)


Verb = (
    Annotated[Demo, subcommand("demo")]
    | Annotated[Train, subcommand("train")]
    | Annotated[Resume, subcommand("resume")]
    | Annotated[Runs, subcommand("runs")]
    | Annotated[Audit, subcommand("audit")]
    | Annotated[Calibrate, subcommand("calibrate")]
    | Annotated[Compare, subcommand("compare")]
    | Annotated[Export, subcommand("export")]
    | Annotated[Study, subcommand("study")]
    | Annotated[Version, subcommand("version")]
)


def main(arguments: list[str] | None = None) -> None:
    verb: Verb = tyro.cli(
        Verb,
        prog="widemargin",
        description="Train classifiers that keep a wide margin, and measure how wide it is.",
        args=arguments,
        config=(tyro.conf.OmitArgPrefixes, tyro.conf.OmitSubcommandPrefixes, tyro.conf.FlagCreatePairsOff),
    )
    try:
        verb(rich.console.Console())
    except ValueError as error:
        # One line, whatever a file was called.
        print(f"widemargin: {' '.join(str(error).splitlines())}", file=sys.stderr)
        sys.exit(2)
    except OSError as error:
        if error.filename is None:
            raise
        print(f"widemargin: {error.filename} cannot be read or written ({error.strerror})", file=sys.stderr)
        sys.exit(2)
    except BrokenProcessPool:
        print(
            "widemargin: a worker process was killed, maybe for want of memory; run the same command to go on, or take "
            "fewer --workers",
            file=sys.stderr,
        )
        sys.exit(1)
    except KeyboardInterrupt:
        print("widemargin: stopped; what was finished is stored, the same command goes on from there", file=sys.stderr)
        sys.exit(130)


def _run_and_report(name: str, out: Path, runs: Path, workers: int, console: rich.console.Console) -> None:
    found, store = study.load(name), Store(runs)
    found.run(store, Workers(console, workers))
    _report(found, store, out, console)


def _report(found: study.Study, store: Store, out: Path, console: rich.console.Console) -> Report:
    report = found.report(store)
    report.print(console)
    for path in report.write(out):
        console.print(f"  {path}", highlight=False, soft_wrap=True)
    return report


def _about(minutes: float) -> str:
    if minutes < 90:
        return f"about {max(minutes, 1):.0f} min"
    return f"about {minutes / 60:.0f} h" if minutes < 72 * 60 else f"about {minutes / 60 / 24:.0f} days"
