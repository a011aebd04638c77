"""The words of `widemargin demo`, `study` and `version`."""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Literal

from rich.console import Console
from tyro.conf import Positional, arg, subcommand

from widemargin.cli.stopping import StopAfter

EngineName = Literal["processes", "ray"]
StudyName = Annotated[Positional[str], arg(metavar="NAME")]


@dataclass(frozen=True)
class Demo:
    """Train standard, LDP-PGD, TRADES, UDP-PGD, UDPR and UDP-near on two point sets, and show how wide their
    margins are; then standard training and UDP on digits, both audited: tables, figures and a page.  About three
    minutes; a second call reads what the first has stored."""

    out: Path = Path("widemargin-demo")
    """Folder for the page and the figure."""
    workers: int = os.cpu_count() or 1
    """How many processes train side by side."""
    json: Annotated[bool, arg(help_behavior_hint="")] = False
    """Print JSON instead of tables; docs/command-line.md has the keys."""

    def __call__(self, console: Console) -> None:
        from widemargin.cli.study import demo

        demo(self, console)


@dataclass(frozen=True)
class StudyList:
    """Show every study and about how long it takes; with --left also what of it is done."""

    left: Annotated[bool, arg(help_behavior_hint="")] = False
    """Say what is done, and time what is left on this computer: takes some seconds."""
    runs: Path = Path("runs")
    """Folder of stored results, for --left."""
    json: Annotated[bool, arg(help_behavior_hint="")] = False
    """Print JSON instead of tables; docs/command-line.md has the keys."""

    def __call__(self, console: Console) -> None:
        from widemargin.cli.study_list import list_studies

        list_studies(self, console)


@dataclass(frozen=True)
class StudyRun:
    """Run a study; what is stored already is not computed again, so the same command resumes it."""

    name: StudyName
    """The study, as `widemargin study list` names it."""
    runs: Path = Path("runs")
    """Folder for the results."""
    workers: Annotated[int | None, arg(metavar="INT", help_behavior_hint="")] = None
    """How many processes work side by side. (default: as many as there are cores)"""
    engine: EngineName = "processes"
    """Processes of this computer, or tasks of a Ray cluster that shares the folder (needs 'widemargin[sweeps]')."""
    address: Annotated[str | None, arg(metavar="TEXT", help_behavior_hint="")] = None
    """Address of a running Ray cluster, or auto. (default: RAY_ADDRESS, else a cluster on this computer)"""
    stop_after: StopAfter = None
    """Save and stop after this time, as 90s, 30m, 2h or 1d; the same command continues. (default: at the end)"""

    def __call__(self, console: Console) -> None:
        from widemargin.cli.study import run_study

        run_study(self, console)


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
    """Folder for verdicts and tables as one small JSON file, NAME.json, to make pages from. (default: none)"""
    json: Annotated[bool, arg(help_behavior_hint="")] = False
    """Print JSON instead of tables; docs/command-line.md has the keys."""

    def __call__(self, console: Console) -> None:
        from widemargin.cli.study import report_study

        report_study(self, console)


@dataclass(frozen=True)
class Study:
    """Repeat the experiments of the paper and those of this library."""

    verb: (
        Annotated[StudyList, subcommand("list", prefix_name=False)]
        | Annotated[StudyRun, subcommand("run", prefix_name=False)]
        | Annotated[StudyReport, subcommand("report", prefix_name=False)]
    )

    def __call__(self, console: Console) -> None:
        self.verb(console)


@dataclass(frozen=True)
class Version:
    """Print the version."""

    def __call__(self, console: Console) -> None:
        from widemargin import __version__

        console.print(__version__, highlight=False)
