"""`widemargin study list`: titles, and how long studies take.  Imports no torch, unless what is left is asked for."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import groupby

import rich.console

from widemargin.cli.verbs.study import StudyList
from widemargin.report.contents import contents, studies

_HAS_A_VERB = "demo"
"""And a folder of its own."""


@dataclass(frozen=True)
class _Row:
    study: str
    title: str
    parts: int | None = None
    core_minutes: float | None = None
    """Of all of it, or of what is left."""
    done: int | None = None
    problem: str = ""

    def line(self) -> str:
        if self.problem:
            return f"  {self.study}: {self.problem}"
        count = (
            f"{self.parts} part{'s' * (self.parts != 1)}" if self.done is None else f"{self.done} of {self.parts} done"
        )
        left = "nothing left" if self.done == self.parts else _about(self.core_minutes or 0.0)
        return f"  {self.study:<30} {count:>15}   {left}"


def list_studies(words: StudyList, console: rich.console.Console, names: Sequence[str] | None = None) -> None:
    """All of them, or those with these names."""
    listed, hardware = contents()
    names = [name for name in studies() if name != _HAS_A_VERB] if names is None else names
    slow = names if words.left else [name for name in names if name not in listed]
    rows = [_Row(name, one.title, one.parts, one.core_minutes) for name, one in listed.items() if name in names]
    rows = sorted([*(row for row in rows if row.study not in slow), *_measured(slow, words)], key=lambda row: row.study)
    on = "this computer" if words.left else hardware
    if words.json:
        print(json.dumps({"hardware": on, "studies": [vars(row) for row in rows]}, indent=2))
        return
    # Scales of one study have one title.
    for title, group in groupby(rows, key=lambda row: row.title):
        console.print(title, style="bold", highlight=False, markup=False, soft_wrap=True)
        for row in group:
            console.print(row.line(), highlight=False, markup=False, soft_wrap=True)
    note = (
        "Left, on one core of this computer."
        if words.left
        else (f"In all, on one core; timed on {hardware}. `widemargin study list --left` says what is done.")
    )
    console.print(note, highlight=False, markup=False)


def _measured(names: Sequence[str], words: StudyList) -> Iterator[_Row]:
    """What is left of each, by what is stored."""
    if not names:
        return
    from widemargin.report import study
    from widemargin.report.store import Store

    for name in names:
        work = study.load(name)
        try:
            left = study.left(work, Store(words.runs))
        except ValueError as problem:
            yield _Row(name, work.TITLE, problem=str(problem))
        else:
            yield _Row(name, work.TITLE, left.of, left.core_minutes, left.of - left.pieces)


def _about(minutes: float) -> str:
    if minutes < 90:
        return f"about {max(minutes, 1):.0f} min"
    return f"about {minutes / 60:.0f} h" if minutes < 72 * 60 else f"about {minutes / 60 / 24:.0f} days"
