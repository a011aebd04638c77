"""How far classes are apart: distances to the nearest example of another class, and the radii that follow from them."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from widemargin.data.dataset import Dataset
from widemargin.data.splits import stratified
from widemargin.measure.neighbors import NEAREST
from widemargin.rng import Rng

QUANTILES = (0.0, 0.01, 0.05, 0.25, 0.5, 0.75, 0.95, 0.99, 1.0)
EXACT_ROWS = 1_000_000
"""Of more rows only some are measured, unless all are asked for."""
SAMPLED_ROWS = 10_000
_AUTO_ROWS = 1_000
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

    def closest(self, count: int) -> list[tuple[int, int, float]]:
        """Pairs of rows and their distance, the nearest first, each pair once."""
        pairs: dict[tuple[int, int], float] = {}
        for place in np.argsort(self.distances, kind="stable"):
            one, two = sorted((int(self.rows[place]), int(self.neighbors[place])))
            pairs.setdefault((one, two), float(self.distances[place]))
            if len(pairs) == count:
                break
        return [(one, two, distance) for (one, two), distance in pairs.items()]

    def to_dict(self, closest: int) -> dict[str, Any]:
        """For JSON."""
        return {
            "norm": self.norm,
            "exact": self.exact,
            "measured": len(self.rows),
            "quantiles": {f"{share:g}": self.quantile(share) for share in QUANTILES},
            "radii": {f"{share:g}": self.radius(share) for share in (0.0, 0.01, 0.05)},
            "closest": [{"rows": [one, two], "distance": far} for one, two, far in self.closest(closest)],
        }


def separation(
    dataset: Dataset,
    norm: str = "l2",
    rows: int | None = None,
    seed: int = 0,
    on_progress: Callable[[int], None] = lambda done: None,
) -> Separation:
    """Exact, in blocks.  `rows` measures so many examples, drawn class by class, against all; beyond a million examples
    that is the default, with 10,000."""
    if norm not in NEAREST:
        raise ValueError(f"norm must be one of {', '.join(NEAREST)}, got {norm!r}")
    if rows is not None and rows < 1:
        raise ValueError(f"rows must be at least 1, got {rows}")
    if dataset.has_unlabelled:
        raise ValueError("every example must have a label, got some without: give dataset.labelled()")
    dataset = dataset.to("cpu")
    measured = measured_rows(len(dataset), rows)
    everyone = torch.arange(len(dataset))
    drawn = everyone if measured == len(dataset) else stratified(dataset.labels, measured, Rng.seeded(seed))
    batch_size = max(1, min(256, _CELLS // len(dataset)))
    nearest = NEAREST[norm](dataset, batch_size, on_progress, drawn)
    return Separation(norm, len(dataset), drawn.numpy(), nearest.row.numpy(), nearest.distance.numpy())


def measured_rows(total: int, rows: int | None = None) -> int:
    """Of how many examples the distance is measured."""
    return min(total, (SAMPLED_ROWS if total > EXACT_ROWS else total) if rows is None else rows)


def duplicates(dataset: Dataset) -> list[list[int]]:
    """Groups of rows with the same input, in the order of the rows."""
    # Adding 0 makes -0 and 0 the same bytes.
    flat = np.ascontiguousarray(dataset.stored.cpu().flatten(1).numpy() + 0)
    groups: dict[bytes, list[int]] = {}
    for row, values in enumerate(flat):
        groups.setdefault(values.tobytes(), []).append(row)
    return [rows for rows in groups.values() if len(rows) > 1]


def contradictions(dataset: Dataset, groups: list[list[int]]) -> list[list[int]]:
    """The groups of duplicates whose labels differ."""
    labels = dataset.labels.tolist()
    return [rows for rows in groups if len({labels[row] for row in rows}) > 1]


def auto_radius(recipe: str, dataset: Dataset, norm: str) -> float:
    """The radius of `--eps auto`, from at most 1,000 training examples, drawn class by class, against all.

    Half the median distance to another class for recipes that climb the uncertainty (udp and its kin), since their
    points stop at the boundary; half the 25 % quantile for those that climb the loss, whose points go on and would
    teach wrong labels.
    """
    share = 0.5 if recipe.startswith("udp") else 0.25
    held = set(dataset.schema.fixed) if dataset.schema is not None else set()
    if held:
        # Rows that differ in them alone are no reason for a wider ball.
        free = [place for place in range(dataset.points.shape[1]) if place not in held]
        dataset = Dataset(dataset.points[:, free], dataset.labels, dataset.names)
    return separation(dataset, norm, rows=min(len(dataset), _AUTO_ROWS)).radius(share)
