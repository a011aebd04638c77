"""A finished report: what was claimed, what was seen, tables, figures; as a page, as Markdown, on the terminal."""

from __future__ import annotations

import base64
import platform
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from html import escape
from pathlib import Path
from typing import Any, Literal

import numpy
import rich.console
from matplotlib.figure import Figure
from rich import markup

from widemargin.report import figures
from widemargin.report.tables import Table
from widemargin.report.verdicts import Outcome

_STYLE = """
body{font:16px/1.5 system-ui,sans-serif;color:#1a1a1a;background:#fff;max-width:1100px;margin:2rem auto;padding:0 1rem}
h1{font-size:1.6rem;margin-bottom:.2rem}img{max-width:100%;height:auto}
table{border-collapse:collapse;margin:1.2rem 0;font-variant-numeric:tabular-nums}
caption{text-align:left;font-weight:600;padding-bottom:.4rem}
th,td{padding:.3rem .8rem;border-bottom:1px solid #ddd;text-align:right}
th:first-child,td:first-child{text-align:left}th{border-bottom:2px solid #999}
figure{margin:1.5rem 0}figcaption,.note,footer{color:#555;font-size:.9rem}
.good{color:#1b7837;font-weight:600}.bad{color:#b2182b;font-weight:600}.doubtful{color:#b35806;font-weight:600}
"""

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

    def print(self, console: rich.console.Console) -> None:
        # Brackets are there to be read, not to set the style.
        console.print(f"\n[bold]{markup.escape(self.title)}[/bold]\n{markup.escape(self.summary)}", highlight=False)
        for table in self.tables:
            table.print(console)
        for verdict in self.verdicts:
            colour = _COLOURS[verdict.tone]
            text = markup.escape(f"{verdict.claim}\n  {verdict.evidence}")
            console.print(f"[{colour}]{verdict.word}[/{colour}]: {text}", highlight=False)

    def write(self, folder: Path) -> list[Path]:
        """PNGs, report.md and a self-contained page.html; returns where they are."""
        folder.mkdir(parents=True, exist_ok=True)
        # Drawn once, for the file and for the page.
        images = {folder / f"{picture.name}.png": figures.png(picture.figure) for picture in self.pictures}
        for path, content in images.items():
            path.write_bytes(content)
        markdown, html = folder / "report.md", folder / "page.html"
        markdown.write_text(self._markdown())
        html.write_text(self._html(images.values()))
        return [*images, markdown, html]

    def _markdown(self) -> str:
        parts = [f"# {self.title}", self.summary]
        parts += [f"- **{v.word}**: {v.claim}  \n  {v.evidence}" for v in self.verdicts]
        parts += [table.markdown() for table in self.tables]
        parts += [f"![{picture.caption}]({picture.name}.png)\n\n{picture.caption}" for picture in self.pictures]
        return "\n\n".join([*parts, self.settings, versions()]) + "\n"

    def html(self) -> str:
        """One page that needs nothing else."""
        return self._html(figures.png(picture.figure) for picture in self.pictures)

    def _html(self, images: Iterable[bytes]) -> str:
        verdicts = "".join(
            f"<li><span class='{v.tone}'>{v.word}</span>: {escape(v.claim)}<br>"
            f"<span class='note'>{escape(v.evidence)}</span></li>"
            for v in self.verdicts
        )
        pictures = "".join(
            f"<figure><img alt='{escape(picture.caption, quote=True)}' src='data:image/png;base64,"
            f"{base64.b64encode(image).decode()}'><figcaption>{escape(picture.caption)}</figcaption></figure>"
            for picture, image in zip(self.pictures, images, strict=True)
        )
        tables = "".join(table.html() for table in self.tables)
        return page(
            self.title,
            f"<p>{escape(self.summary)}</p>{tables}{pictures}{f'<ul>{verdicts}</ul>' if verdicts else ''}"
            f"<footer><p>{escape(self.settings)}</p><p>{escape(versions())}</p></footer>",
        )


def page(title: str, body: str) -> str:
    """A page that needs no other file; the body is HTML."""
    return (
        f"<!doctype html><html lang='en'><meta charset='utf-8'><meta name='viewport' content='width=device-width'>"
        f"<title>{escape(title)}</title><style>{_STYLE}</style><h1>{escape(title)}</h1>{body}</html>\n"
    )


def versions() -> str:
    from importlib.metadata import version

    return (
        f"widemargin {version('widemargin')}, torch {version('torch')}, numpy {numpy.__version__}, "
        f"Python {platform.python_version()}, {platform.system()} {platform.machine()}."
    )
