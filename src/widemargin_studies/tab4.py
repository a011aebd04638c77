"""Table 4: are the features of CIFAR-10 networks good for CIFAR-100?"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from widemargin.data.dataset import Splits
from widemargin.data.images import ImageSet
from widemargin.report.document import Report, Verdict
from widemargin.report.store import Store
from widemargin.report.verdicts import Estimate, greater
from widemargin.runs.transfer import PLAN, transfer_accuracy
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

    def __call__(self, network: Network, parts: Splits) -> Numbers:
        other = self.data.draw()
        accuracy = transfer_accuracy(network, other.train, other.test, other.train.classes, self.seed)
        return Numbers({"n": len(other.test), "transfer": accuracy}, {})


def _worst_and_best(estimates: Mapping[Cell, Estimate]) -> tuple[Estimate, Estimate]:
    """The worst of UDP-PGD and the best of all others."""
    udp = [estimate for cell, estimate in estimates.items() if cell.name == "UDP-PGD"]
    others = [estimate for cell, estimate in estimates.items() if cell.name != "UDP-PGD"]
    return min(udp, key=lambda estimate: estimate.value), max(others, key=lambda estimate: estimate.value)


def _tell(study: ImageStudy, store: Store) -> Report:
    ours = {cell: study.accuracy(cell, store, "transfer") for cell in study.cells}
    paper = {cell: published.TAB4[cell.name, cell.eps][0].estimate() for cell in study.cells}
    udp, others = _worst_and_best(ours)
    return Report(
        f"{study.TITLE}, scale {study.scale.name}",
        "Does a network keep more features when its margin is wider?",
        f"{study.settings(store)} Embeddings standardised, linear classifier with {PLAN}; how the paper trains "
        "its classifier is not published.",
        (
            Verdict(
                "UDP-PGD's features transfer better than those of the baseline, PGD and TRADES.",
                greater(udp, others),
                f"the worse UDP-PGD network {udp.percent}, the best of the others {others.percent}",
                greater(*_worst_and_best(paper)),
            ),
        ),
        (table(study, store, "transfer accuracy on CIFAR-100", "transfer", published.TAB4),),
    )


FULL = ImageStudy(TITLE, PAPER, CELLS, Transfer(ImageSet("cifar-100")), _tell)
SMALL = ImageStudy(TITLE, CIFAR_SMALL, CELLS, Transfer(ImageSet("cifar-100", fraction=0.1, most_tests=2_000)), _tell)
