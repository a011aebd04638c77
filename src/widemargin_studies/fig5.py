"""Figure 5: does a larger network give back the clean accuracy that UDP costs?"""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from widemargin.networks.named import LeNetShape
from widemargin.plan import SGD, Epochs, Plan, Triangle
from widemargin.report.document import Picture, Report, Verdict
from widemargin.report.figures import COLOURS, panels
from widemargin.report.store import Store
from widemargin.report.tables import Table
from widemargin_studies.beside import told
from widemargin_studies.pixels import FASHION, Cell, ImageStudy, Robustness
from widemargin_studies.scales import FASHION_SMALL, PAPER

TITLE = "Fig. 5: clean accuracy over capacity"
PLAN = Plan(Epochs(100), SGD(0.05, Triangle()), batch=256)
CAPACITIES = (1, 2, 4, 6, 8, 10, 12)
EPS, ALPHA, STEPS = 0.1, 0.01, 10
"""The paper names the radius only."""


def _cell(name: str, capacity: int) -> Cell:
    bench = replace(FASHION, network=LeNetShape(capacity=capacity), plan=PLAN)
    return Cell(bench, name) if name == "standard" else Cell(bench, name, EPS, ALPHA, STEPS)


def _cells(capacities: tuple[int, ...]) -> tuple[Cell, ...]:
    return (_cell("standard", 1), *(_cell("UDP-PGD", capacity) for capacity in capacities))


def _capacity(cell: Cell) -> int:
    assert isinstance(cell.bench.network, LeNetShape)
    return cell.bench.network.capacity


def _tell(study: ImageStudy, store: Store) -> Report:
    standard, *others = study.cells
    clean = {cell: [100 * value for value in study.numbers(cell, store, "clean")] for cell in study.cells}
    capacities = [_capacity(cell) for cell in others]
    means = [float(np.mean(clean[cell])) for cell in others]
    base = float(np.mean(clean[standard]))
    figure, axes = panels(1, 1, size=4.0)
    axes[0][0].plot(capacities, means, "o-", color=COLOURS[0], label=f"UDP-PGD, eps {EPS:g}")
    axes[0][0].axhline(base, color=COLOURS[1], linestyle="dashed", label="standard, capacity 1")
    axes[0][0].set_xticks(capacities)
    axes[0][0].set_xlabel("capacity of the LeNet")
    axes[0][0].set_ylabel("clean accuracy, %")
    axes[0][0].legend(fontsize=8)
    rows = [("standard", "1", told(clean[standard]))]
    rows += [("UDP-PGD", str(capacity), told(clean[cell])) for cell, capacity in zip(others, capacities, strict=True)]
    return Report(
        f"{study.TITLE}, scale {study.scale.name}",
        "Does a larger network give back what UDP costs?",
        f"{study.settings} {PLAN}; alpha {ALPHA:g} and {STEPS} steps are ours, the paper names the radius only and "
        "prints a figure without numbers.",
        (
            Verdict(
                "UDP's clean accuracy rises with capacity.",
                means[-1] > means[0],
                f"{means[0]:.1f} % at capacity {capacities[0]}, {means[-1]:.1f} % at {capacities[-1]}",
            ),
            Verdict(
                "With enough capacity it is above that of standard training at capacity 1.",
                max(means) > base,
                f"at best {max(means):.1f} %, standard {base:.1f} %",
            ),
        ),
        (Table("Clean accuracy in percent", ("method", "capacity", "ours"), tuple(rows)),),
        (Picture("capacity", figure, "Clean accuracy on the test images over capacity."),),
    )


FULL = ImageStudy(TITLE, PAPER, _cells(CAPACITIES), Robustness((), PAPER.tests, True), _tell)
_SMALL = replace(FASHION_SMALL, tests=2_000)
SMALL = ImageStudy(TITLE, _SMALL, _cells(CAPACITIES[:3]), Robustness((), _SMALL.tests, True), _tell)
