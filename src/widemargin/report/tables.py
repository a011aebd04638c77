"""Numbers in rows and columns, as text, Markdown, HTML or LaTeX."""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from html import escape
from typing import Any

import numpy as np
import rich.console
import rich.table
from rich.cells import cell_len
from rich.text import Text

from widemargin.report.definitions import defined

# Brackets and stars too: LaTeX would take one that begins a row for an argument of the line break before it.
_LATEX = str.maketrans(
    {
        "\\": r"\textbackslash{}",
        "~": r"\textasciitilde{}",
        "^": r"\textasciicircum{}",
        "<": r"\textless{}",
        ">": r"\textgreater{}",
        "|": r"\textbar{}",
        "[": "{[}",
        "*": "{*}",
        "±": r"$\pm$",
        "×": r"$\times$",
        **{sign: f"\\{sign}" for sign in "&%$#_{}"},
    }
)
_NUMBER = re.compile(r"[-+<±]?\.?\d")
_LONG = 40
"""Characters from which on a cell is a sentence."""
_EDGE = 3
"""A line and two blanks beside every cell."""


@dataclass(frozen=True)
class Table:
    title: str
    columns: tuple[str, ...]
    rows: tuple[tuple[str, ...], ...]
    note: str = ""
    bold: frozenset[tuple[int, int]] = frozenset()
    """Rows and columns of the cells that stand out."""

    def __post_init__(self) -> None:
        wrong = [row for row in self.rows if len(row) != len(self.columns)]
        assert not wrong, f"rows must have {len(self.columns)} cells, got {wrong[0]}"
        outside = [(i, j) for i, j in self.bold if not (0 <= i < len(self.rows) and 0 <= j < len(self.columns))]
        assert not outside, f"bold must name cells of the table, got {outside[0]}"

    def print(self, console: rich.console.Console) -> None:
        # A file or a pipe has no width, unless one is asked for; a terminal has.
        if not console.is_terminal and "COLUMNS" not in os.environ:
            console = rich.console.Console(file=console.file, width=1_000)
        for part in self.parts(console.width):
            console.print(part.rich(console.width))

    def parts(self, width: int) -> list[Table]:
        """Groups of columns to print below each other, so that no number is cut; each begins with the first column."""
        first, *others = (_EDGE + self._least(i) for i in range(len(self.columns)))
        groups, room = [[0]], width - 1 - first
        for i, needed in enumerate(others, 1):
            if needed > room and len(groups[-1]) > 1:
                groups, room = [*groups, [0]], width - 1 - first
            groups[-1].append(i)
            room -= needed
        return [
            replace(
                self,
                title=self.title if group is groups[0] else "",
                columns=tuple(self.columns[i] for i in group),
                rows=tuple(tuple(row[i] for i in group) for row in self.rows),
                note=self.note if group is groups[-1] else "",
                bold=frozenset((row, group.index(i)) for row, i in self.bold if i in group),
            )
            for group in groups
        ]

    def rich(self, width: int = 1_000) -> rich.table.Table:
        title, note = Text(self.title), Text(self.note)
        table = rich.table.Table(
            title=title or None, caption=note or None, title_justify="left", caption_justify="left"
        )
        for i, (column, wide) in enumerate(zip(self.columns, self._widths(width), strict=True)):
            table.add_column(Text(column), justify="left" if i == 0 else "right", width=wide)
        for i, row in enumerate(self.rows):
            table.add_row(*(Text(cell, "bold" if (i, j) in self.bold else "") for j, cell in enumerate(row)))
        return table

    def to_dict(self) -> dict[str, Any]:
        """For JSON."""
        return {
            "title": self.title,
            "columns": list(self.columns),
            "rows": [list(row) for row in self.rows],
            "note": self.note,
            "bold": sorted(map(list, self.bold)),
        }

    def _least(self, column: int) -> int:
        """Characters that a column needs at least: text may be broken between words, a number with its unit not."""
        cells = [row[column] for row in self.rows]
        pieces = [piece for cell in cells for piece in ([cell] if _NUMBER.match(cell) else cell.split())]
        return max(map(cell_len, [*pieces, *self.columns[column].split(), ""]))

    def _widths(self, width: int) -> list[int]:
        """As wide as the contents if there is room; those that want little get it before those that want much."""
        widths = [self._least(i) for i in range(len(self.columns))]
        wanted = [max(map(cell_len, column)) for column in zip(self.columns, *self.rows, strict=True)]
        room = width - 1 - sum(widths) - _EDGE * len(widths)
        for i in sorted(range(len(widths)), key=wanted.__getitem__):
            more = max(0, min(room, wanted[i] - widths[i]))
            widths[i] += more
            room -= more
        return widths

    def markdown(self) -> str:
        line = "| " + " | ".join(map(_piped, self.columns)) + " |"
        rule = "|" + "|".join("---" if i == 0 else "---:" for i in range(len(self.columns))) + "|"
        body = ["| " + " | ".join(row) + " |" for row in self._marked(_piped, "**", "**")]
        return "\n".join([f"**{self.title}**", "", line, rule, *body, *(["", self.note] if self.note else [])])

    def html(self, definitions: Mapping[str, str] | None = None) -> str:
        """In a box that scrolls where the page is narrower than the table; terms carry their definitions."""
        known = definitions or {}
        # Sentences wrap, numbers do not.
        kinds = [" class='text'" if self._is_text(column) else "" for column in range(len(self.columns))]
        heads = (defined(column, known) for column in self.columns)
        head = "".join(f"<th{kind}>{text}</th>" for kind, text in zip(kinds, heads, strict=True))
        rows = self._marked(lambda cell: defined(cell, known), "<b>", "</b>")
        cells = ("".join(f"<td{kind}>{cell}</td>" for kind, cell in zip(kinds, row, strict=True)) for row in rows)
        body = "".join(f"<tr>{row}</tr>" for row in cells)
        note = f"<p class='note'>{escape(self.note)}</p>" if self.note else ""
        title = escape(self.title)
        # Outside of the box, or a long title would be cut where a narrow page ends.
        return (
            f"<p class='title'>{title}</p><div class='scroll' tabindex='0' role='region' aria-label='{title}'><table>"
            f"<tr>{head}</tr>{body}</table></div>{note}"
        )

    def _is_text(self, column: int) -> bool:
        return column > 0 and any(len(row[column]) > _LONG for row in self.rows)

    def latex(self) -> str:
        r"""A floating table in the style of booktabs; the document must say \usepackage{booktabs}."""
        lines = [r"\begin{table}", r"\centering", rf"\caption{{{_tex(self.title)}}}"]
        lines += [rf"\begin{{tabular}}{{l{'r' * (len(self.columns) - 1)}}}", r"\toprule"]
        lines += [" & ".join(map(_tex, self.columns)) + r" \\", r"\midrule"]
        lines += [" & ".join(row) + r" \\" for row in self._marked(_tex, r"\textbf{", "}")]
        lines += [r"\bottomrule", r"\end{tabular}"]
        if self.note:
            lines += [r"\par\smallskip", rf"{{\footnotesize {_tex(self.note)}\par}}"]
        return "\n".join([*lines, r"\end{table}"])

    def _marked(self, escaped: Callable[[str], str], before: str, after: str) -> list[list[str]]:
        """All cells as one language writes them."""
        return [
            [before + escaped(cell) + after if (i, j) in self.bold else escaped(cell) for j, cell in enumerate(row)]
            for i, row in enumerate(self.rows)
        ]


def _piped(cell: str) -> str:
    return cell.replace("|", r"\|")


def _tex(text: str) -> str:
    return text.translate(_LATEX)


def radius_text(radius: float) -> str:
    """0.1, or 8/255 where that is what was meant."""
    short, steps = f"{radius:g}", round(radius * 255)
    return f"{steps}/255" if float(short) != radius and steps / 255 == radius else short


def percent(share: float) -> str:
    return f"{100 * share:.1f} %"


def mean_std(values: Sequence[float], digits: int = 2) -> str:
    """ "0.83 ± 0.05" over seeds; the sample standard deviation."""
    spread = np.std(values, ddof=1) if len(values) > 1 else 0.0
    return f"{np.mean(values):.{digits}f} ± {spread:.{digits}f}"
