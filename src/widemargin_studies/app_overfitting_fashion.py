"""App. E.2: does single-step training overfit to its own step?  FGSM against one step of UDP on Fashion-MNIST."""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

from widemargin.data.dataset import Splits
from widemargin.measure.accuracy import accuracy
from widemargin.measure.robustness import robust_accuracy
from widemargin.perturb.balls import Linf
from widemargin.perturb.pgd import pgd_search
from widemargin.report.document import Picture, Report, Verdict
from widemargin.report.figures import COLOURS, panels
from widemargin.report.store import Store
from widemargin.report.tables import Table
from widemargin.report.verdicts import Estimate, accuracy_of, greater, scaled, smaller
from widemargin.runs.run import Validation
from widemargin.uncertainty.network import Network
from widemargin_studies.beside import told
from widemargin_studies.pixels import FASHION, Cell, ImageStudy, Numbers, Scale
from widemargin_studies.scales import PAPER

TITLE = "App. E.2: catastrophic overfitting on Fashion-MNIST"
BALL = Linf(0.2)
PGD_20 = pgd_search(BALL, 0.01, 20)
FGSM = pgd_search(BALL, 0.2, 1)
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

    def __call__(self, network: Network, parts: Splits) -> Numbers:
        tests = parts.test
        results = {
            "n": len(tests),
            "clean": accuracy(network, tests),
            "one step": robust_accuracy(network, tests, FGSM),
            "many": robust_accuracy(network, tests, PGD_20),
        }
        return Numbers(results, {})


def _tell(study: ImageStudy, store: Store) -> Report:
    figure, axes = panels(1, len(CELLS), size=3.6)
    ends: dict[str, tuple[Estimate, ...]] = {}
    for cell, panel in zip(study.cells, axes[0], strict=True):
        looks = [stored.numbers["looks"] for stored in study.stored(cell, store)]
        updates = [line["update"] for line in looks[0]]
        for colour, (name, label) in zip(COLOURS, LOOKS.items(), strict=False):
            curves = np.array([[100 * line[name] for line in seed] for seed in looks])
            panel.plot(updates, curves.mean(0), "o-", markersize=3, color=colour, label=label)
            panel.fill_between(updates, curves.min(0), curves.max(0), color=colour, alpha=0.2)
        curves = np.array([[line["robust"] for line in seed] for seed in looks])
        validation = study.images(cell, store)[1]
        ends[cell.name] = tuple(accuracy_of(list(group), validation) for group in (curves.max(1), curves[:, -1]))
        panel.set_title(cell.name, fontsize=10)
        panel.set_ylim(0, 100)
        panel.set_xlabel("updates")
        panel.set_ylabel("validation accuracy, %")
    axes[0][0].legend(fontsize=8)
    (fgsm_peak, fgsm_end), (udp_peak, udp_end) = ends["FGSM"], ends["UDP 1 step"]
    names = ("clean", "one step", "many")
    test = {(cell.name, name): study.accuracy(cell, store, name) for cell in study.cells for name in names}
    rows = tuple(
        (cell.name, *(told([100 * v for v in study.numbers(cell, store, n)]) for n in names)) for cell in study.cells
    )
    return Report(
        f"{study.TITLE}, scale {study.scale.name}",
        "Does training on one step teach robustness, or only to defeat that step?",
        f"{study.settings(store)} Trained with eps = alpha = .2; PGD-20 with eps .2 and alpha .01 from the clean "
        "point, on the validation images after every epoch and on the test images in the end.",
        (
            Verdict(
                f"FGSM overfits: its PGD-20 accuracy ends below {100 * COLLAPSED:g} % of its peak.",
                smaller(fgsm_end, scaled(fgsm_peak, COLLAPSED)),
                f"at its peak {fgsm_peak.percent}, at the end {fgsm_end.percent} of the validation images",
            ),
            Verdict(
                "FGSM's own step does not fool its network, which is more accurate under it than on clean points.",
                greater(test["FGSM", "one step"], test["FGSM", "clean"]),
                f"{test['FGSM', 'one step'].percent} under FGSM, {test['FGSM', 'clean'].percent} on clean points",
            ),
            Verdict(
                f"One step of UDP does not: its PGD-20 accuracy stays above {100 * COLLAPSED:g} % of its peak.",
                greater(udp_end, scaled(udp_peak, COLLAPSED)),
                f"at its peak {udp_peak.percent}, at the end {udp_end.percent} of the validation images",
            ),
            Verdict(
                "One step of UDP ends more robust than FGSM.",
                greater(test["UDP 1 step", "many"], test["FGSM", "many"]),
                f"{test['UDP 1 step', 'many'].percent} against {test['FGSM', 'many'].percent} under PGD-20",
            ),
            Verdict(
                "One step of UDP ends more accurate on clean points than FGSM.",
                greater(test["UDP 1 step", "clean"], test["FGSM", "clean"]),
                f"{test['UDP 1 step', 'clean'].percent} against {test['FGSM', 'clean'].percent}",
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


FULL = ImageStudy(TITLE, PAPER, CELLS, OneStepAndMany(10_000), _tell)
_SMALL = Scale("small", seeds=(0, 1), epochs=0.1, tests=2_000, attacked=2_000)
SMALL = ImageStudy(TITLE, _SMALL, CELLS, OneStepAndMany(_SMALL.attacked), _tell)
