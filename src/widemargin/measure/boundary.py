"""The decision boundary of a classifier of 2-D points, on a grid."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import torch
from contourpy import LineType, contour_generator
from numpy.typing import NDArray

from widemargin.data.dataset import Dataset
from widemargin.uncertainty.network import Network, in_eval_mode

Array = NDArray[np.float64]
_BATCH_SIZE = 65_536


@dataclass(frozen=True)
class Window:
    """A rectangle in 2-D."""

    left: float
    right: float
    bottom: float
    top: float

    @classmethod
    def around(cls, dataset: Dataset, pad: float | None = None) -> Window:
        """The points and a rim, by default wide enough for every boundary that reduces a point's best margin."""
        if dataset.points.shape[1] != 2:
            raise ValueError(
                f"the boundary is drawn in the plane: points must have 2 features, got {dataset.points.shape[1]}"
            )
        if pad is None and len(dataset.labels.unique()) < 2:
            raise ValueError("a boundary lies between classes: the cloud must hold at least 2, got 1")
        rim = 1.1 * float(dataset.best_margins().max()) if pad is None else pad
        (left, bottom), (right, top) = (dataset.points.amin(0) - rim).tolist(), (dataset.points.amax(0) + rim).tolist()
        return cls(left, right, bottom, top)

    def grid(self, resolution: int) -> tuple[Array, Array]:
        """The x and the y of `resolution` columns and rows."""
        return np.linspace(self.left, self.right, resolution), np.linspace(self.bottom, self.top, resolution)

    def points(self, resolution: int) -> Array:
        """[resolution * resolution, 2], row by row from the bottom."""
        return np.stack(np.meshgrid(*self.grid(resolution)), -1).reshape(-1, 2)


def log_probs(network: Network, points: Array) -> Array:
    """[..., 2] -> [..., classes]: log-probabilities in eval mode, in batches of bounded memory."""
    parameter = next(network.parameters())
    flat = torch.as_tensor(points.reshape(-1, points.shape[-1]), dtype=parameter.dtype, device=parameter.device)
    with torch.no_grad(), in_eval_mode(network):
        answers = torch.cat([network(rows) for rows in flat.split(_BATCH_SIZE)])
    return np.asarray(answers.double().cpu().numpy().reshape(*points.shape[:-1], -1))


def lead(answers: Array, label: int) -> Array:
    """The log-probability of a class minus that of the best other one: 0 on its boundary, negative beyond it."""
    return np.asarray(answers[..., label] - np.delete(answers, label, -1).max(-1))


def zero_lines(x: Array, y: Array, values: Array) -> list[Array]:
    """The polylines [k, 2] along which values on a grid are 0."""
    return [np.asarray(line) for line in contour_generator(x, y, values, line_type=LineType.Separate).lines(0.0)]
