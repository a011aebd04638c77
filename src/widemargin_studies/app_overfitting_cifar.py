"""App. E.2: does training on one or two steps overfit to them on CIFAR-10?  PGD-50 with 10 restarts over the radius."""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np
import torch

from widemargin.data.dataset import Splits
from widemargin.measure.accuracy import accuracy
from widemargin.measure.robustness import robust_accuracy
from widemargin.networks.named import DropoutResNetSpec
from widemargin.perturb.ascent import Ascent, Fixed, InBall, Steepest
from widemargin.perturb.balls import Linf
from widemargin.perturb.objectives import perturbed_loss
from widemargin.perturb.search import Search
from widemargin.report.document import Picture, Report, Verdict
from widemargin.report.figures import COLOURS, panels
from widemargin.report.store import Store
from widemargin.report.tables import Table
from widemargin.report.verdicts import greater
from widemargin.uncertainty.estimators import MCDropoutSpec
from widemargin.uncertainty.network import Network
from widemargin_studies.beside import told
from widemargin_studies.pixels import CIFAR, Cell, ImageStudy, Numbers
from widemargin_studies.scales import CIFAR_SMALL, PAPER

TITLE = "App. E.2: catastrophic overfitting on CIFAR-10"
EPS = 0.03
"""Of training; the paper does not name it."""
RADII = (0.005, 0.01, 0.02, 0.03, 0.04)
MEMBERS = 5
SINGLE = replace(CIFAR, network=DropoutResNetSpec(), balls=())
SEVERAL = replace(SINGLE, estimator=MCDropoutSpec(MEMBERS))
CELLS = (
    Cell(SINGLE, "FGSM", EPS, EPS, 1),
    Cell(SINGLE, "R-FGSM", EPS, 1.25 * EPS, 1),
    Cell(SINGLE, "PGD", EPS, EPS / 2, 2),
    Cell(SEVERAL, "UDP 1 step", EPS, EPS, 1),
    Cell(SEVERAL, "UDP-PGD", EPS, EPS / 2, 2),
)
NAMES = ("FGSM", "R-FGSM", "PGD, 2 steps", "UDP, 1 step, 5 members", "UDP, 2 steps, 5 members")


@dataclass(frozen=True)
class Restarted:
    """Accuracy under PGD from random starts, in several balls; of dropout draws the mean answer counts."""

    tests: int
    steps: int = 50
    restarts: int = 10

    @property
    def passes(self) -> float:
        # About half of the points fall soon.
        return self.tests * len(RADII) * self.steps * self.restarts / 2

    def __call__(self, network: Network, parts: Splits) -> Numbers:
        some = parts.test.take(torch.arange(min(self.tests, len(parts.test))))
        results = {"n": len(some), "clean": accuracy(network, some)}
        for radius in RADII:
            ascent = Ascent(Fixed(self.steps), Steepest(radius / 10), InBall())
            attack = Search(perturbed_loss, Linf(radius), ascent)
            results[f"{radius:g}"] = robust_accuracy(network, some, attack, restarts=self.restarts)
        return Numbers(results, {})


def _tell(study: ImageStudy, store: Store) -> Report:
    figure, axes = panels(1, 1, size=4.2)
    rows, ends = [], {}
    for colour, name, cell in zip(COLOURS, NAMES, study.cells, strict=True):
        values = [[100 * v for v in study.numbers(cell, store, at)] for at in ("clean", *(f"{r:g}" for r in RADII))]
        axes[0][0].plot((0, *RADII), [np.mean(group) for group in values], "o-", color=colour, label=name)
        rows.append((name, *(told(group) for group in values)))
        ends[name] = study.accuracy(cell, store, f"{EPS:g}")
    axes[0][0].set_xlabel("radius of the test, linf")
    axes[0][0].set_ylabel("accuracy, %")
    axes[0][0].legend(fontsize=7)
    return Report(
        f"{study.TITLE}, scale {study.scale.name}",
        "Does training on one or two steps teach robustness, or only to defeat those steps?",
        f"{study.settings(store)} Trained with eps {EPS:g}, which is ours, the paper names none; dropout .2 "
        f"after each convolution, UDP with {MEMBERS} draws of it. The paper prints a figure without numbers.",
        tuple(
            Verdict(
                f"{udp} is more robust than {other} at the radius of training.",
                greater(ends[udp], ends[other]),
                f"{ends[udp].percent} against {ends[other].percent} at {EPS:g}",
            )
            for udp, others in ((NAMES[3], NAMES[:2]), (NAMES[4], NAMES[2:3]))
            for other in others
        ),
        (Table("Accuracy in percent", ("trained with", "clean", *(f"{radius:g}" for radius in RADII)), tuple(rows)),),
        (Picture("overfitting", figure, "Accuracy on test images over the radius of PGD from random starts."),),
    )


FULL = ImageStudy(TITLE, PAPER, CELLS, Restarted(PAPER.attacked), _tell)
SMALL = ImageStudy(TITLE, CIFAR_SMALL, CELLS, Restarted(40), _tell)
