"""Figure 2: how far CIFAR-10's training images are from the nearest one of another class, in l2 and in l-infinity."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from widemargin.data.dataset import Dataset
from widemargin.data.images import ImageSet
from widemargin.measure.neighbors import nearest_of_another_class, nearest_of_another_class_linf
from widemargin.report.document import Picture, Report, Verdict
from widemargin.report.figures import COLOURS, panels
from widemargin.report.store import Parts, Store
from widemargin.report.tables import Table
from widemargin.report.verdicts import exactly
from widemargin.workers import Job, OnProgress, Workers

DATA = ImageSet("cifar-10")
IMAGES = 50_000
QUANTILES = (0.0, 0.01, 0.05, 0.25, 0.5, 0.75, 0.95, 0.99, 1.0)
SPREAD = 2.0
"""Distances are called non-isotropic if the 95 % quantile is at least so many times the 5 % one."""
LDP = (0.01, 0.02, 0.03, 0.04)
"""The l-infinity radii that the paper trains PGD and TRADES with on CIFAR-10 and SVHN."""
NORMS = {"l2": nearest_of_another_class, "linf": nearest_of_another_class_linf}


@dataclass(frozen=True)
class Fig2:
    TITLE: str = "Fig. 2: distances to the nearest image of another class"
    CORE_MINUTES: float = 20.0
    data: ImageSet = DATA

    @property
    def parts(self) -> Mapping[str, Parts]:
        """By norm."""
        return {norm: ("nearest of another class", norm, self.data) for norm in NORMS}

    def run(self, store: Store, workers: Workers) -> None:
        left = [norm for norm in NORMS if self.parts[norm] not in store]
        workers.do(
            [Job(f"CIFAR-10, all pairs, {norm}", IMAGES, self._measure, (norm, store)) for norm in left], "Distances"
        )

    def missing(self, store: Store) -> int:
        return sum(parts not in store for parts in self.parts.values())

    def _measure(self, norm: str, store: Store, on_progress: OnProgress) -> None:
        images = _whole(self.data)
        distances = NORMS[norm](images, on_progress=on_progress)
        arrays = {"distance": distances.distance.numpy(), "row": distances.row.numpy(), "label": images.labels.numpy()}
        store.save(self.parts[norm], {"images": len(images), "official": images.origin.official}, arrays, {})

    def report(self, store: Store) -> Report:
        stored = {norm: store.load(parts) for norm, parts in self.parts.items()}
        distances = {norm: results.arrays["distance"] for norm, results in stored.items()}
        rows = [
            (f"{norm}{', half of it' if share == 2 else ''}", *_quantiles(distances[norm] / share))
            for norm in NORMS
            for share in (1, 2)
        ]
        table = Table(
            "Distance to the nearest training image of another class",
            ("norm", *(f"{100 * q:g} %" for q in QUANTILES)),
            tuple(rows),
            f"Quantiles over {stored['l2'].numbers['images']:,} images, pixels in [0, 1], exact. Half of it: the "
            "largest radius at which no two balls of different classes meet.",
        )
        figure, axes = panels(1, len(NORMS), size=4.0)
        for panel, (norm, values) in zip(axes[0], distances.items(), strict=True):
            panel.hist(values, bins=100, color=COLOURS[0])
            panel.set_xlabel(f"{norm} distance to the nearest image of another class")
            panel.set_ylabel("training images")
        smallest = float(distances["linf"].min())
        return Report(
            self.TITLE,
            "Could one radius fit all images?  And is a published radius too large for two images of different "
            "classes?",
            f"{self.data}, training and validation part together; nothing is trained.",
            (
                *(_spread(norm, values) for norm, values in distances.items()),
                Verdict(
                    "In pixel space, the l-infinity balls of LDP's published radii reach images of other classes, as "
                    "in Fig. 1.",
                    exactly(smallest / 2 < max(LDP)),
                    f"the two nearest images of different classes are {smallest:.3f} apart, so that radii up to "
                    f"{smallest / 2:.3f} are admissible for all; LDP's radii are "
                    f"{', '.join(f'{eps:g}' for eps in LDP)}. Why large radii hurt LDP on images is therefore not what "
                    "Fig. 1 draws",
                ),
            ),
            (table,),
            (Picture("fig2", figure, "Histograms of the distances."),),
        )


STUDY = Fig2()


def _whole(data: ImageSet) -> Dataset:
    """The training file undivided: those to train on and those to validate."""
    parts = data.draw()
    stored = torch.cat([parts.train.stored, parts.validation.stored])
    return replace(parts.train, stored=stored, labels=torch.cat([parts.train.labels, parts.validation.labels]))


def _quantiles(values: NDArray[Any]) -> tuple[str, ...]:
    return tuple(f"{value:.3g}" for value in np.quantile(values, QUANTILES))


def _spread(norm: str, values: NDArray[Any]) -> Verdict:
    low, high = np.quantile(values, (0.05, 0.95))
    return Verdict(
        f"Distances between classes are non-isotropic in {norm} (95 % quantile at least {SPREAD:g} times the 5 % one).",
        exactly(bool(high >= SPREAD * low)),
        f"5 %: {low:.3g}, 95 %: {high:.3g}, ratio {high / low:.2f}; smallest {values.min():.3g}, largest "
        f"{values.max():.3g}",
    )
