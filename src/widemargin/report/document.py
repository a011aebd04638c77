"""A finished report: what was claimed, what was seen, tables, figures; as a page, as Markdown, on the terminal."""

from __future__ import annotations

import base64
import platform
import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from html import escape
from pathlib import Path
from typing import Any, Literal

import numpy
import rich.console
from matplotlib.figure import Figure
from rich import markup

from widemargin.report import figures
from widemargin.report.definitions import STYLE, defined
from widemargin.report.tables import Table
from widemargin.report.verdicts import Outcome

_STYLE = """
:root{color-scheme:light dark;--ink:#1a1a1a;--paper:#fff;--soft:#555;--line:#ddd;--rule:#999;--card:#f5f5f2;
--good:#1b7837;--bad:#b2182b;--doubtful:#8f4700}
@media(prefers-color-scheme:dark){:root{--ink:#e6e4e0;--paper:#15171a;--soft:#a7abb2;--line:#34383d;--rule:#70757c;
--card:#202327;--good:#7fd69a;--bad:#ff9090;--doubtful:#ffb869}}
*{box-sizing:border-box}
body{font:16px/1.5 system-ui,sans-serif;color:var(--ink);background:var(--paper);max-width:1100px;margin:2rem auto;
padding:0 1rem;overflow-wrap:anywhere}
h1{font-size:1.6rem;line-height:1.25;margin-bottom:.4rem}h2{font-size:1.25rem;margin:2rem 0 .6rem}
.answer{font-size:1.15rem;max-width:46rem}.scroll{overflow-x:auto;max-width:100%}
table{border-collapse:separate;border-spacing:0;margin:0 0 .4rem;font-variant-numeric:tabular-nums;
overflow-wrap:normal}
.title{font-weight:600;margin:1.4rem 0 .3rem}
th,td{padding:.3rem .8rem;border-bottom:1px solid var(--line);text-align:right}
th:first-child,td:first-child{text-align:left;padding-left:0;position:sticky;left:0;background:var(--paper)}
th,td:not(:first-child){white-space:nowrap}th.text,td.text:not(:first-child){text-align:left;white-space:normal;
min-width:22rem}td:first-child{min-width:8rem}
th{border-bottom:2px solid var(--rule);vertical-align:bottom}
figure{margin:1.5rem 0}figure img{display:block;max-width:100%;height:auto;background:#fff;border-radius:.5rem}
figcaption,.note,footer{color:var(--soft);font-size:.9rem}figcaption{max-width:46rem;margin-top:.4rem}
.good{color:var(--good);font-weight:600}.bad{color:var(--bad);font-weight:600}
.doubtful{color:var(--doubtful);font-weight:600}
.findings{list-style:none;padding:0}
.findings li{background:var(--card);border-radius:.5rem;padding:.7rem 1rem;margin:.6rem 0}
.findings p{margin:.3rem 0}code{display:block;white-space:pre-wrap;padding:.4rem .6rem;border-radius:.3rem;
background:var(--paper);font-size:.9rem}summary{cursor:pointer}
"""
_SMALLEST, _LARGEST = 80, 130
"""Pixels for an inch of a picture: below the first its letters cannot be read, and it scrolls instead."""

Tone = Literal["good", "doubtful", "bad"]
_COLOURS: dict[Tone, str] = {"good": "green", "doubtful": "yellow", "bad": "red"}


_TONES: dict[Outcome, Tone] = {"held": "good", "not held": "bad", "undecided": "doubtful"}


@dataclass(frozen=True)
class Verdict:
    """One claim, whether it held here, and the numbers that say so."""

    claim: str
    outcome: Outcome
    evidence: str
    printed: Outcome | None = None
    """What the same criterion says of the numbers that the paper prints, if it prints any."""

    @property
    def word(self) -> str:
        return self.outcome if self.printed is None else f"{self.outcome} (the paper's own numbers: {self.printed})"

    @property
    def tone(self) -> Tone:
        return _TONES[self.outcome]


@dataclass(frozen=True)
class Remark:
    """Something that was looked at: the word for what it came to, and why."""

    claim: str
    word: str
    tone: Tone
    evidence: str
    advice: str = ""
    """What to do about it."""
    command: str = ""
    """That does it."""


_SHARE = re.compile(r"(\d+(?:\.\d+)?) ?% of (\d+) (points|answers|outputs)")
_MOST_COUNTED = 500
"""Of more, a percentage with one decimal does not say how many they are."""


def counted(text: str) -> str:
    """1 of 100 points instead of 1.00% of them, and a space before every other %."""

    def count(share: re.Match[str]) -> str:
        n = int(share[2])
        return f"{float(share[1]) * n / 100:.0f} of {n} {share[3]}" if n <= _MOST_COUNTED else share[0]

    return re.sub(r"(?<=\d)%", " %", _SHARE.sub(count, text))


def _shown(verdicts: Iterable[Verdict | Remark]) -> Iterator[Verdict | Remark]:
    """Advice that was given above is not repeated."""
    given: dict[tuple[str, str], str] = {}
    for one in verdicts:
        if not isinstance(one, Remark):
            yield one
            continue
        above = given.setdefault((one.advice, one.command), one.claim) if one.advice else one.claim
        evidence = counted(one.evidence)
        if above == one.claim:
            yield replace(one, evidence=evidence)
        else:
            yield replace(one, evidence=evidence, advice=f"As for {above}, above.", command="")


@dataclass(frozen=True, eq=False)
class Picture:
    name: str
    figure: Figure
    caption: str


@dataclass(frozen=True, eq=False)
class Report:
    title: str
    summary: str
    settings: str
    verdicts: tuple[Verdict | Remark, ...] = ()
    tables: tuple[Table, ...] = ()
    pictures: tuple[Picture, ...] = ()
    facts: Mapping[str, Any] = field(default_factory=dict)
    """What ran, for programs: seeds, epochs, numbers of examples, hardware."""
    lead: Picture | None = None
    """The picture that answers, right below the summary."""
    definitions: Mapping[str, str] = field(default_factory=dict)
    """Of terms in the summary, the findings and the heads of tables, shown on hover and focus."""

    def print(self, console: rich.console.Console) -> None:
        # Brackets are there to be read, not to set the style.
        console.print(f"\n[bold]{markup.escape(self.title)}[/bold]\n{markup.escape(self.summary)}", highlight=False)
        for table in self.tables:
            table.print(console)
        for verdict in self._loud:
            colour = _COLOURS[verdict.tone]
            text = markup.escape("\n  ".join([verdict.claim, verdict.evidence, *_to_do(verdict)]))
            console.print(f"[{colour}]{verdict.word}[/{colour}]: {text}", highlight=False)
        if self._calm:
            names = markup.escape(", ".join(one.claim for one in self._calm))
            console.print(f"[green]{self._calm_count}[/green]: {names}", highlight=False)

    def write(self, folder: Path) -> list[Path]:
        """PNGs, report.md and a self-contained page.html; returns where they are."""
        folder.mkdir(parents=True, exist_ok=True)
        # Drawn once, for the file and for the page.
        images = {folder / f"{picture.name}.png": figures.png(picture.figure) for picture in self._all_pictures}
        for path, content in images.items():
            path.write_bytes(content)
        markdown, html = folder / "report.md", folder / "page.html"
        markdown.write_text(self._markdown())
        html.write_text(self._html(images.values()))
        return [*images, markdown, html]

    @property
    def _all_pictures(self) -> tuple[Picture, ...]:
        return self.pictures if self.lead is None else (self.lead, *self.pictures)

    def _markdown(self) -> str:
        parts = [f"# {self.title}", self.summary]
        parts += ["  \n  ".join([f"- **{v.word}**: {v.claim}", v.evidence, *_to_do(v)]) for v in _shown(self.verdicts)]
        parts += [table.markdown() for table in self.tables]
        parts += [f"![{picture.caption}]({picture.name}.png)\n\n{picture.caption}" for picture in self._all_pictures]
        return "\n\n".join([*parts, self.settings, versions()]) + "\n"

    def html(self) -> str:
        """One page that needs nothing else: the answer, its picture, the findings, then the tables and the rest."""
        return self._html(figures.png(picture.figure) for picture in self._all_pictures)

    def _html(self, images: Iterable[bytes]) -> str:
        drawn = [_figure(picture, image) for picture, image in zip(self._all_pictures, images, strict=True)]
        lead = "" if self.lead is None else drawn.pop(0)
        details = "".join([*(table.html(self.definitions) for table in self.tables), *drawn])
        if self.verdicts and details:
            details = f"<h2>Details</h2>{details}"
        return page(
            self.title,
            f"<p class='answer'>{defined(self.summary, self.definitions)}</p>{lead}{self._verdicts()}{details}"
            f"<footer><p>{escape(self.settings)}</p><p>{escape(versions())}</p></footer>",
        )

    def _verdicts(self) -> str:
        """All claims; of findings those that need attention, and the others folded up."""
        shown = "".join(self._verdict(one) for one in self._loud)
        are_remarks = any(isinstance(one, Remark) for one in self.verdicts)
        html = f"<h2>{'Findings' if are_remarks else 'Claims'}</h2>" if self.verdicts else ""
        html += f"<ul class='findings'>{shown}</ul>" if self._loud else ""
        if self._calm:
            folded = "".join(self._verdict(one) for one in self._calm)
            html += f"<details><summary>{self._calm_count}</summary><ul class='findings'>{folded}</ul></details>"
        return html

    @property
    def _calm(self) -> list[Remark]:
        """Findings that need no attention."""
        return [one for one in _shown(self.verdicts) if isinstance(one, Remark) and one.tone == "good"]

    @property
    def _loud(self) -> list[Verdict | Remark]:
        return [one for one in _shown(self.verdicts) if isinstance(one, Verdict) or one.tone != "good"]

    @property
    def _calm_count(self) -> str:
        count = len(self._calm)
        return f"{count} {'diagnosis is' if count == 1 else 'diagnoses are'} fine"

    def _verdict(self, one: Verdict | Remark) -> str:
        parts = [
            f"<span class='{one.tone}'>{one.word}</span>: {defined(one.claim, self.definitions)}",
            f"<p class='note'>{escape(one.evidence)}</p>",
        ]
        if isinstance(one, Remark):
            parts += [f"<p><strong>What to do.</strong> {escape(one.advice)}</p>"] if one.advice else []
            parts += [f"<code>{escape(one.command)}</code>"] if one.command else []
        return f"<li>{''.join(parts)}</li>"


def _to_do(one: Verdict | Remark) -> list[str]:
    """Advice and the command that follows it, a line each."""
    if not isinstance(one, Remark):
        return []
    return [f"To do: {one.advice}"] * bool(one.advice) + [one.command] * bool(one.command)


def _figure(picture: Picture, image: bytes) -> str:
    caption, wide = escape(picture.caption), picture.figure.get_figwidth()
    return (
        f"<figure><div class='scroll' tabindex='0' role='region' aria-label='{caption}'><img alt='{caption}' "
        f"style='width:{wide * _LARGEST:.0f}px;min-width:{wide * _SMALLEST:.0f}px' "
        f"src='data:image/png;base64,{base64.b64encode(image).decode()}'></div>"
        f"<figcaption>{caption}</figcaption></figure>"
    )


def page(title: str, body: str) -> str:
    """A page that needs no other file; the body is HTML."""
    return (
        f"<!doctype html><html lang='en'><meta charset='utf-8'><meta name='viewport' content='width=device-width'>"
        f"<title>{escape(title)}</title><style>{_STYLE}{STYLE}</style><h1>{escape(title)}</h1>{body}</html>\n"
    )


def versions() -> str:
    from importlib.metadata import version

    return (
        f"widemargin {version('widemargin')}, torch {version('torch')}, numpy {numpy.__version__}, "
        f"Python {platform.python_version()}, {platform.system()} {platform.machine()}."
    )
