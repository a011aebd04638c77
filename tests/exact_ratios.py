"""Measured margins of tables over exact ones."""

import numpy as np

from exact_margins import Array, box_of, exact_margins, table
from widemargin import OPEN, Dataset
from widemargin.measure.distance import distances
from widemargin.perturb.balls import Norm


def ratios(name: str, norm: Norm, boxed: bool, seed: int, rows: int) -> Array:
    network, cloud = table(name, seed)
    box = box_of(cloud) if boxed else OPEN
    found = distances(network, Dataset(cloud.points[:rows], cloud.labels[:rows]), norm, box)
    return found.distance.double().numpy() / exact_margins(network, cloud, rows, norm, box)  # type: ignore[no-any-return]


def check(ratio: Array) -> None:
    assert ratio.min() > 0.9999
    assert np.mean(ratio < 1.01) >= 0.95, np.sort(ratio)[-5:]
