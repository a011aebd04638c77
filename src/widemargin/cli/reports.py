"""Pages on the terminal and as files: for the verbs that make one, since drawing takes time to import."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from rich.console import Console

from widemargin.cli.display import print_json, say
from widemargin.files import write_json, write_whole
from widemargin.report.document import Report


def print_report(report: Report, summary: Mapping[str, Any], as_json: bool, console: Console) -> None:
    """The page as text, or instead its numbers as JSON."""
    if as_json:
        print_json(summary)
    else:
        report.print(console)


def write_report(report: Report, summary: Mapping[str, Any], out: Path, name: str, console: Console) -> None:
    """Numbers and page as files of one name, which are named on the terminal."""
    write_json(out / f"{name}.json", summary)
    write_whole(out / f"{name}.html", report.html().encode())
    for ending in ("json", "html"):
        say(console, f"  {out / name}.{ending}")
