"""App. D.1: the max-margin boundary of LMS-5, and what a boundary that uses one feature alone loses."""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np
import torch
from torch import Tensor, nn

from widemargin.data.dataset import Dataset
from widemargin.data.toy import LMS5
from widemargin.measure.margin import Margins
from widemargin.report.document import Picture, Report, Verdict
from widemargin.report.figures import BOUNDARY, Array, draw_regions, panels
from widemargin.report.figures import Picture as Panel
from widemargin.report.store import Parts, Store, Stored
from widemargin.report.tables import Table
from widemargin.report.verdicts import exactly, in_most_seeds
from widemargin.uncertainty.cuts import at_input
from widemargin.uncertainty.single import Single
from widemargin.workers import Job, OnProgress, Workers
from widemargin_studies import plane

GRIDS = plane.Grids(refinements=4)
ERROR = 1e-4
"""How far a measured distance may be off: found by measuring once more with one refinement less, see the table."""


class NearestNeighbour(nn.Module):
    """The class of the nearest point; logits are minus the distance to the nearest point of each class."""

    def __init__(self, cloud: Dataset) -> None:
        super().__init__()
        # Parameters, though nothing trains them: they are what says which type and device the rule works in.
        self.classes = nn.ParameterList(
            nn.Parameter(cloud.points[cloud.labels == label].double(), requires_grad=False)
            for label in range(cloud.classes)
        )

    def forward(self, points: Tensor) -> Tensor:
        # The quick form by matrix products loses the digits that matter next to the boundary.
        exact = "donot_use_mm_for_euclid_dist"
        return torch.stack([-torch.cdist(points, of_class, compute_mode=exact).amin(1) for of_class in self.classes], 1)


@dataclass(frozen=True)
class OneFeature:
    """The best vertical line between two classes, class 1 to its right; the margin is negative if there is none."""

    threshold: float
    margin: float


def one_feature(cloud: Dataset) -> OneFeature:
    x = cloud.points[:, 0].double()
    left, right = float(x[cloud.labels == 0].max()), float(x[cloud.labels == 1].min())
    return OneFeature((left + right) / 2, (right - left) / 2)


@dataclass(frozen=True)
class MaxMargin:
    TITLE: str = "App. D.1: the max-margin boundary of LMS-5"
    CORE_MINUTES: float = 1.0
    sets: tuple[LMS5, ...] = tuple(LMS5(seed=seed) for seed in range(1, 6))
    grids: plane.Grids = GRIDS

    def parts(self, data: LMS5) -> Parts:
        return ("max-margin", data, self.grids.refinements)

    def run(self, store: Store, workers: Workers) -> None:
        todo = [data for data in self.sets if self.parts(data) not in store]
        workers.do(
            [Job(f"LMS-5, data seed {data.seed}", 2, self.measure, (data, store)) for data in todo], "Max-margin"
        )

    def missing(self, store: Store) -> int:
        return sum(self.parts(data) not in store for data in self.sets)

    def measure(self, data: LMS5, store: Store, on_progress: OnProgress) -> None:
        cloud = data.draw()
        result = measure(NearestNeighbour(cloud), cloud, self.grids, on_progress)
        store.save(self.parts(data), result.numbers, result.arrays, {})

    def report(self, store: Store) -> Report:
        stored_sets = [store.load(self.parts(data)) for data in self.sets]
        return Report(
            self.TITLE,
            "Does the nearest-neighbour boundary give every point of LMS-5 its best margin?  How much does x alone "
            "give?",
            f"Data seeds {' '.join(str(data.seed) for data in self.sets)}; {self.sets[0].count} points each, linear "
            f"and slab margin {self.sets[0].linear_margin}; distances from a grid refined {self.grids.refinements} "
            "times. Nothing is trained.",
            verdicts(stored_sets),
            (self.table(stored_sets),),
            (self.picture(stored_sets),),
        )

    def table(self, stored_sets: list[Stored]) -> Table:
        rows = []
        for data, stored in zip(self.sets, stored_sets, strict=True):
            group, line = measured(stored), stored.numbers["one feature"]
            rows.append(
                (
                    str(data.seed),
                    f"{group.best.min():.4f}",
                    f"{group.margin.min():.4f}",
                    f"{_shortfall(group):.1e}",
                    f"{stored.numbers['changed']:.1e}",
                    f"{line:.4f}",
                    f"{100 * (1 - line / group.best.min()):.0f} %",
                )
            )
        return Table(
            "Margins of the nearest-neighbour rule, and of the best vertical line",
            ("data seed", "m*", "smallest", "most short", "refining", "x alone", "it loses"),
            tuple(rows),
            "m*: half the smallest distance between the classes, the most that any boundary can give all points. "
            "Smallest: the smallest margin measured. Most short: by how much any point's measured margin is below its "
            "own best. Refining: the largest change of a distance by the last refinement.",
        )

    def picture(self, stored_sets: list[Stored]) -> Picture:
        figure, (axes,) = panels(1, len(stored_sets), size=2.5)
        for panel, data, stored in zip(axes, self.sets, stored_sets, strict=True):
            shown = {name: stored.arrays[name] for name in ("points", "labels", "x", "y", "lead")}
            drawn = Panel(wrong=stored.arrays["margin"] < 0, **shown)
            draw_regions(panel, drawn)
            panel.axvline(stored.numbers["threshold"], color=BOUNDARY, linewidth=1.0, linestyle="dotted")
            pair = closest_pair(drawn.points, drawn.labels)
            panel.plot(pair[:, 0], pair[:, 1], color="#b2182b", linewidth=2.0, zorder=4)
            panel.set_title(f"data seed {data.seed}: m* = {stored.arrays['best'].min():.3f}", fontsize=10)
        return Picture(
            "app-max-margin",
            figure,
            "Solid: the nearest-neighbour boundary, the max-margin reference; dotted: the best vertical line; red: the "
            "two points of different classes that are closest, 2 m* apart.",
        )


STUDY = MaxMargin()


def measure(rule: nn.Module, cloud: Dataset, grids: plane.Grids, on_progress: OnProgress) -> Stored:
    """Margins of a rule, how much the last refinement changed them, and what a vertical line would give."""
    network = Single(at_input(rule))
    measured = grids.margins(network, cloud)
    on_progress(1)
    coarser = replace(grids, refinements=grids.refinements - 1).margins(network, cloud)
    on_progress(2)
    line = one_feature(cloud)
    numbers = {
        "errors": measured.errors,
        "changed": float(np.abs(measured.margin - coarser.margin).max()),
        "threshold": line.threshold,
        "one feature": line.margin,
    }
    arrays = {"margin": measured.margin, "best": measured.best, **grids.picture_arrays(network, cloud)}
    return Stored(numbers, arrays)


def measured(stored: Stored) -> Margins:
    return Margins(stored.arrays["margin"], stored.arrays["best"])


def verdicts(stored_sets: list[Stored]) -> tuple[Verdict, ...]:
    group = [measured(stored) for stored in stored_sets]
    changed = max(stored.numbers["changed"] for stored in stored_sets)
    short = max(_shortfall(each) for each in group)
    off = max(abs(each.margin.min() - each.best.min()) for each in group)
    kept = [
        stored.numbers["one feature"] / float(each.best.min()) for stored, each in zip(stored_sets, group, strict=True)
    ]
    return (
        Verdict(
            f"Distances are measured to {ERROR:g}.",
            exactly(changed <= ERROR),
            f"the last refinement changes none of {sum(each.margin.size for each in group)} by more than {changed:.1e}",
        ),
        Verdict(
            "The nearest-neighbour boundary gives every point at least its best margin.",
            exactly(short <= ERROR and sum(each.errors for each in group) == 0),
            f"no point falls short by more than {short:.1e}; errors: {' '.join(str(each.errors) for each in group)}",
        ),
        Verdict(
            "Its smallest margin is m*: it is a max-margin boundary.",
            exactly(bool(off <= ERROR)),
            f"differs from m* by at most {off:.1e}; m* = {' '.join(f'{each.best.min():.4f}' for each in group)}",
        ),
        Verdict(
            "A boundary that uses x alone separates the classes, with less margin: the price of the simplicity bias.",
            in_most_seeds([0 < share < 1 for share in kept]),
            f"it keeps {100 * np.mean(kept):.0f} % of m* on average, {100 * min(kept):.0f} to {100 * max(kept):.0f} % "
            f"over {len(kept)} data seeds",
        ),
    )


def _shortfall(measured: Margins) -> float:
    return float(np.maximum(measured.best - measured.margin, 0.0).max())


def closest_pair(points: Array, labels: Array) -> Array:
    """[2, 2]: the two points of different classes that are nearest to each other."""
    left, right = points[labels == 0], points[labels == 1]
    distance = np.linalg.norm(left[:, None] - right[None], axis=-1)
    i, j = np.unravel_index(distance.argmin(), distance.shape)
    return np.stack([left[i], right[j]])
