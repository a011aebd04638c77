"""Margins of 2-D points: the distance to the decision boundary, computed on a grid and refined."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from widemargin.data.dataset import Dataset
from widemargin.measure.boundary import Array, Window, lead, log_probs, zero_lines
from widemargin.uncertainty.network import Network

_CANDIDATES = 3
_LOCAL = 17


@dataclass(frozen=True, eq=False)
class Margins:
    """Distances to the boundary: 0 or less for misclassified points, infinite where no boundary was found.

    `min`, `median` and `mean` are distances, `worst_fraction`, `median_fraction` and `mean_fraction` shares of the best
    possible margins.
    """

    margin: Array
    best: Array
    """Half the distance to the nearest point of another class; infinite if there is none."""
    exact: bool = True
    """Measured in the plane, with a sign; else upper bounds, the nearest places that attacks found, 0 where wrong."""
    places: NDArray[Any] | None = None
    """Where the network is wrong, if attacks found it."""
    changed: NDArray[np.int64] | None = None
    """If categories may change: how many do at the place.  The margin is then that of the numbers, and 0 also where a
    change of category is enough, which counts among the errors."""

    @property
    def errors(self) -> int:
        return int((self.margin <= 0).sum())

    @property
    def accuracy(self) -> float:
        return 1 - self.errors / len(self.margin)

    @property
    def min(self) -> float:
        return float(self.margin.min())

    @property
    def mean(self) -> float:
        """Over all points: infinite as soon as one is, and -inf if a misclassified one is among them."""
        return float(self.margin.mean()) if self.min > -np.inf else -np.inf

    @property
    def median(self) -> float:
        """The margin of one of the points, so that infinite ones do no harm."""
        return float(np.quantile(self.margin, 0.5, method="inverted_cdf"))

    @property
    def fraction(self) -> Array:
        """The margin of each point relative to its best possible one, at most 1.

        Where that is 0, since a point of another class coincides: 1 for a margin above 0, and 0 for none.
        """
        self._check_best()
        fraction = (self.margin > 0).astype(float)
        np.divide(self.margin, self.best, out=fraction, where=self.best > 0)
        return np.asarray(np.minimum(fraction, 1.0))

    @property
    def worst_fraction(self) -> float:
        """The smallest margin relative to the largest smallest margin possible; as in `fraction` where that is 0."""
        self._check_best()
        best = float(self.best.min())
        return self.min / best if best > 0 else float(self.min > 0)

    @property
    def median_fraction(self) -> float:
        return float(np.median(self.fraction))

    @property
    def mean_fraction(self) -> float:
        return float(self.fraction.mean())

    def _check_best(self) -> None:
        if np.isinf(self.best).any():
            raise ValueError(
                "the best possible margin is known between classes: fractions of it need points of at least 2, got 1; "
                "take min, median and mean, which are distances"
            )


def margins(network: Network, dataset: Dataset, resolution: int = 301, refinements: int = 3, p: float = 2.0) -> Margins:
    """Distances to the decision boundary on a dense grid, refined around the nearest boundary points.

    In l2, or in l-infinity with p = inf.

    The grid reaches as far beyond the points as the largest of their best margins: a boundary farther away reduces no
    margin, and is not searched for.

    The grid finds every piece of the boundary that is wider than a cell; each refinement then shrinks the error of a
    distance by 4 x, from about a hundredth of a cell where the boundary is smooth.
    """
    if p not in (2.0, math.inf):
        raise ValueError(f"margins are measured in l2 (p = 2) or l-infinity (p = inf), got p = {p}")
    if float(dataset.best_margins().min()) == 0:
        raise ValueError("points of different classes must not coincide: no boundary keeps a margin between them")
    window = Window.around(dataset)
    x, y = window.grid(resolution)
    on_grid = log_probs(network, window.points(resolution)).reshape(resolution, resolution, -1)
    points, labels = dataset.points.double().cpu().numpy(), dataset.labels.cpu().numpy()
    at_points = log_probs(network, points)
    margin = np.full(len(points), np.inf)
    # An l-infinity ball touches the boundary with a corner: the error is linear in the cell, not quadratic.
    rounds = refinements if p == 2 else 3 * refinements
    for label in np.unique(labels):
        rows = labels == label
        lines = zero_lines(x, y, lead(on_grid, int(label)))
        distance = _refined(network, points[rows], lines, int(label), (x[1] - x[0], y[1] - y[0]), rounds, p)
        margin[rows] = np.where(lead(at_points[rows], int(label)) < 0, -distance, distance)
    return Margins(margin, dataset.best_margins(p).double().cpu().numpy())


def _refined(
    network: Network,
    points: Array,
    lines: list[Array],
    label: int,
    cell: tuple[float, float],
    refinements: int,
    p: float,
) -> Array:
    if not lines:
        return np.full(len(points), np.inf)
    nearest, distance = (_nearest_on_segments if p == 2 else _nearest_in_linf)(points, *_segments(lines))
    best_first = np.argsort(distance, 1)[:, : 8 * _CANDIDATES : 8]
    places = np.take_along_axis(nearest, best_first[..., None], 1)
    reach = 2 * np.array(cell)
    local = np.stack(np.meshgrid(*[np.linspace(-1, 1, _LOCAL)] * 2), -1)
    for _ in range(refinements):
        grids = places[:, :, None, None, :] + reach * local
        crossings = _crossings(grids, lead(log_probs(network, grids), label))
        away = np.linalg.norm(crossings - points[:, None, None], ord=p, axis=-1)
        closest = away.argmin(-1)[..., None]
        crossed = np.isfinite(np.take_along_axis(away, closest, -1))
        places = np.where(crossed, np.take_along_axis(crossings, closest[..., None], 2)[:, :, 0], places)
        reach = reach / 4
    return np.asarray(np.linalg.norm(places - points[:, None], ord=p, axis=-1).min(1))


def _crossings(grids: Array, values: Array) -> Array:
    """[..., rows, columns, 2] and [..., rows, columns] -> [..., edges, 2]: where values change sign along grid edges.

    By linear interpolation; infinity for edges along which they keep it.
    """
    crossings = []
    for axis in (-2, -1):
        first, second = np.delete(values, -1, axis), np.delete(values, 0, axis)
        start, end = np.delete(grids, -1, axis - 1), np.delete(grids, 0, axis - 1)
        crossed = (first < 0) != (second < 0)
        part = np.divide(first, first - second, out=np.zeros_like(first), where=crossed)
        place = start + part[..., None] * (end - start)
        crossings.append(np.where(crossed[..., None], place, np.inf).reshape(*values.shape[:-2], -1, 2))
    return np.concatenate(crossings, -2)


def _segments(lines: list[Array]) -> tuple[Array, Array]:
    """The start and the direction of each segment of the polylines."""
    return np.concatenate([line[:-1] for line in lines]), np.concatenate([np.diff(line, axis=0) for line in lines])


def _nearest_on_segments(points: Array, start: Array, direction: Array) -> tuple[Array, Array]:
    """[points, segments, 2] and [points, segments]: the nearest point of each segment and its distance."""
    off = points[:, None] - start
    along = (off * direction).sum(-1) / np.maximum((direction**2).sum(-1), 1e-300)
    nearest = start + along.clip(0, 1)[..., None] * direction
    return nearest, np.linalg.norm(points[:, None] - nearest, axis=-1)


def _nearest_in_linf(points: Array, start: Array, direction: Array) -> tuple[Array, Array]:
    """The same in l-infinity: at one end, or where the offsets in x and y are equally large."""
    off = start - points[:, None]
    (x, y), (by_x, by_y) = np.moveaxis(off, -1, 0), np.moveaxis(direction, -1, 0)
    ends = (np.zeros_like(x), np.ones_like(x))
    diagonals = (_ratio(y - x, by_x - by_y), _ratio(-x - y, by_x + by_y))
    along = np.stack([*ends, *diagonals]).clip(0, 1)
    places = off + along[..., None] * direction
    best = np.abs(places).max(-1).argmin(0)[None, ..., None]
    nearest = np.take_along_axis(places, best, 0)[0]
    return points[:, None] + nearest, np.abs(nearest).max(-1)


def _ratio(above: Array, below: Array) -> Array:
    return np.divide(above, below, out=np.zeros_like(above), where=below != 0)
