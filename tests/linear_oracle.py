"""Linear classifiers of all kinds of input, and how far each point is from their boundary: known, not searched."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from widemargin.data.dataset import Dataset
from widemargin.perturb.attack import Classifier
from widemargin.perturb.balls import L1, L2, OPEN, UNIT, Box, Linf, Norm
from widemargin.uncertainty.cuts import at_input
from widemargin.uncertainty.single import Single

Array = NDArray[np.float64]
SCALES = (1.0, 100.0, 0.01, 10.0, 1.0, 5.0)


@dataclass(frozen=True)
class Kind:
    """What the points look like."""

    name: str
    shape: tuple[int, ...]
    box: Box
    classes: int

    def __repr__(self) -> str:
        return f"{self.name}-{self.classes}"

    def draw(self, rows: int, seed: int = 0) -> tuple[Single, Dataset]:
        """All points are classified right, in float32 as users have them."""
        rng = np.random.default_rng(seed)
        features = int(np.prod(self.shape))
        scales = np.array(SCALES) if self.name == "table" else np.ones(features)
        points = rng.uniform(size=(rows, features)) if self.name != "plane" else rng.normal(size=(rows, features))
        # As in scanned digits, many features lie on the edge of the box.
        points = np.clip(3 * points - 1, 0, 1) if self.name == "image" else points * scales
        weight = rng.normal(size=(self.classes, features)) / scales
        layer = nn.Linear(features, self.classes)
        with torch.no_grad():
            layer.weight.copy_(torch.tensor(weight))
            layer.bias.copy_(torch.tensor(0.1 * rng.normal(size=self.classes) - weight @ points.mean(0)))
        network = Single(at_input(nn.Sequential(nn.Flatten(), layer)))
        inputs = torch.tensor(points, dtype=torch.float32).view(rows, *self.shape)
        with torch.no_grad():
            return network, Dataset(inputs, network(inputs).argmax(1))


KINDS = [
    Kind(name, shape, box, classes)
    for name, shape, box in (
        ("image", (1, 8, 8), UNIT),
        ("table", (6,), Box((0.0,) * 6, SCALES)),
        ("open", (6,), OPEN),
        ("plane", (2,), OPEN),
    )
    for classes in (2, 10)
]


def known_distances(network: Single, cloud: Dataset, norm: Norm, box: Box) -> Array:
    """The least over all other classes, in double precision."""
    _, layer = network.head
    weight, bias = (parameter.detach().double().numpy() for parameter in (layer.weight, layer.bias))
    return _distances(weight, bias, cloud, norm, box)


def linear(classes: int, features: int = 12) -> tuple[Tensor, Classifier]:
    """Weights [features, classes] without a bias, and the classifier that has them."""
    weights = torch.randn(features, classes, generator=torch.Generator().manual_seed(0))
    return weights, lambda points: points.flatten(1) @ weights


def inner_points(classify: Classifier, count: int, features: int = 12) -> tuple[Tensor, Tensor]:
    """In [0.2, 0.8], all classified right."""
    inputs = 0.2 + 0.6 * torch.rand(count, features, generator=torch.Generator().manual_seed(1))
    return inputs, classify(inputs).argmax(1)


def distances_to(weights: Tensor, inputs: Tensor, labels: Tensor, norm: Norm, box: Box = OPEN) -> Tensor:
    """Of a classifier made by `linear`."""
    weight = weights.T.double().numpy()
    found = _distances(weight, np.zeros(len(weight)), Dataset(inputs, labels), norm, box)
    return torch.from_numpy(found).to(inputs.dtype)


def _distances(weight: Array, bias: Array, cloud: Dataset, norm: Norm, box: Box) -> Array:
    points, labels = cloud.points.flatten(1).double(), cloud.labels.numpy()
    down, up = (side.expand_as(points).numpy() for side in box.room(points))
    found = np.full(len(labels), np.inf)
    for row, (point, label) in enumerate(zip(points.numpy(), labels, strict=True)):
        for rival in set(range(len(weight))) - {int(label)}:
            slope = weight[rival] - weight[label]
            needed = -(slope @ point + bias[rival] - bias[label])
            room = np.where(slope > 0, up[row], -down[row])
            found[row] = min(found[row], shortest_climb(np.abs(slope), room, needed, norm))
    return found


def shortest_climb(slope: Array, room: Array, needed: float, norm: Norm) -> float:
    """The least norm of 0 <= way <= room with slope @ way >= needed; infinite if there is no such way."""
    if np.isinf(room).all():
        # By the slope's dual norm.
        return float(needed / np.linalg.norm(slope, {L1: np.inf, L2: 2, Linf: 1}[norm]))
    if norm is L1:
        # A fractional knapsack: the steepest feature first.
        length = 0.0
        for i in np.argsort(-slope):
            used = min(room[i], needed / slope[i])
            length, needed = length + used, needed - used * slope[i]
            if used < room[i] or needed <= 0:
                return length
        return np.inf
    # Optimality: every feature is at its room, or in proportion to its slope (l2), or at one level (linf).
    speed = slope if norm is L2 else np.ones_like(slope)
    low, high = 0.0, 1e9
    if slope @ np.minimum(high * speed, room) < needed:
        return np.inf
    for _ in range(200):
        middle = (low + high) / 2
        low, high = (low, middle) if slope @ np.minimum(middle * speed, room) >= needed else (middle, high)
    return float(np.linalg.norm(np.minimum(high * speed, room), 2 if norm is L2 else np.inf))


NORMS: tuple[Norm, ...] = (Linf, L2, L1)
