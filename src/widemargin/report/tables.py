"""Numbers in rows and columns, as text, Markdown or HTML."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from html import escape

import numpy as np
import rich.table
from rich.text import Text


@dataclass(frozen=True)
class Table:
    title: str
    columns: tuple[str, ...]
    rows: tuple[tuple[str, ...], ...]
    note: str = ""

    def __post_init__(self) -> None:
        wrong = [row for row in self.rows if len(row) != len(self.columns)]
        assert not wrong, f"rows must have {len(self.columns)} cells, got {wrong[0]}"

    def rich(self) -> rich.table.Table:
        title, note = Text(self.title), Text(self.note)
        table = rich.table.Table(title=title, caption=note or None, title_justify="left", caption_justify="left")
        for i, column in enumerate(self.columns):
            table.add_column(Text(column), justify="left" if i == 0 else "right")
        for row in self.rows:
            table.add_row(*map(Text, row))
        return table

    def markdown(self) -> str:
        line = "| " + " | ".join(self.columns) + " |"
        rule = "|" + "|".join("---" if i == 0 else "---:" for i in range(len(self.columns))) + "|"
        body = ["| " + " | ".join(row) + " |" for row in self.rows]
        return "\n".join([f"**{self.title}**", "", line, rule, *body, *(["", self.note] if self.note else [])])

    def html(self) -> str:
        head = "".join(f"<th>{escape(column)}</th>" for column in self.columns)
        body = "".join("<tr>" + "".join(f"<td>{escape(cell)}</td>" for cell in row) + "</tr>" for row in self.rows)
        note = f"<p class='note'>{escape(self.note)}</p>" if self.note else ""
        return f"<table><caption>{escape(self.title)}</caption><tr>{head}</tr>{body}</table>{note}"


def mean_std(values: Sequence[float], digits: int = 2) -> str:
    """ "0.83 ± 0.05" over seeds; the sample standard deviation."""
    spread = np.std(values, ddof=1) if len(values) > 1 else 0.0
    return f"{np.mean(values):.{digits}f} ± {spread:.{digits}f}"
