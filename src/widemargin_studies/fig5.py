"""Figure 5: does a larger network give back the clean accuracy that UDP costs?"""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from widemargin.networks.named import LeNetSpec
from widemargin.perturb.balls import Linf
from widemargin.report.document import Picture, Report, Verdict
from widemargin.report.figures import COLOURS, panels
from widemargin.report.store import Store
from widemargin.report.tables import Table
from widemargin.report.verdicts import greater
from widemargin.training.plan import SGD, Epochs, Plan, Triangle
from widemargin_studies.beside import short, told
from widemargin_studies.pixels import FASHION, Cell, ImageStudy, Scale
from widemargin_studies.scales import FASHION_SMALL, PAPER

TITLE = "Fig. 5: clean accuracy over capacity"
PLAN = Plan(Epochs(100), SGD(0.05, Triangle()), batch=256)
CAPACITIES = (1, 2, 4, 6, 8, 10, 12)
EPS, ALPHA, STEPS = 0.1, 0.01, 10
BALL = Linf(EPS)
"""The paper names the radius only."""


def _cell(name: str, capacity: int) -> Cell:
    bench = replace(FASHION, network=LeNetSpec(capacity=capacity), plan=PLAN)
    return Cell(bench, name) if name == "standard" else Cell(bench, name, EPS, ALPHA, STEPS)


def _cells(capacities: tuple[int, ...]) -> tuple[Cell, ...]:
    return (_cell("standard", 1), *(_cell("UDP-PGD", capacity) for capacity in capacities))


def _capacity(cell: Cell) -> int:
    assert isinstance(cell.bench.network, LeNetSpec)
    return cell.bench.network.capacity


def _tell(study: ImageStudy, store: Store) -> Report:
    standard, *others = study.cells
    clean = {cell: [100 * value for value in study.numbers(cell, store, "clean")] for cell in study.cells}
    capacities = [_capacity(cell) for cell in others]
    means = [float(np.mean(clean[cell])) for cell in others]
    base = float(np.mean(clean[standard]))
    results = {cell: study.accuracy(cell, store, "clean") for cell in study.cells}
    best = max(others, key=lambda cell: results[cell].value)
    robust = {cell: study.accuracy(cell, store, repr(BALL)) for cell in (standard, best)}
    figure, axes = panels(1, 1, size=4.0)
    axes[0][0].plot(capacities, means, "o-", color=COLOURS[0], label=f"UDP-PGD, eps {EPS:g}")
    axes[0][0].axhline(base, color=COLOURS[1], linestyle="dashed", label="standard, capacity 1")
    axes[0][0].set_xticks(capacities)
    axes[0][0].set_xlabel("capacity of the LeNet")
    axes[0][0].set_ylabel("clean accuracy, %")
    axes[0][0].legend(fontsize=8)
    rows = tuple((cell.name, str(_capacity(cell)), *_row(study, store, cell)) for cell in study.cells)
    return Report(
        f"{study.TITLE}, scale {study.scale.name}",
        "Does a larger network give back what UDP costs?",
        f"{study.settings(store)} Alpha {ALPHA:g} and {STEPS} steps are ours, the paper names the radius only and "
        "prints a figure without numbers.",
        (
            Verdict(
                "UDP's clean accuracy rises with capacity.",
                greater(results[others[-1]], results[others[0]]),
                f"{results[others[0]].percent} at capacity {capacities[0]}, {results[others[-1]].percent} at "
                f"{capacities[-1]}",
            ),
            Verdict(
                "With enough capacity it is above that of standard training at capacity 1.",
                greater(results[best], results[standard]),
                f"at best {results[best].percent}, standard {results[standard].percent}",
            ),
            Verdict(
                f"At that capacity it is more robust, too: in {short(BALL)}.",
                greater(robust[best], robust[standard]),
                f"{robust[best].percent} at capacity {_capacity(best)}, standard {robust[standard].percent}",
            ),
        ),
        (
            Table(
                "Accuracy in percent",
                ("method", "capacity", "clean", *map(short, FASHION.balls)),
                rows,
                f"On {study.tested(standard, store, 'clean'):,} test images, "
                f"{study.tested(standard, store, 'robust'):,} of them attacked.",
            ),
        ),
        (Picture("capacity", figure, "Clean accuracy on the test images over capacity."),),
    )


def _row(study: ImageStudy, store: Store, cell: Cell) -> list[str]:
    names = ("clean", *map(repr, FASHION.balls))
    return [told([100 * value for value in study.numbers(cell, store, name)]) for name in names]


def _study(scale: Scale, capacities: tuple[int, ...]) -> ImageStudy:
    return ImageStudy(TITLE, scale, _cells(capacities), scale.robustness(FASHION.balls), _tell)


FULL = _study(replace(PAPER, attacked=1_000), CAPACITIES)
SMALL = _study(replace(FASHION_SMALL, tests=2_000), CAPACITIES[:3])
