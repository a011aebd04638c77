"""The verbs.  This room knows machines, files and terminals, and no mathematics."""

from __future__ import annotations

import os
import shlex
import sys
from concurrent.futures.process import BrokenProcessPool
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, NoReturn

import rich.console
import rich.table
import torch
import tyro
from rich.text import Text
from tyro.conf import Positional, arg, subcommand

from widemargin import __version__
from widemargin.cli.audit import Audit
from widemargin.cli.calibrate import Calibrate
from widemargin.cli.compare import Compare
from widemargin.cli.display import say
from widemargin.cli.engine import EngineName, workers_of
from widemargin.cli.kept import Export, Resume, Runs
from widemargin.cli.stopping import Asked, StopAfter, listening
from widemargin.cli.sweep import Sweep
from widemargin.cli.train import Train
from widemargin.cli.zoo import Zoo
from widemargin.conduct.stop import Stopped
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
        found, store = study.load("demo"), Store(self.out / "runs")
        with listening(None) as wish:
            again = f"widemargin demo --out {shlex.quote(str(self.out))}"
            _work("demo", store, Workers(console, self.workers, wish), wish, again)
        _report(found, store, self.out, console)


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
                table.add_row(name, found.TITLE, "", Text(str(error)))
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
    workers: Annotated[int | None, arg(metavar="INT", help_behavior_hint="")] = None
    """How many processes work side by side.  [as many as there are cores]"""
    engine: EngineName = "processes"
    """Processes of this computer, or tasks of a Ray cluster, whose computers share the folder of the results; needs
    'widemargin[sweeps]'."""
    address: Annotated[str | None, arg(metavar="TEXT", help_behavior_hint="")] = None
    """Of a Ray cluster that runs, or auto.  [RAY_ADDRESS; else a cluster of this computer for as long as it takes]"""
    stop_after: StopAfter = None
    """Save and leave after this time, as 90s, 30m, 2h or 1d, with exit code 0; the same command goes on.  So do Ctrl-C
    (exit code 130; twice leaves at once) and SIGTERM (143).  [at the end]"""

    def __call__(self, console: rich.console.Console) -> None:
        again = f"widemargin study run {self.name} --runs {shlex.quote(str(self.runs))}"
        with (
            listening(self.stop_after) as wish,
            workers_of(self.engine, self.address, self.workers, console, wish) as workers,
        ):
            _work(self.name, Store(self.runs), workers, wish, again)
        say(console, f"Stored in {self.runs}/. Next: widemargin study report {self.name}")


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
            say(console, f"  {keep(report, self.name, self.keep)}")


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
    | Annotated[Sweep, subcommand("sweep")]
    | Annotated[Resume, subcommand("resume")]
    | Annotated[Runs, subcommand("runs")]
    | Annotated[Audit, subcommand("audit")]
    | Annotated[Calibrate, subcommand("calibrate")]
    | Annotated[Compare, subcommand("compare")]
    | Annotated[Export, subcommand("export")]
    | Annotated[Zoo, subcommand("zoo")]
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
        _refuse(str(error))
    except OSError as error:
        reason = error.strerror or str(error) or type(error).__name__
        if error.filename is None:
            _refuse(f"the system refused to read or write ({reason}); what was stored before is kept")
        _refuse(f"{error.filename} cannot be read or written ({reason})")
    except MemoryError:
        _refuse(_TOO_LARGE)
    except RecursionError:
        _refuse("something here is nested too deeply to be read: it is damaged, or none of ours")
    except RuntimeError as error:
        # So torch says it, of a processor's memory and of a GPU's.
        if "allocate memory" not in str(error) and not isinstance(error, torch.OutOfMemoryError):
            raise
        _refuse(_TOO_LARGE)
    except BrokenProcessPool:
        print(
            "widemargin: a worker process was killed, maybe for want of memory; run the same command to go on, or take "
            "fewer --workers",
            file=sys.stderr,
        )
        sys.exit(1)
    except KeyboardInterrupt:
        print("widemargin: stopped; what was saved is kept, and the same command goes on from there", file=sys.stderr)
        sys.exit(130)


_TOO_LARGE = (
    "this computer has not enough memory for that: take a smaller network (--capacity, --width, --members) or smaller "
    "batches (--batch); what was saved before is kept"
)


def _refuse(sentence: str) -> NoReturn:
    print(f"widemargin: {' '.join(sentence.split())}", file=sys.stderr)
    sys.exit(2)


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
