"""Margins of small ReLU networks, exactly: by integer programs in l1 and l-infinity, by branch and bound in l2.

An oracle for tests and benchmarks: it takes a moment for every point, and a few dozen ReLUs at most.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray
from scipy.optimize import Bounds, LinearConstraint, milp, nnls
from sklearn.datasets import load_breast_cancer, load_iris, load_wine
from sklearn.preprocessing import StandardScaler
from torch import nn

from widemargin.data.dataset import Dataset
from widemargin.networks.mlp import MLP
from widemargin.perturb.balls import L1, L2, OPEN, Box, Linf, Norm
from widemargin.rng import Rng
from widemargin.uncertainty.cuts import at_input
from widemargin.uncertainty.single import Single

Array = NDArray[np.float64]
TABLES = {"iris": load_iris, "wine": load_wine, "breast cancer": load_breast_cancer}
_DUAL: dict[type, float] = {Linf: 1, L2: 2, L1: np.inf}
_ORDER: dict[type, float] = {Linf: np.inf, L2: 2, L1: 1}
_PRECISION = 1e-6


def table(name: str, seed: int, hidden: tuple[int, ...] = (10,)) -> tuple[Single, Dataset]:
    """A small network trained on a standardised table, and that table in random order with the answers it gives."""
    points, labels = TABLES[name](return_X_y=True)
    cloud = Dataset(torch.tensor(StandardScaler().fit_transform(points), dtype=torch.float32), torch.tensor(labels))
    with Rng.seeded(seed).as_global():
        network = MLP(cloud.points.shape[1], *hidden, int(cloud.labels.max()) + 1)
        optimizer = torch.optim.Adam(network.parameters(), 1e-2)
        for _ in range(300):
            optimizer.zero_grad()
            nn.functional.cross_entropy(network(cloud.points), cloud.labels).backward()
            optimizer.step()
        points = cloud.points[torch.randperm(len(cloud))]
    with torch.no_grad():
        return Single(at_input(network)).eval(), Dataset(points, network(points).argmax(1))


def box_of(cloud: Dataset) -> Box:
    low, high = (tuple(side.values.tolist()) for side in (cloud.points.min(0), cloud.points.max(0)))
    return Box(low, high)


def exact_margins(network: Single, cloud: Dataset, rows: int, norm: Norm, box: Box = OPEN) -> Array:
    """Of the first rows of a cloud whose labels are the network's answers: how far is another class?"""
    layers = [part for part in network.head.modules() if isinstance(part, nn.Linear)]
    weights = [layer.weight.detach().double().numpy() for layer in layers]
    biases = [layer.bias.detach().double().numpy() for layer in layers]
    points, labels = cloud.points.double().numpy(), cloud.labels.numpy()
    found = []
    for point, label in zip(points[:rows], labels[:rows], strict=True):
        down, up = (side[0].numpy() for side in box.room(torch.from_numpy(point)[None]))
        down, up = np.minimum(down, 0), np.maximum(up, 0)
        # The nearest point of another class is a place that is known, and all that is farther need not be looked at.
        ways = points[labels != label] - point
        best = np.linalg.norm(ways, _ORDER[norm], axis=1).min()
        for rival in set(range(len(biases[-1]))) - {int(label)}:
            last, shift = weights[-1][rival] - weights[-1][label], biases[-1][rival] - biases[-1][label]
            lead = _Lead([*weights[:-1], last[None]], [*biases[:-1], np.array([shift])], point, down, up, norm)
            best = min(best, lead.crossed(best))
        found.append(best)
    return np.array(found)


@dataclass(frozen=True, eq=False)
class _Lead:
    """How far a rival is ahead of the label, as a network with one output."""

    weights: list[Array]
    biases: list[Array]
    point: Array
    down: Array
    up: Array
    norm: Norm

    def crossed(self, reach: float) -> float:
        """The shortest way along which the lead becomes 0; infinite if it is longer than the reach."""
        return self._nearest(reach) if self.norm is L2 else self._programmed(reach)

    def bounds(self, reach: float) -> list[tuple[Array, Array]]:
        """Of what goes into each layer of ReLUs, by intervals; the first by the length of its weights."""
        low, high = np.maximum(self.down, -reach), np.minimum(self.up, reach)
        found: list[tuple[Array, Array]] = []
        for weight, bias in zip(self.weights[:-1], self.biases[:-1], strict=True):
            rising, falling = np.maximum(weight, 0), np.minimum(weight, 0)
            if not found:
                middle = weight @ self.point + bias
                steep = reach * np.linalg.norm(weight, _DUAL[self.norm], axis=1)
                low, high = (
                    middle + np.maximum(rising @ low + falling @ high, -steep),
                    middle + np.minimum(rising @ high + falling @ low, steep),
                )
            else:
                low, high = np.maximum(low, 0), np.maximum(high, 0)
                low, high = rising @ low + falling @ high + bias, rising @ high + falling @ low + bias
            found.append((low - _PRECISION, high + _PRECISION))
        return found

    def _programmed(self, reach: float) -> float:
        """An integer program: for every ReLU one variable that says whether it is on (big M)."""
        features, hidden = len(self.point), [len(bias) for bias in self.biases[:-1]]
        # Ways up and down, what ReLUs return, whether they are on, and for l-infinity the length.
        count = 2 * features + 2 * sum(hidden) + 1
        down, up = slice(0, features), slice(features, 2 * features)
        matrix: list[Array] = []
        least: list[Array] = []

        def at_least(bound: Array, **parts: tuple[slice, Array]) -> None:
            rows = np.zeros((len(bound), count))
            for columns, values in parts.values():
                rows[:, columns] += values
            matrix.append(rows)
            least.append(bound)

        most = np.concatenate(
            [np.minimum(-self.down, reach), np.minimum(self.up, reach), np.zeros(2 * sum(hidden) + 1)]
        )
        most[-1] = reach
        start, taken = 2 * features, None
        for weight, bias, (low, high) in zip(self.weights[:-1], self.biases[:-1], self.bounds(reach), strict=True):
            out = slice(start, start + len(bias))
            on = slice(start + sum(hidden), start + sum(hidden) + len(bias))
            each = np.eye(len(bias))
            if taken is None:
                middle, sources = weight @ self.point + bias, {"up": (up, weight), "down": (down, -weight)}
            else:
                middle, sources = bias, {"taken": (taken, weight)}
            minus = {name: (columns, -values) for name, (columns, values) in sources.items()}
            high, low = np.maximum(high, 0), np.minimum(low, 0)
            at_least(middle, out=(out, each), **minus)
            at_least(-middle + low, out=(out, -each), on=(on, np.diag(low)), **sources)
            at_least(np.zeros(len(bias)), out=(out, -each), on=(on, np.diag(high)))
            most[out], most[on] = high, 1.0
            start, taken = out.stop, out
        assert taken is not None
        at_least(-self.biases[-1], taken=(taken, self.weights[-1]))
        each = np.eye(features)
        cost = np.zeros(count)
        if self.norm is Linf:
            cost[-1] = 1.0
            at_least(
                np.zeros(features),
                length=(slice(count - 1, count), np.ones((features, 1))),
                up=(up, -each),
                down=(down, -each),
            )
        else:
            cost[: 2 * features] = 1.0
        whole = np.zeros(count)
        whole[2 * features + sum(hidden) : -1] = 1
        solved = milp(
            cost,
            integrality=whole,
            bounds=Bounds(0.0, most),
            constraints=LinearConstraint(np.concatenate(matrix), np.concatenate(least)),
            options={"mip_rel_gap": 1e-7},
        )
        return np.inf if solved.x is None else float(cost @ solved.x)

    def _nearest(self, reach: float) -> float:
        """By branch and bound: ReLUs are on, off, or below a line, and the point is projected on what that leaves."""
        first, last = self.weights
        best, waiting = np.inf, [np.zeros(len(first))]
        while waiting:
            signs = waiting.pop()
            radius = min(best, reach)
            ((low, high),) = self.bounds(radius)
            if np.any((signs > 0) & (high < 0)) or np.any((signs < 0) & (low > 0)):
                continue
            settled = np.where(signs != 0, signs, np.where(low >= 0, 1.0, np.where(high <= 0, -1.0, 0.0)))
            way, open_ones = self._projected(settled, signs, low, high)
            if way is None or np.linalg.norm(way) >= radius * (1 - 1e-9):
                continue
            true = last[0] @ np.maximum(first @ (self.point + way) + self.biases[0], 0) + self.biases[1][0]
            if true >= -_PRECISION * 1e-2:
                best = float(np.linalg.norm(way))
            elif len(open_ones):
                # The ReLU whose lines are farthest from it here.
                branch = open_ones[0]
                for sign in (1.0, -1.0):
                    waiting.append(np.where(np.arange(len(signs)) == branch, sign, signs))
        return best

    def _projected(self, settled: Array, signs: Array, low: Array, high: Array) -> tuple[Array | None, Array]:
        """The shortest way to where the relaxed lead is 0 and what was branched on keeps its sign; open ReLUs."""
        (first, last), (bias, shift) = self.weights, self.biases
        middle, steep = first @ self.point + bias, last[0]
        chord = high / np.where(high > low, high - low, 1.0)
        open_one = settled == 0
        slope = np.where(open_one, np.where(steep > 0, chord, (high > -low) * 1.0), (settled > 0) * 1.0)
        constant = np.where(open_one & (steep > 0), -low * chord, 0.0)
        rows = [(steep * slope) @ first, *(signs[:, None] * first)[signs != 0]]
        bounds = [-(steep @ (slope * middle + constant)) - shift[0], *(-signs * middle)[signs != 0]]
        for side, sign in ((self.up, -1.0), (self.down, 1.0)):
            finite = np.isfinite(side)
            rows += list(sign * np.eye(len(side))[finite])
            bounds += list(sign * side[finite])
        way = least_distance(np.array(rows), np.array(bounds))
        if way is None:
            return None, np.array([])
        at = middle + first @ way
        gap = np.abs(steep * (slope * at + constant - np.maximum(at, 0))) * open_one
        order = np.argsort(-gap)
        return way, order[open_one[order]]


def least_distance(rows: Array, bounds: Array) -> Array | None:
    """The shortest vector with rows @ vector >= bounds, by least squares (Lawson & Hanson 1974, ch. 23)."""
    size = np.linalg.norm(rows, axis=1)
    if np.any((size == 0) & (bounds > 0)):
        return None
    rows, bounds = (
        part[size > 0] for part in (rows / np.maximum(size, 1e-300)[:, None], bounds / np.maximum(size, 1e-300))
    )
    scale = max(np.abs(bounds).max(), 1e-12)
    matrix = np.concatenate([rows.T, bounds[None] / scale])
    target = np.append(np.zeros(rows.shape[1]), 1.0)
    multipliers, _ = nnls(matrix, target)
    residual = matrix @ multipliers - target
    if -residual[-1] < 1e-10:
        return None
    return -residual[:-1] / residual[-1] * scale  # type: ignore[no-any-return]
