"""How far classes are apart: distances to the nearest example of another class, and the radii that follow from them."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from widemargin.data.dataset import Dataset
from widemargin.data.splits import stratified
from widemargin.measure.neighbors import NEAREST
from widemargin.perturb.balls import Norm, norm_named
from widemargin.rng import Rng

QUANTILES = (0.0, 0.01, 0.05, 0.25, 0.5, 0.75, 0.95, 0.99, 1.0)
EXACT_ROWS = 1_000_000
"""Of more rows only some are measured, unless all are asked for."""
SAMPLED_ROWS = 10_000
AUTO_ROWS = 1_000
"""That `--eps auto` measures at most."""
_CELLS = 2**25
"""Of the matrix of distances that is in memory."""


@dataclass(frozen=True, eq=False)
class Separation:
    """The distance of each example to the nearest one of another class, in one norm."""

    norm: str
    total: int
    """Examples among which the nearest was sought."""
    rows: NDArray[np.int64]
    """Of the examples that were measured."""
    neighbors: NDArray[np.int64]
    """Row of the nearest example of another class."""
    distances: NDArray[np.float64]

    @property
    def exact(self) -> bool:
        """Were all examples measured?  If not, the smallest distance is only an upper bound."""
        return len(self.rows) == self.total

    @property
    def smallest(self) -> float:
        return float(self.distances.min())

    def quantile(self, share: float) -> float:
        return float(np.quantile(self.distances, share))

    def radius(self, share: float = 0.0) -> float:
        """The largest radius at which at most this share of the examples have a ball that meets one of another class:
        half of a quantile of the distances."""
        return float(np.quantile(self.distances, share, method="lower")) / 2

    def meeting(self, radius: float) -> float:
        """The share of the examples that have a ball of this radius which meets one of another class.

        Balls that only touch do not: at `radius(share)` it is at most that share.
        """
        return float((self.distances < 2 * radius).mean())

    def closest(self, count: int, copies: Mapping[int, int] | None = None) -> list[tuple[int, int, float]]:
        """Pairs of rows and their distance, the nearest first, each pair once.

        `copies` names for a row the first one with the same input: pairs with the same inputs are then one.
        """
        first = copies or {}
        pairs: dict[tuple[int, ...], tuple[int, int, float]] = {}
        for place in np.argsort(self.distances, kind="stable"):
            one, two = sorted((int(self.rows[place]), int(self.neighbors[place])))
            same = tuple(sorted((first.get(one, one), first.get(two, two))))
            pairs.setdefault(same, (one, two, float(self.distances[place])))
            if len(pairs) == count:
                break
        return list(pairs.values())

    def to_dict(self, closest: int, copies: Mapping[int, int] | None = None) -> dict[str, Any]:
        """For JSON."""
        return {
            "norm": self.norm,
            "exact": self.exact,
            "measured": len(self.rows),
            "quantiles": {f"{share:g}": self.quantile(share) for share in QUANTILES},
            "radii": {f"{share:g}": self.radius(share) for share in (0.0, 0.01, 0.05)},
            "closest": [{"rows": [one, two], "distance": far} for one, two, far in self.closest(closest, copies)],
        }


def separation(
    dataset: Dataset,
    norm: str | float | Norm = "l2",
    rows: int | None = None,
    seed: int = 0,
    on_progress: Callable[[int], None] = lambda done: None,
) -> Separation:
    """Exact, in blocks.  `rows` measures so many examples, drawn class by class, against all; beyond a million examples
    that is the default, with 10,000."""
    name = norm_named(norm).__name__.lower()
    if name not in NEAREST:
        raise ValueError(f"norm must be one of {', '.join(NEAREST)}, got {norm!r}")
    if rows is not None and rows < 1:
        raise ValueError(f"rows must be at least 1, got {rows}")
    if dataset.has_unlabelled:
        raise ValueError("every example must have a label, got some without: give dataset.labelled()")
    dataset = dataset.to("cpu")
    measured = measured_rows(len(dataset), rows)
    everyone = torch.arange(len(dataset))
    drawn = everyone if measured == len(dataset) else stratified(dataset.labels, measured, Rng.seeded(seed))
    # Copies have one distance: a group of them is measured once, and compared with once.
    first, number = _distinct(dataset)
    asked, place = number[drawn].unique(return_inverse=True)
    distinct = dataset if len(first) == len(dataset) else dataset.take(first)
    batch_size = max(1, min(256, _CELLS // len(distinct)))
    nearest = NEAREST[name](distinct, batch_size, lambda done: on_progress(done * measured // len(asked)), asked)
    neighbors, distances = first[nearest.row][place], nearest.distance[place]
    return Separation(name, len(dataset), drawn.numpy(), neighbors.numpy(), distances.numpy())


def _distinct(dataset: Dataset) -> tuple[Tensor, Tensor]:
    """The first row of each input and class, and for every row the number of its own among these."""
    groups: dict[tuple[bytes, int], int] = {}
    labels = dataset.labels.tolist()
    number = [groups.setdefault((key, label), len(groups)) for key, label in zip(_keys(dataset), labels, strict=True)]
    numbers = torch.tensor(number)
    first = torch.full((len(groups),), len(number)).scatter_reduce(0, numbers, torch.arange(len(number)), "amin")
    return first, numbers


def measured_rows(total: int, rows: int | None = None) -> int:
    """Of how many examples the distance is measured."""
    return min(total, (SAMPLED_ROWS if total > EXACT_ROWS else total) if rows is None else rows)


def duplicates(dataset: Dataset) -> list[list[int]]:
    """Groups of rows with the same input, in the order of the rows."""
    groups: dict[bytes, list[int]] = {}
    for row, key in enumerate(_keys(dataset)):
        groups.setdefault(key, []).append(row)
    return [rows for rows in groups.values() if len(rows) > 1]


def _keys(dataset: Dataset) -> Iterator[bytes]:
    """A digest of every row; the same for the same input."""
    # Adding 0 makes -0 and 0 the same bytes.
    flat = np.ascontiguousarray(dataset.stored.cpu().flatten(1).numpy() + 0)
    return (hashlib.blake2b(values, digest_size=16).digest() for values in flat)


def contradictions(dataset: Dataset, groups: list[list[int]]) -> list[list[int]]:
    """The groups of duplicates whose labels differ."""
    labels = dataset.labels.tolist()
    return [rows for rows in groups if len({labels[row] for row in rows}) > 1]


def movable(dataset: Dataset) -> Dataset:
    """With the features that a perturbation may change: in others a ball has no extent, and rows that differ in them
    alone are no reason for a wider one."""
    held = set() if dataset.schema is None else set(dataset.schema.fixed)
    if not held:
        return dataset
    free = [place for place in range(dataset.points.shape[1]) if place not in held]
    return Dataset(dataset.points[:, free], dataset.labels, dataset.names)


AUTO_SHARES = {"udp": 0.5, "others": 0.25}
"""The quantile of the distances whose half is the radius of `--eps auto`, for the udp methods and for the others."""


def auto_radii(dataset: Dataset, norm: str, on_progress: Callable[[int], None] = lambda done: None) -> dict[str, float]:
    """Those of `--eps auto`, from at most 1,000 training examples, drawn class by class, against all.

    Half the median distance to another class for recipes that climb the uncertainty (the udp methods), since their
    points stop at the boundary; half the 25 % quantile for those that climb the loss, whose points go on and would
    teach wrong labels.
    """
    result = separation(movable(dataset), norm, min(len(dataset), AUTO_ROWS), on_progress=on_progress)
    return {kind: result.radius(share) for kind, share in AUTO_SHARES.items()}


def auto_radius(recipe: str, dataset: Dataset, norm: str) -> float:
    """The radius of `--eps auto` for one recipe."""
    return auto_radii(dataset, norm)["udp" if recipe.startswith("udp") else "others"]
