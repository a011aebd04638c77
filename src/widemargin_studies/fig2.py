"""Figure 2: how far CIFAR-10's training images are from the nearest one of another class."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import torch

from widemargin.data.images import ImageSet
from widemargin.data.labelled import Labelled
from widemargin.measure.neighbors import nearest_of_another_class
from widemargin.report.document import Picture, Report, Verdict
from widemargin.report.figures import COLOURS, panels
from widemargin.report.store import Store
from widemargin.report.tables import Table
from widemargin.run import key_of
from widemargin.workers import Job, Tick, Workers

TITLE = "Fig. 2: distances to the nearest image of another class"
CORE_MINUTES = 5.0
DATA = ImageSet("cifar-10")
IMAGES = 50_000
QUANTILES = (0.0, 0.01, 0.05, 0.25, 0.5, 0.75, 0.95, 0.99, 1.0)
SPREAD = 2.0
"""Distances are called non-isotropic if the 95 % quantile is at least so many times the 5 % one."""
KEY = key_of("nearest of another class", DATA)


def run(store: Store, workers: Workers) -> None:
    jobs = [] if KEY in store else [Job("CIFAR-10, all pairs", IMAGES, _measure, (store,))]
    workers.do(jobs, "Distances")


def missing(store: Store) -> int:
    return int(KEY not in store)


def _whole(data: ImageSet) -> Labelled:
    """The training file undivided: those to train on and those to validate."""
    parts = data.draw()
    stored = torch.cat([parts.train.stored, parts.validation.stored])
    return replace(parts.train, stored=stored, labels=torch.cat([parts.train.labels, parts.validation.labels]))


def _measure(store: Store, tick: Tick) -> None:
    images = _whole(DATA)
    found = nearest_of_another_class(images, tick=tick)
    description = {"data": repr(DATA), "place": images.origin.place, "digest": images.origin.digest}
    arrays = {"distance": found.distance.numpy(), "row": found.row.numpy(), "label": images.labels.numpy()}
    store.save(KEY, description, {"images": len(images), "official": images.origin.official}, arrays, {})


def report(store: Store) -> Report:
    stored = store.load(KEY)
    distance = stored.arrays["distance"]
    values = np.quantile(distance, QUANTILES)
    low, high = np.quantile(distance, (0.05, 0.95))
    table = Table(
        "Distance to the nearest training image of another class",
        ("", *(f"{100 * q:g} %" for q in QUANTILES)),
        (
            ("Euclidean", *(f"{value:.2f}" for value in values)),
            ("half of it", *(f"{value / 2:.2f}" for value in values)),
        ),
        f"Quantiles over {stored.numbers['images']:,} images, pixels in [0, 1], exact.",
    )
    figure, axes = panels(1, 1, size=4.5)
    axes[0][0].hist(distance, bins=100, color=COLOURS[0])
    axes[0][0].set_xlabel("Euclidean distance to the nearest image of another class")
    axes[0][0].set_ylabel("training images")
    return Report(
        TITLE,
        "Could one radius fit all images?",
        f"{DATA}, training and validation part together; nothing is trained.",
        (
            Verdict(
                f"Distances between classes are non-isotropic (95 % quantile at least {SPREAD:g} times the 5 % one).",
                bool(high >= SPREAD * low),
                f"5 %: {low:.2f}, 95 %: {high:.2f}, ratio {high / low:.2f}; smallest {distance.min():.2f}, largest "
                f"{distance.max():.2f}",
            ),
        ),
        (table,),
        (Picture("fig2", figure, "Histogram of the distances."),),
    )
