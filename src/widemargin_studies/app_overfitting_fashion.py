"""App. E.2: does single-step training overfit to its own step?  FGSM against one step of UDP on Fashion-MNIST."""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

from widemargin.data.labelled import Labelled
from widemargin.measure.accuracy import accuracy
from widemargin.measure.robustness import pgd_attack, robust_accuracy
from widemargin.perturb.balls import Linf
from widemargin.report.document import Picture, Report, Verdict
from widemargin.report.figures import COLOURS, panels
from widemargin.report.store import Store
from widemargin.report.tables import Table
from widemargin.run import Validation
from widemargin.uncertainty.network import Network
from widemargin_studies.beside import told
from widemargin_studies.pixels import FASHION, Cell, ImageStudy, Numbers, Scale
from widemargin_studies.scales import PAPER

TITLE = "App. E.2: catastrophic overfitting on Fashion-MNIST"
BALL = Linf(0.2)
PGD_20 = pgd_attack(BALL, 0.01, 20)
FGSM = pgd_attack(BALL, 0.2, 1)
BENCH = replace(FASHION, looks=Validation(every=1, attack=PGD_20, watched=(("one step", FGSM),)))
CELLS = (Cell(BENCH, "FGSM", 0.2, 0.2, 1), Cell(BENCH, "UDP 1 step", 0.2, 0.2, 1))
LOOKS = {"clean": "clean", "one step": "FGSM", "robust": "PGD-20"}
COLLAPSED = 0.1
"""PGD-20 accuracy below this share of its peak is called collapsed."""


@dataclass(frozen=True)
class OneStepAndMany:
    """Accuracy on clean points, under the one step of FGSM, and under PGD-20."""

    tests: int

    @property
    def passes(self) -> float:
        return 22.0 * self.tests

    def __call__(self, network: Network, tests: Labelled) -> Numbers:
        found = {
            "n": len(tests),
            "clean": accuracy(network, tests),
            "one step": robust_accuracy(network, tests, FGSM),
            "many": robust_accuracy(network, tests, PGD_20),
        }
        return Numbers(found, {})


def _tell(study: ImageStudy, store: Store) -> Report:
    figure, axes = panels(1, len(CELLS), size=3.6)
    ends = {}
    for cell, panel in zip(study.cells, axes[0], strict=True):
        looks = [stored.numbers["looks"] for stored in study.stored(cell, store)]
        updates = [line["update"] for line in looks[0]]
        for colour, (name, label) in zip(COLOURS, LOOKS.items(), strict=False):
            curves = np.array([[100 * line[name] for line in seed] for seed in looks])
            panel.plot(updates, curves.mean(0), "o-", markersize=3, color=colour, label=label)
            panel.fill_between(updates, curves.min(0), curves.max(0), color=colour, alpha=0.2)
        curves = np.array([[line["robust"] for line in seed] for seed in looks])
        ends[cell.name] = (float(curves.max(1).mean()), float(curves[:, -1].mean()))
        panel.set_title(cell.name, fontsize=10)
        panel.set_ylim(0, 100)
        panel.set_xlabel("updates")
        panel.set_ylabel("validation accuracy, %")
    axes[0][0].legend(fontsize=8)
    (fgsm_peak, fgsm_end), (udp_peak, udp_end) = ends["FGSM"], ends["UDP 1 step"]
    rows = tuple(
        (cell.name, *(told([100 * v for v in study.numbers(cell, store, n)]) for n in ("clean", "one step", "many")))
        for cell in study.cells
    )
    return Report(
        f"{study.TITLE}, scale {study.scale.name}",
        "Does training on one step teach robustness, or only to defeat that step?",
        f"{study.settings} Trained with eps = alpha = .2; PGD-20 with eps .2 and alpha .01 from the clean point, on "
        "the validation images after every epoch and on the test images in the end.",
        (
            Verdict(
                "FGSM overfits: its PGD-20 accuracy collapses while its own step hardly fools it.",
                fgsm_end < COLLAPSED * fgsm_peak,
                f"PGD-20 accuracy at its peak {100 * fgsm_peak:.1f} %, at the end {100 * fgsm_end:.1f} %",
            ),
            Verdict(
                "One step of UDP does not: its PGD-20 accuracy falls, but not to 0.",
                udp_end >= COLLAPSED * udp_peak,
                f"at its peak {100 * udp_peak:.1f} %, at the end {100 * udp_end:.1f} %",
            ),
            Verdict(
                "One step of UDP ends more robust than FGSM.",
                udp_end > fgsm_end,
                f"{100 * udp_end:.1f} against {100 * fgsm_end:.1f} %",
            ),
            Verdict(
                "One step of UDP ends more accurate on clean points than FGSM.",
                _mean(study, store, "UDP 1 step") > _mean(study, store, "FGSM"),
                f"{_mean(study, store, 'UDP 1 step'):.1f} against {_mean(study, store, 'FGSM'):.1f} %",
            ),
        ),
        (
            Table(
                "At the end, on the test images, in percent",
                ("trained with", "clean", "FGSM, eps .2", "PGD-20, eps .2"),
                rows,
            ),
        ),
        (Picture("overfitting", figure, "Mean over seeds and range, after every epoch."),),
    )


def _mean(study: ImageStudy, store: Store, name: str) -> float:
    (cell,) = [cell for cell in study.cells if cell.name == name]
    return 100 * float(np.mean(study.numbers(cell, store, "clean")))


FULL = ImageStudy(TITLE, PAPER, CELLS, OneStepAndMany(PAPER.tests), _tell)
_SMALL = Scale("small", seeds=(0, 1), epochs=0.1, tests=2_000)
SMALL = ImageStudy(TITLE, _SMALL, CELLS, OneStepAndMany(_SMALL.tests), _tell)
