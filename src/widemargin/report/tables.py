"""Numbers in rows and columns, as text, Markdown, HTML or LaTeX."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from html import escape

import numpy as np
import rich.table
from rich.text import Text

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

    def rich(self) -> rich.table.Table:
        title, note = Text(self.title), Text(self.note)
        table = rich.table.Table(title=title, caption=note or None, title_justify="left", caption_justify="left")
        for i, column in enumerate(self.columns):
            table.add_column(Text(column), justify="left" if i == 0 else "right")
        for i, row in enumerate(self.rows):
            table.add_row(*(Text(cell, "bold" if (i, j) in self.bold else "") for j, cell in enumerate(row)))
        return table

    def markdown(self) -> str:
        line = "| " + " | ".join(map(_piped, self.columns)) + " |"
        rule = "|" + "|".join("---" if i == 0 else "---:" for i in range(len(self.columns))) + "|"
        body = ["| " + " | ".join(row) + " |" for row in self._marked(_piped, "**", "**")]
        return "\n".join([f"**{self.title}**", "", line, rule, *body, *(["", self.note] if self.note else [])])

    def html(self) -> str:
        head = "".join(f"<th>{escape(column)}</th>" for column in self.columns)
        rows = self._marked(escape, "<b>", "</b>")
        body = "".join("<tr>" + "".join(f"<td>{cell}</td>" for cell in row) + "</tr>" for row in rows)
        note = f"<p class='note'>{escape(self.note)}</p>" if self.note else ""
        return f"<table><caption>{escape(self.title)}</caption><tr>{head}</tr>{body}</table>{note}"

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


def mean_std(values: Sequence[float], digits: int = 2) -> str:
    """ "0.83 ± 0.05" over seeds; the sample standard deviation."""
    spread = np.std(values, ddof=1) if len(values) > 1 else 0.0
    return f"{np.mean(values):.{digits}f} ± {spread:.{digits}f}"
