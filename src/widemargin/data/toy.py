"""Point sets whose best margin is known: the paper's 2-D and 1-D experiments, and any set of scikit-learn's."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

import numpy as np
import torch
from numpy.typing import NDArray

from widemargin.data.dataset import Dataset
from widemargin.parts import part


class PointSet(Protocol):
    """A frozen description of a dataset: equal descriptions draw equal points."""

    def draw(self) -> Dataset: ...


@part
@dataclass(frozen=True)
class NarrowCorridor:
    """Two stairs that draw apart: the gap between the classes widens from bottom left to top right (Sec. 3).

    Our own geometry; the paper does not publish its points.  Deterministic.
    """

    narrow: float = 0.2
    wide: float = 1.0

    def draw(self) -> Dataset:
        t = np.arange(0, 8.25, 0.25)
        stair, along = np.floor(t), t - np.floor(t)
        even = stair % 2 == 0
        center = np.stack([np.ceil(stair / 2) + along * even, np.floor(stair / 2) + along * ~even], 1)
        half = (self.narrow + (self.wide - self.narrow) * t / 8)[:, None] / 2 * np.array([-1.0, 1.0])
        return _from_classes([center - half, center + half])


@part
@dataclass(frozen=True)
class LMS5:
    """Linear and multiple 5-slabs (Shah et al. 2020): x alone separates the classes, but both give more margin."""

    seed: int = 0
    count: int = 200
    linear_margin: float = 0.1
    slab_margin: float = 0.1

    def draw(self) -> Dataset:
        rng = np.random.default_rng(self.seed)
        labels = rng.integers(0, 2, self.count)
        u, v, w, side = rng.random((4, self.count))
        x = (2 * labels - 1) * (self.linear_margin + (1 - self.linear_margin) * u)
        width, margin = (2 - 8 * self.slab_margin) / 5, self.slab_margin
        inner, outer = width * v / 2, (3 + 8 * margin) / 5 + width * v
        middle = (1 + 6 * margin) / 5 + width * v
        y = np.where(labels == 1, middle, np.where(w < 0.75, inner, outer)) * np.where(side < 0.5, -1, 1)
        return _dataset(np.stack([x, y], 1), labels)


@part
@dataclass(frozen=True)
class TwoDistances:
    """Classes that are close on the left and far apart on the right (App. D.2)."""

    seed: int = 0
    count: int = 80

    def draw(self) -> Dataset:
        rng = np.random.default_rng(self.seed)
        right = np.arange(self.count) % 2
        labels = np.arange(self.count) // 2 % 2
        x = rng.random(self.count) + np.where(right, 0.5, -1.5)
        height = 0.6 * rng.random(self.count) + np.where(right, 0.8, 0.1)
        return _dataset(np.stack([x, np.where(labels, height, -height)], 1), labels)


@part
@dataclass(frozen=True)
class TwoGaussians:
    """One dimension, two Gaussians at -1 and +1: the theorem's setting (Sec. 4.2)."""

    seed: int = 0
    count: int = 200
    deviation: float = 0.1

    def draw(self) -> Dataset:
        labels = np.arange(self.count) % 2
        noise = np.random.default_rng(self.seed).normal(0, self.deviation, self.count)
        return _dataset((2 * labels - 1 + noise)[:, None], labels)


@part
@dataclass(frozen=True)
class FromSklearn:
    """A 2-D set of scikit-learn's `make_...` generators: moons, circles, blobs, gaussian_quantiles."""

    name: str
    seed: int = 0
    count: int = 200
    noise: float = 0.05

    def __post_init__(self) -> None:
        if self.noise != 0.05 and self.name not in _NOISY:
            raise ValueError(f"FromSklearn.noise is for {' and '.join(_NOISY)}: {self.name} has none")
        if self.name not in _SKLEARN:
            raise ValueError(f"FromSklearn.name must be one of {', '.join(_SKLEARN)}, got {self.name!r}")

    def draw(self) -> Dataset:
        try:
            from sklearn import datasets
        except ImportError:
            raise ValueError(
                "this point set needs scikit-learn, which is not installed: pip install 'widemargin[sklearn]'"
            ) from None
        noise = {"noise": self.noise} if self.name in _NOISY else {}
        make = getattr(datasets, f"make_{self.name}")
        points, labels = make(n_samples=self.count, random_state=self.seed, **noise)[:2]
        return _dataset(points, labels)


_NOISY = ("moons", "circles")
_SKLEARN = (*_NOISY, "blobs", "gaussian_quantiles")


def _from_classes(classes: list[NDArray[np.float64]]) -> Dataset:
    return _dataset(np.concatenate(classes), np.repeat(np.arange(len(classes)), [len(c) for c in classes]))


def _dataset(points: NDArray[np.float64], labels: NDArray[np.int64]) -> Dataset:
    return Dataset(torch.as_tensor(points, dtype=torch.float32), torch.as_tensor(labels, dtype=torch.int64))
