"""Tables of robust accuracy: ours beside the paper's, never mixed."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np

from widemargin.perturb.balls import Ball
from widemargin.report.document import Report, Verdict
from widemargin.report.store import Store
from widemargin.report.tables import Table, mean_std
from widemargin_studies.pixels import Cell, ImageStudy
from widemargin_studies.published import Printed

Printing = Mapping[tuple[str, float], Sequence[Printed]]
OURS = ("UDPR", "UDP-PGD")


@dataclass(frozen=True, eq=False)
class Group:
    """A block of a table: its cells with what the paper prints for them."""

    title: str
    cells: tuple[Cell, ...]
    printed: Printing
    shows: Literal["robust accuracy", "trade-off"]
    """The trade-off is the mean of clean and robust accuracy."""
    with_clean: bool = False
    """Does the paper print clean accuracy too?"""

    @property
    def balls(self) -> tuple[Ball, ...]:
        return self.cells[0].bench.balls

    def values(self, study: ImageStudy, store: Store, cell: Cell, ball: Ball) -> list[float]:
        """In percent, one for each seed."""
        robust = np.array(study.numbers(cell, store, repr(ball)))
        clean = np.array(study.numbers(cell, store, "clean"))
        return list(100 * (robust if self.shows == "robust accuracy" else (clean + robust) / 2))

    def table(self, study: ImageStudy, store: Store) -> Table:
        columns = ["method", "clean", *(["paper"] if self.with_clean else [])]
        for ball in self.balls:
            columns += [_short(ball), "paper"]
        rows = []
        for cell in self.cells:
            printed = list(self.printed[cell.name, cell.eps])
            row = [cell.label, told([100 * value for value in study.numbers(cell, store, "clean")])]
            if self.with_clean:
                row.append(str(printed.pop(0)))
            for ball, paper in zip(self.balls, printed, strict=True):
                row += [told(self.values(study, store, cell, ball)), str(paper)]
            rows.append(tuple(row))
        n = study.stored(self.cells[0], store)[0].numbers["n"]
        note = (
            f"In percent; {self.shows} in each ball, ours at scale {study.scale.name} on {n:,} test images, then the "
            "paper's."
        )
        return Table(f"{self.title}: {self.shows}", tuple(columns), tuple(rows), note)

    def verdict(self, study: ImageStudy, store: Store) -> Verdict:
        best = {}
        for ball in self.balls:
            means = {cell.label: float(np.mean(self.values(study, store, cell, ball))) for cell in self.cells}
            best[ball] = max(means, key=lambda label: means[label])
        ours = sum(label.split(" (")[0] in OURS for label in best.values())
        return Verdict(
            f"{self.title}: a UDP method has the best {self.shows} in most balls.",
            ours > len(best) / 2,
            "best are " + ", ".join(f"{label} in {_short(ball)}" for ball, label in best.items()),
        )


def tell(groups: Sequence[Group], question: str, study: ImageStudy, store: Store) -> Report:
    return Report(
        f"{study.TITLE}, scale {study.scale.name}",
        question,
        study.settings,
        tuple(group.verdict(study, store) for group in groups),
        tuple(group.table(study, store) for group in groups),
    )


def cells_of(*groups: Group) -> tuple[Cell, ...]:
    return tuple(dict.fromkeys(cell for group in groups for cell in group.cells))


def _short(ball: Ball) -> str:
    return f"{type(ball).__name__.lower()} {ball.radius:g}"


def told(values: Sequence[float]) -> str:
    return mean_std(values, 1) if len(values) > 1 else f"{values[0]:.1f}"
