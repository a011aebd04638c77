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
from widemargin.report.verdicts import Estimate, Outcome, greater, most_of, trade_off
from widemargin_studies.pixels import Cell, ImageStudy
from widemargin_studies.published import TESTS, Printed

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
            columns += [short(ball), "paper"]
        rows = []
        for cell in self.cells:
            printed = self._printed(cell)
            row = [cell.label, told([100 * value for value in study.numbers(cell, store, "clean")])]
            if self.with_clean:
                row.append(printed.pop(0))
            for ball, paper in zip(self.balls, printed, strict=True):
                row += [told(self.values(study, store, cell, ball)), paper]
            rows.append(tuple(row))
        clean, attacked = (study.tested(self.cells[0], store, name) for name in ("clean", "robust"))
        note = (
            f"In percent; {self.shows} in each ball, ours at scale {study.scale.name} with {attacked:,} test images "
            f"attacked and {clean:,} clean ones, then the paper's."
        )
        return Table(f"{self.title}: {self.shows}", tuple(columns), tuple(rows), note)

    def verdict(self, study: ImageStudy, store: Store) -> Verdict:
        ours = [{cell: self._estimate(study, store, cell, ball) for cell in self._compared} for ball in self.balls]
        paper = [
            {cell: self._paper_estimate(cell, number) for cell in self._compared} for number in range(len(self.balls))
        ]
        best = [max(estimates, key=lambda cell: estimates[cell].value) for estimates in ours]
        told = [f"{cell.label} in {short(ball)}" for cell, ball in zip(best, self.balls, strict=True)]
        return Verdict(
            f"{self.title}: a UDP method has the best {self.shows} in most balls.",
            most_of(map(_ahead, ours)),
            f"best are {', '.join(told)}; UDP is ahead by its mean in {_count(ours)} of {len(ours)}, beyond chance in "
            f"{_count(ours, surely=True)}; in the paper's table in {_count(paper)}, beyond chance in "
            f"{_count(paper, surely=True)}",
            most_of(map(_ahead, paper)),
        )

    @property
    def _compared(self) -> tuple[Cell, ...]:
        """The rows that the paper has."""
        return tuple(cell for cell in self.cells if (cell.name, cell.eps) in self.printed)

    def _printed(self, cell: Cell) -> list[str]:
        count = len(self.balls) + self.with_clean
        row = self.printed.get((cell.name, cell.eps))
        return ["not printed"] * count if row is None else [str(number) for number in row]

    def _estimate(self, study: ImageStudy, store: Store, cell: Cell, ball: Ball) -> Estimate:
        if self.shows == "robust accuracy":
            return study.accuracy(cell, store, repr(ball))
        clean, robust = (study.numbers(cell, store, name) for name in ("clean", repr(ball)))
        return trade_off(clean, robust, *(study.tested(cell, store, name) for name in ("clean", "robust")))

    def _paper_estimate(self, cell: Cell, ball: int) -> Estimate:
        number = self.printed[cell.name, cell.eps][ball + self.with_clean]
        # A trade-off is a mean over two answers to every image; taking it for a share of all of them is cautious.
        return number.estimate(TESTS if self.shows == "robust accuracy" else 2 * TESTS)


def _ahead(estimates: Mapping[Cell, Estimate]) -> Outcome:
    """Is the best of UDP better than the best of all others?"""
    udp, others = _bests(estimates)
    return greater(udp, others)


def _count(balls: Sequence[Mapping[Cell, Estimate]], surely: bool = False) -> int:
    if surely:
        return sum(_ahead(estimates) == "held" for estimates in balls)
    return sum(udp.value > others.value for udp, others in map(_bests, balls))


def _bests(estimates: Mapping[Cell, Estimate]) -> tuple[Estimate, Estimate]:
    udp, others = (
        max(
            (estimate for cell, estimate in estimates.items() if (cell.name in OURS) == ours),
            key=lambda estimate: estimate.value,
        )
        for ours in (True, False)
    )
    return udp, others


def tell(groups: Sequence[Group], question: str, study: ImageStudy, store: Store) -> Report:
    return Report(
        f"{study.TITLE}, scale {study.scale.name}",
        question,
        study.settings(store),
        tuple(group.verdict(study, store) for group in groups),
        tuple(group.table(study, store) for group in groups),
    )


def cells_of(*groups: Group) -> tuple[Cell, ...]:
    return tuple(dict.fromkeys(cell for group in groups for cell in group.cells))


def short(ball: Ball) -> str:
    return f"{type(ball).__name__.lower()} {ball.radius:g}"


def told(values: Sequence[float]) -> str:
    return mean_std(values, 1) if len(values) > 1 else f"{values[0]:.1f}"
