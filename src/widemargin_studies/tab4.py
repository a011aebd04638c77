"""Table 4: are the features of CIFAR-10 networks good for CIFAR-100?"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from widemargin.conduct.transfer import PLAN, transfer_accuracy
from widemargin.data.images import ImageSet
from widemargin.data.labelled import Labelled
from widemargin.report.document import Report, Verdict
from widemargin.report.store import Store
from widemargin.uncertainty.network import Network
from widemargin_studies import published
from widemargin_studies.pixels import CIFAR, Cell, ImageStudy, Numbers
from widemargin_studies.scales import CIFAR_SMALL, PAPER
from widemargin_studies.single_figure import table
from widemargin_studies.tab1 import CIFAR_ROBUST, CIFAR_TRADEOFF

TITLE = "Tab. 4: transfer from CIFAR-10 to CIFAR-100"
STANDARD = Cell(CIFAR, "standard")
CELLS = (STANDARD, *(cell for cell in CIFAR_ROBUST + CIFAR_TRADEOFF if cell.name != "UDPR"))


@dataclass(frozen=True)
class Transfer:
    """A linear classifier on frozen embeddings."""

    data: ImageSet
    seed: int = 0

    @property
    def passes(self) -> float:
        # Forward only, and the classifier itself costs little.
        return (self.data.published_rows + self.data.most_tests) / 2

    def __call__(self, network: Network, tests: Labelled) -> Numbers:
        parts = self.data.draw()
        found = transfer_accuracy(network, parts.train, parts.test, parts.train.classes, self.seed)
        return Numbers({"n": len(parts.test), "transfer": found}, {})


def _tell(study: ImageStudy, store: Store) -> Report:
    means = {cell: float(np.mean(study.numbers(cell, store, "transfer"))) for cell in study.cells}
    udp = [value for cell, value in means.items() if cell.name == "UDP-PGD"]
    others = [value for cell, value in means.items() if cell.name != "UDP-PGD"]
    return Report(
        f"{study.TITLE}, scale {study.scale.name}",
        "Does a network keep more features when its margin is wider?",
        f"{study.settings} {study.judge}; embeddings standardised, linear classifier with {PLAN}; how the paper trains "
        "its classifier is not published.",
        (
            Verdict(
                "UDP-PGD's features transfer better than those of the baseline, PGD and TRADES.",
                min(udp) > max(others),
                f"UDP-PGD {100 * min(udp):.1f} to {100 * max(udp):.1f} %, others up to {100 * max(others):.1f} %",
            ),
        ),
        (table(study, store, "transfer accuracy on CIFAR-100", "transfer", published.TAB4),),
    )


FULL = ImageStudy(TITLE, PAPER, CELLS, Transfer(ImageSet("cifar-100")), _tell)
SMALL = ImageStudy(TITLE, CIFAR_SMALL, CELLS, Transfer(ImageSet("cifar-100", fraction=0.1, most_tests=2_000)), _tell)
