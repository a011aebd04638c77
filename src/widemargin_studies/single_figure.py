"""Tables of one figure for each method: ours beside the paper's."""

from __future__ import annotations

from widemargin.report.store import Store
from widemargin.report.tables import Table
from widemargin_studies.beside import Printing, told
from widemargin_studies.pixels import ImageStudy


def table(study: ImageStudy, store: Store, what: str, name: str, printed: Printing) -> Table:
    rows = []
    for cell in study.cells:
        paper = printed.get((cell.name, cell.eps))
        ours = told([100 * value for value in study.numbers(cell, store, name)])
        rows.append((cell.label, ours, "not printed" if paper is None else str(paper[0])))
    n = study.tested(study.cells[0], store, "clean")
    note = f"In percent, on {n:,} test images; ours at scale {study.scale.name}."
    return Table(what[0].upper() + what[1:], ("method", "ours", "paper"), tuple(rows), note)
