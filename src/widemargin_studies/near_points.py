"""Past the paper: what if the points nearest to the boundary decide where it goes?"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import chain

import numpy as np
from numpy.typing import NDArray
from torch import Tensor

from widemargin.data.dataset import Dataset
from widemargin.data.toy import LMS5, FromSklearn, NarrowCorridor, PointSet, TwoDistances
from widemargin.method import BoundaryWeights, Method
from widemargin.perturb.ascent import Steepest
from widemargin.perturb.attack import Perturbed
from widemargin.perturb.balls import L2, OPEN, Linf
from widemargin.perturb.search import Search
from widemargin.recipes import pgd, standard, udp, udp_near, udp_projected
from widemargin.report.document import Picture, Report, Verdict
from widemargin.report.figures import draw_regions, label_grid, panels
from widemargin.report.store import Store
from widemargin.report.tables import Table, mean_std
from widemargin.report.verdicts import Estimate, Outcome, all_of, greater, mean_of
from widemargin.rng import AnyRng, Rng
from widemargin.runs.run import Run
from widemargin.training.plan import Plan
from widemargin.uncertainty.network import Network
from widemargin.workers import Workers
from widemargin_studies import plane


@dataclass(frozen=True)
class Rescaled:
    """The same points in other units."""

    data: NarrowCorridor
    times: float

    def draw(self) -> Dataset:
        cloud = self.data.draw()
        return Dataset(self.times * cloud.points, cloud.labels)


@dataclass(frozen=True)
class DrawnSteps:
    """A control: the same search, whose number of steps is all that tells a sample's distance."""

    search: Search

    def __call__(self, network: Network, inputs: Tensor, labels: Tensor, rng: AnyRng) -> Perturbed:
        rng = rng.by_block()
        ascent = self.search.ascent
        assert isinstance(ascent.step, Steepest)
        counts = ascent.steps.draw(len(inputs), rng)
        search = replace(self.search, ascent=replace(ascent, steps=_Given(ascent.steps.most, counts)))
        return search(network, inputs, labels, rng)._replace(distance=ascent.step.size * counts)


@dataclass(frozen=True, eq=False)
class _Given:
    most: int
    counts: Tensor

    def draw(self, rows: int, rng: Rng) -> Tensor:
        return self.counts


# Seeds of data and of networks on which no setting was chosen; the corridor is the same for all.
SETS: Mapping[str, tuple[PointSet, Plan]] = {
    "corridor": (NarrowCorridor(), plane.FULL_BATCH),
    "LMS-5 a": (LMS5(21), plane.BATCHES_OF_100),
    "LMS-5 b": (LMS5(22), plane.BATCHES_OF_100),
    "LMS-5 c": (LMS5(23), plane.BATCHES_OF_100),
    "two distances": (TwoDistances(21), plane.FULL_BATCH),
    "moons": (FromSklearn("moons", 21, 200, 0.1), plane.BATCHES_OF_100),
    "corridor x 5": (Rescaled(NarrowCorridor(), 5.0), plane.FULL_BATCH),
}
DRAWN = ("corridor", "LMS-5 a", "two distances")
Worsts = Mapping[tuple[str, str], NDArray[np.float64]]
LIMIT = L2(0.5, OPEN)
WIDE = L2(10.0, OPEN)
PAPER, EVEN, DRAWN_STEPS, WEIGHTED, EVEN_PROJECTED, PROJECTED, FREE, TOLD = (
    "UDP, sign steps, eps .5 (the paper's)",
    "UDP, l2 steps, eps .2",
    "UDP, l2 steps, weighed by drawn steps alone",
    "UDP, l2 steps, weighed by distance to the boundary",
    "projection steps, eps .5",
    "projection steps, eps .5, nearness .05",
    "projection steps, self-scaled nearness",
    "LDP-PGD l2, told the best radius",
)


def methods(data: PointSet) -> dict[str, Method]:
    """One setting for all sets, but for the method that is told what cannot be known."""
    best = float(data.draw().best_margins().min())
    projected, even = udp_projected(LIMIT), udp(L2(0.2, OPEN), alpha=0.02, steps=10)
    assert isinstance(even.perturb, Search)
    return {
        "standard": standard(),
        PAPER: udp(Linf(0.5, OPEN), alpha=0.05, steps=10),
        EVEN: even,
        DRAWN_STEPS: Method(DrawnSteps(even.perturb), even.criterion, BoundaryWeights(0.05)),
        WEIGHTED: udp_near(L2(0.2, OPEN), alpha=0.02, steps=10, scale=0.05),
        EVEN_PROJECTED: Method(projected.perturb, projected.criterion),
        PROJECTED: Method(projected.perturb, projected.criterion, BoundaryWeights(0.05)),
        FREE: udp_projected(WIDE),
        TOLD: pgd(L2(best, OPEN), alpha=best / 5, steps=10),
    }


@dataclass(frozen=True)
class NearPoints:
    TITLE: str = "Past the paper: near points decide"
    CORE_MINUTES: float = 80.0
    seeds: Sequence[int] = range(520, 530)
    sets: Mapping[str, tuple[PointSet, Plan]] = field(default_factory=lambda: SETS)
    grids: plane.Grids = plane.GRIDS

    def cells(self) -> dict[tuple[str, str], list[Run]]:
        return {
            (name, method): plane.runs_of(data, parts, plan, self.seeds)
            for name, (data, plan) in self.sets.items()
            for method, parts in methods(data).items()
        }

    def run(self, store: Store, workers: Workers) -> None:
        names = {group[0].method: method for (_, method), group in self.cells().items()}
        workers.do(plane.jobs(list(chain(*self.cells().values())), names, store, self.grids), "Near points")

    def missing(self, store: Store) -> int:
        return plane.missing(list(chain(*self.cells().values())), store)

    def report(self, store: Store) -> Report:
        results = {cell: [plane.measured(run, store) for run in group] for cell, group in self.cells().items()}
        order = list(dict.fromkeys(method for _, method in results))
        worst = Table(
            "Worst margin as a share of the best possible",
            ("method", *self.sets),
            tuple(
                (method, *(mean_std([m.worst_fraction for m in results[name, method]]) for name in self.sets))
                for method in order
            ),
            f"Mean ± std over {len(self.seeds)} fresh seeds. All rows but the last use one setting for all sets.",
        )
        errors = Table(
            "Misclassified training points, all seeds together",
            ("method", *self.sets),
            tuple(
                (method, *(str(sum(m.errors for m in results[name, method])) for name in self.sets)) for method in order
            ),
        )
        worsts = {cell: np.array([m.worst_fraction for m in group]) for cell, group in results.items()}
        return Report(
            self.TITLE,
            "UDP's boundary settles where crowds of points balance. Weighing each point by how near the boundary it "
            "was found lets the near ones decide. How close does that come to the best possible margin?",
            f"Seeds {self.seeds[0]}..{self.seeds[-1]}, not used for choosing any setting; MLP {plane.NETWORK.widths}; "
            f"{self.sets['corridor'][1]} (LMS-5, moons: {self.sets['moons'][1]}). Weights are exp(-distance / .05), "
            "the distance found by three projections; self-scaled: exp(-distance / scale), where scale is half the 5 % "
            "quantile of the distances in the batch; radius 10. Such weights are relatives of DyART's (Xu et al. "
            "2023), and of how MMA, GAIRAT and MAIL let near points decide.",
            self._verdicts(worsts),
            (worst, errors),
            (self._figure(store),),
        )

    def _verdicts(self, worsts: Worsts) -> tuple[Verdict, ...]:
        plain = [name for name in self.sets if name != "corridor x 5"]
        near = (WEIGHTED, PROJECTED, FREE)
        rescaled = [(m, worsts["corridor", m].mean(), worsts["corridor x 5", m].mean()) for m in near]
        change = mean_of(list(worsts["corridor x 5", FREE] - worsts["corridor", FREE]))
        return (
            _wider(
                "Weighing near points more widens the worst margin: UDP with l2 steps.", WEIGHTED, EVEN, worsts, plain
            ),
            _wider("And more than weights by drawn steps alone.", WEIGHTED, DRAWN_STEPS, worsts, plain),
            _wider("The control widens it, too.", DRAWN_STEPS, EVEN, worsts, plain),
            _wider("The same: projection steps.", PROJECTED, EVEN_PROJECTED, worsts, plain),
            _wider("The same, scale found in the batch, no radius to choose.", FREE, EVEN_PROJECTED, worsts, plain),
            _wider("Against the paper's form (another norm, radius and step).", WEIGHTED, PAPER, worsts, plain),
            Verdict(
                "It comes within .1 of LDP that was told the admissible radius, on average over the sets.",
                all_of(_below(_behind(method, worsts, plain), 0.1) for method in near),
                "; ".join(f"{method}: {_behind(method, worsts, plain)} behind" for method in near),
            ),
            Verdict(
                "A scale found in the batch does not care about units: on the corridor times 5 the margin is within "
                ".1.",
                all_of([greater(change, -0.1), _below(change, 0.1)]),
                "corridor, then x 5: " + "; ".join(f"{method} {one:.2f}, {five:.2f}" for method, one, five in rescaled),
            ),
        )

    def _figure(self, store: Store) -> Picture:
        order = ("standard", PAPER, WEIGHTED, FREE, TOLD)
        figure, axes = panels(len(DRAWN), len(order))
        for row, name in enumerate(DRAWN):
            for column, method in enumerate(order):
                draw_regions(axes[row][column], plane.picture(self.cells()[name, method][0], store))
        label_grid(axes, [method.replace(", ", ",\n", 1) for method in order], DRAWN)
        return Picture("near-points", figure, f"Decision regions after training (seed {self.seeds[0]}).")


STUDY = NearPoints()


def _wider(claim: str, method: str, control: str, worsts: Worsts, names: list[str]) -> Verdict:
    """Of the mean difference between the same seeds, set by set."""
    gains = {name: mean_of(list(worsts[name, method] - worsts[name, control])) for name in names}
    return Verdict(
        f"{claim} On every set.",
        all_of(greater(gain, 0.0) for gain in gains.values()),
        f"{method} less {control}: " + ", ".join(f"{name} {gain}" for name, gain in gains.items()),
    )


def _behind(method: str, worsts: Worsts, names: list[str]) -> Estimate:
    return mean_of(list(np.mean([worsts[name, TOLD] - worsts[name, method] for name in names], axis=0)))


def _below(value: Estimate, limit: float) -> Outcome:
    return greater(Estimate(limit, limit, limit), value)
