"""App. E.3: what do images look like after 1,000 steps of UDP, and of PGD?"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import torch

from widemargin.data.dataset import Splits
from widemargin.measure.accuracy import correct
from widemargin.perturb.ascent import Ascent, Fixed, Steepest
from widemargin.perturb.balls import L2, Linf
from widemargin.perturb.objectives import perturbed_log_entropy
from widemargin.perturb.pgd import pgd_search
from widemargin.perturb.search import Search
from widemargin.report.document import Picture, Report, Verdict
from widemargin.report.figures import bare, panels
from widemargin.report.store import Store
from widemargin.report.tables import Table
from widemargin.report.verdicts import all_of, greater, mean_of, smaller
from widemargin.rng import Rng
from widemargin.uncertainty.network import Network, in_eval_mode
from widemargin_studies.pixels import CIFAR, Cell, ImageStudy, Numbers
from widemargin_studies.scales import CIFAR_SMALL, PAPER

TITLE = "App. E.3: 1,000 steps of UDP and of PGD"
CELLS = (Cell(CIFAR, "standard"),)
ROWS = ("clean", "UDP", "PGD")


@dataclass(frozen=True)
class LongWalk:
    """The first test images that are classified right, moved without a radius: only the unit box holds them."""

    images: int = 8
    steps: int = 1_000
    alpha: float = 0.001

    @property
    def passes(self) -> float:
        return 2.0 * self.images * self.steps

    def __call__(self, network: Network, parts: Splits) -> Numbers:
        tests = parts.test
        some = tests.take(torch.arange(min(500, len(tests))))
        known = tests.take(correct(network, some).nonzero()[: self.images, 0])
        inputs, labels = known[torch.arange(len(known))]
        everywhere = Linf(1.0)
        climbs = {
            "UDP": Search(perturbed_log_entropy, everywhere, Ascent(Fixed(self.steps), Steepest(self.alpha))),
            "PGD": pgd_search(everywhere, self.alpha, self.steps),
        }
        arrays, numbers = {"clean": inputs.numpy(), "labels": labels.numpy()}, {"n": len(known)}
        for name, climb in climbs.items():
            moved = inputs + climb(network, inputs, labels, Rng.seeded(0, purpose="walk")).delta
            with torch.no_grad(), in_eval_mode(network):
                answers = network(moved)
            first, second = answers.exp().topk(2, -1).values.unbind(-1)
            arrays[name] = moved.numpy()
            arrays[f"{name} own probability"] = answers.exp().gather(1, labels[:, None])[:, 0].numpy()
            arrays[f"{name} lead"] = (first - second).numpy()
            arrays[f"{name} l2"] = L2(1.0).norm(moved - inputs).numpy()
            arrays[f"{name} linf"] = everywhere.norm(moved - inputs).numpy()
        return Numbers({**numbers, "names": [str(name) for name in tests.names]}, arrays)


def _tell(study: ImageStudy, store: Store) -> Report:
    (stored, *_) = study.stored(study.cells[0], store)
    arrays, names = stored.arrays, stored.numbers["names"]
    figure, axes = panels(len(ROWS), len(arrays["clean"]), size=1.5)
    for row, name in zip(axes, ROWS, strict=True):
        for panel, image in zip(row, arrays[name], strict=True):
            panel.imshow(image.transpose(1, 2, 0).clip(0, 1), interpolation="nearest")
            bare(panel)
        row[0].set_ylabel(name, fontsize=9)
    for panel, label in zip(axes[0], arrays["labels"], strict=True):
        panel.set_title(names[int(label)], fontsize=8)
    rows = tuple(
        (
            name,
            f"{np.mean(arrays[f'{name} l2']):.2f}",
            f"{np.mean(arrays[f'{name} linf']):.3f}",
            f"{100 * np.mean(arrays[f'{name} own probability']):.1f}",
            f"{100 * np.mean(arrays[f'{name} lead']):.1f}",
        )
        for name in ROWS[1:]
    )
    farther = mean_of([float(value) for value in arrays["PGD l2"] - arrays["UDP l2"]])
    group = {name: mean_of([float(value) for value in arrays[f"{name} own probability"]]) for name in ROWS[1:]}
    return Report(
        f"{study.TITLE}, scale {study.scale.name}",
        "How far do the two go when nothing holds them back?",
        f"{study.settings(store)} Whether a class can still be seen is for the reader to say: the numbers only "
        "say how far images moved and what the network makes of them.",
        (
            Verdict(
                "UDP moves images less than PGD does.",
                greater(farther, 0.0),
                f"PGD's Euclidean way is longer by {farther}, over {len(arrays['clean'])} images of one network",
            ),
            Verdict(
                "UDP leaves the network undecided, PGD leaves it sure of another class.",
                all_of([greater(group["UDP"], 0.05), smaller(group["PGD"], 0.01)]),
                f"mean probability of the true class {group['UDP']} after UDP, {group['PGD']} after PGD",
            ),
        ),
        (
            Table(
                "Means over the images",
                ("moved by", "l2 way", "linf way", "true class, %", "lead of the first class, %"),
                rows,
            ),
        ),
        (Picture("long-walk", figure, "Test images as they are, after 1,000 steps of UDP, and of PGD."),),
    )


FULL = ImageStudy(TITLE, PAPER, CELLS, LongWalk(), _tell)
SMALL = ImageStudy(TITLE, CIFAR_SMALL, CELLS, LongWalk(), _tell)
