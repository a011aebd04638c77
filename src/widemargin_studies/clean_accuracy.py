"""Figure 4 and its companion in App. E.1: clean accuracy over the radius of training."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from widemargin.report.document import Picture, Report, Verdict
from widemargin.report.figures import COLOURS, panels
from widemargin.report.store import Store
from widemargin.report.tables import Table
from widemargin_studies.beside import told
from widemargin_studies.pixels import CIFAR, FASHION, SVHN, Bench, Cell, ImageStudy, Robustness, Scale
from widemargin_studies.scales import CIFAR_SMALL, FASHION_SMALL, PAPER

METHODS = ("PGD", "TRADES", "UDP-PGD", "UDPR")
RADII = (0.01, 0.02, 0.03, 0.04, 0.05, 0.06, 0.08)
FASHION_RADII = (0.1, 0.2, 0.3, 0.4, 0.5)
NOTHING_TO_ATTACK = Robustness((), 10_000, True)


def _steps(eps: float) -> tuple[float, int]:
    """Step length and number of steps as in Table 1 for this radius; the paper names ranges only."""
    alpha = 0.001 if eps <= 0.04 else 0.002
    return alpha, round(eps / alpha)


def _cells(bench: Bench, radii: Sequence[float]) -> tuple[Cell, ...]:
    return tuple(Cell(bench, name, eps, *_steps(eps)) for name in METHODS for eps in radii)


def _fashion_cells(radii: Sequence[float]) -> tuple[Cell, ...]:
    return tuple(Cell(FASHION, name, eps, eps / 20, 20) for name in METHODS for eps in radii)


def _tell(study: ImageStudy, store: Store) -> Report:
    benches = list(dict.fromkeys(cell.bench for cell in study.cells))
    figure, axes = panels(1, len(benches), size=3.6)
    tables, verdicts = [], []
    for bench, panel in zip(benches, axes[0], strict=True):
        title = bench.data.name
        found = {
            (cell.name, cell.eps): [100 * value for value in study.numbers(cell, store, "clean")]
            for cell in study.cells
            if cell.bench == bench
        }
        radii = sorted({eps for _, eps in found})
        for colour, name in zip(COLOURS, METHODS, strict=False):
            panel.plot(radii, [np.mean(found[name, eps]) for eps in radii], "o-", color=colour, label=name)
        panel.set_title(title, fontsize=10)
        panel.set_xticks(radii)
        panel.set_xlabel("radius of training")
        panel.set_ylabel("clean accuracy, %")
        rows = tuple((name, *(told(found[name, eps]) for eps in radii)) for name in METHODS)
        tables.append(Table(f"{title}: clean accuracy in percent", ("method", *(f"{eps:g}" for eps in radii)), rows))
        means = {key: float(np.mean(values)) for key, values in found.items()}
        below = [eps for eps in radii if means["UDP-PGD", eps] <= max(means["PGD", eps], means["TRADES", eps])]
        verdicts.append(
            Verdict(
                f"{title}: at every radius UDP-PGD is more accurate on clean points than PGD and TRADES.",
                not below,
                "; ".join(
                    f"{eps:g}: {means['UDP-PGD', eps]:.1f} against {means['PGD', eps]:.1f} and "
                    f"{means['TRADES', eps]:.1f}"
                    for eps in radii
                ),
            )
        )
    axes[0][0].legend(fontsize=8)
    return Report(
        f"{study.TITLE}, scale {study.scale.name}",
        "What does a larger radius cost in clean accuracy?",
        f"{study.settings} The paper prints a figure without numbers and names ranges of steps only: they are "
        "those of its Table 1 on SVHN and CIFAR-10, and at most 20 to the edge on Fashion-MNIST.",
        tuple(verdicts),
        tuple(tables),
        (Picture("clean-accuracy", figure, "Clean accuracy on the test images over the radius of training."),),
    )


def _study(title: str, scale: Scale, cells: tuple[Cell, ...]) -> ImageStudy:
    return ImageStudy(title, scale, cells, replace(NOTHING_TO_ATTACK, tests=scale.tests), _tell)


_FIG4, _APP = "Fig. 4: clean accuracy over the radius", "App. E.1: clean accuracy over the radius, Fashion-MNIST"
FIG4_FULL = _study(_FIG4, PAPER, _cells(SVHN, RADII) + _cells(CIFAR, RADII))
FIG4_SMALL = _study(_FIG4, replace(CIFAR_SMALL, tests=2_000), _cells(SVHN, RADII[1::3]) + _cells(CIFAR, RADII[1::3]))
APP_FULL = _study(_APP, PAPER, _fashion_cells(FASHION_RADII))
APP_SMALL = _study(_APP, replace(FASHION_SMALL, tests=2_000, most_steps=10), _fashion_cells(FASHION_RADII[::2]))
