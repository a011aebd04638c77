"""Two pairs of points, one close together, one far apart: where do loss and uncertainty drive them?"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial

import numpy as np
import torch
from matplotlib.axes import Axes
from matplotlib.patches import Circle

from widemargin.data.dataset import Dataset
from widemargin.measure.boundary import Window, lead, log_probs
from widemargin.networks.mlp import MLPSpec
from widemargin.perturb.ascent import Ascent, Fixed, Steepest
from widemargin.perturb.balls import L2, OPEN, Ball, Linf
from widemargin.perturb.objectives import perturbed_log_entropy, perturbed_loss
from widemargin.perturb.search import Search
from widemargin.recipes import standard
from widemargin.report.document import Report
from widemargin.report.figures import BEST, BOUNDARY, COLOURS, Array, bare, draw_points
from widemargin.report.store import Parts, Store
from widemargin.report.tables import Table
from widemargin.report.verdicts import Outcome, in_most_seeds
from widemargin.rng import Rng
from widemargin.runs.run import Run
from widemargin.training.plan import Adam, Plan, Updates
from widemargin.uncertainty.replicas import Replicas
from widemargin.workers import Job, OnProgress, Workers
from widemargin_studies import plane


@dataclass(frozen=True)
class TwoPairs:
    """Mirror images left (class 0) and right (class 1) of x = 0, which is therefore the best boundary.

    The lower pair lies at distance `near` from it, the upper one at `far`: the paper's eps1 << eps2.
    """

    near: float = 0.15
    far: float = 0.9
    height: float = 0.7

    def draw(self) -> Dataset:
        right = torch.tensor([[self.near, -self.height], [self.far, self.height]])
        return Dataset(torch.cat([right * torch.tensor([-1.0, 1.0]), right]), torch.tensor([0, 0, 1, 1]))


PAIRS = TwoPairs()
NEAR, FAR = [0, 2], [1, 3]
"""Which of its points are which."""
NETWORK = MLPSpec((2, 64, 64, 2))
# Stopped early: the points are classified, but the answers are not yet so sure that the landscapes are cliffs.
PLAN = Plan(Updates(150), Adam(1e-3))
STEP, STEPS = 0.02, 75
GRIDS = plane.Grids(resolution=101)
WINDOW = Window(-1.45, 1.45, -1.45, 1.45)
RADII = (0.1, 0.5, 1.2)
"""Below eps1, between the two, and above eps2."""
SHOWN = 1
"""Which of the seeds is drawn."""

NORMS: Mapping[str, Callable[[float], Ball]] = {"l2": partial(L2, box=OPEN), "l-inf": partial(Linf, box=OPEN)}
ONE_STEP = {"l2": STEP, "l-inf": STEP * 2**0.5}
"""How far a single step can go in the plane."""
OBJECTIVES = {"LDP": perturbed_loss, "UDP": perturbed_log_entropy}
Case = tuple[str, float, str]
SEARCHES: Mapping[Case, Search] = {
    (norm, radius, name): Search(objective, ball(radius), Ascent(Fixed(STEPS), Steepest(STEP)))
    for norm, ball in NORMS.items()
    for radius in RADII
    for name, objective in OBJECTIVES.items()
}


@dataclass(frozen=True, eq=False)
class Moves:
    """Where one search took the four points, for every seed."""

    start: Array
    labels: Array
    end: Array
    """[seed, point, 2]"""
    margin: Array
    """[seed, point]: how far the end is from the network's boundary, negative beyond it."""

    @property
    def length(self) -> Array:
        return np.asarray(np.linalg.norm(self.end - self.start, axis=-1))

    @property
    def beyond_network(self) -> Array:
        """How far each point ended on the wrong side of the network's boundary."""
        return np.asarray(np.maximum(-self.margin, 0.0))

    @property
    def beyond_best(self) -> Array:
        """The same for the best boundary, x = 0."""
        return np.asarray(np.maximum(-self.end[..., 0] * np.sign(self.start[:, 0]), 0.0))


@dataclass(frozen=True)
class TwoPairsMoved:
    """The work that Fig. 1 and App. C share: networks for all seeds, and where each search takes the points."""

    seeds: Sequence[int] = range(600, 610)
    grids: plane.Grids = GRIDS

    def runs(self) -> list[Run]:
        return [Run(PAIRS, NETWORK, standard(), PLAN, seed) for seed in self.seeds]

    def complete(self, store: Store, workers: Workers, title: str) -> None:
        todo = [run for run in self.runs() if parts(run) not in store]
        jobs = (
            [Job("LDP and UDP, two pairs", plane.updates(todo[0]) + len(todo), _move, (todo, self.grids, store))]
            if todo
            else []
        )
        workers.do(jobs, title)

    def missing(self, store: Store) -> int:
        return sum(parts(run) not in store for run in self.runs())

    def errors(self, store: Store) -> list[int]:
        """How many of the four points each network misclassifies before anything moves."""
        return [store.load(parts(run)).numbers["errors"] for run in self.runs()]

    def moves(self, store: Store) -> dict[Case, Moves]:
        cloud = PAIRS.draw()
        loaded = [store.load(parts(run)).arrays for run in self.runs()]
        return {
            case: Moves(
                cloud.points.numpy(),
                cloud.labels.numpy(),
                np.stack([arrays["end"][i] for arrays in loaded]),
                np.stack([arrays["margin"][i + 1] for arrays in loaded]),
            )
            for i, case in enumerate(SEARCHES)
        }

    def landscape(self, store: Store, shown: int) -> tuple[Array, Array, Array]:
        """x, y and the lead of class 1 on the grid, for the network of one seed."""
        arrays = store.load(parts(self.runs()[shown])).arrays
        return arrays["x"], arrays["y"], arrays["lead"]

    def settings(self) -> str:
        return (
            f"{PAIRS}, ours: the paper draws by hand. Seeds {self.seeds[0]}..{self.seeds[-1]}; MLP {NETWORK.widths}, "
            f"ReLU, standard training, {PLAN}. Both searches take {STEPS} steps of {STEP} from the clean point, to "
            "show how far they go; in training, UDP draws the number of steps. The short training was chosen on other "
            "seeds, for smooth landscapes."
        )


WORK = TwoPairsMoved()


@dataclass(frozen=True)
class StudyOfMoves(ABC):
    """A study of that work, which is done once."""

    TITLE: str
    CORE_MINUTES: float = 0.5
    work: TwoPairsMoved = WORK

    def run(self, store: Store, workers: Workers) -> None:
        self.work.complete(store, workers, self.TITLE.partition(":")[0])

    def missing(self, store: Store) -> int:
        return self.work.missing(store)

    @abstractmethod
    def report(self, store: Store) -> Report: ...


def parts(run: Run) -> Parts:
    return ("pictorial", run, SEARCHES)


def _move(todo: Sequence[Run], grids: plane.Grids, store: Store, on_progress: OnProgress) -> None:
    cloud = PAIRS.draw()
    x, y = WINDOW.grid(grids.picture)
    replicas, _ = plane.trained(todo, on_progress)
    by_search = torch.stack([moved(replicas, search, cloud) for search in SEARCHES.values()], 1)
    for i, (run, network, ends) in enumerate(zip(todo, replicas.split(), by_search, strict=True)):
        # Start and ends in one cloud: the window of the measurement then holds them all.
        every = torch.cat([cloud.points, ends.flatten(0, 1)])
        measured = grids.margins(network, Dataset(every, cloud.labels.repeat(len(ends) + 1))).margin
        answers = log_probs(network, WINDOW.points(len(x))).reshape(len(x), len(x), -1)
        arrays = {
            "end": ends.numpy(),
            "margin": measured.reshape(-1, len(cloud.points)),
            "x": x,
            "y": y,
            "lead": lead(answers, 1),
        }
        store.save(parts(run), {"errors": int((measured[: len(cloud.points)] < 0).sum())}, arrays, {})
        on_progress(plane.updates(run) + i + 1)


def moved(replicas: Replicas, search: Search, cloud: Dataset) -> torch.Tensor:
    """[network, point, 2]: where each network's search takes the points."""
    points, labels = cloud.points.repeat(replicas.replicas, 1), cloud.labels.repeat(replicas.replicas)
    # No search here draws anything: the seeds do not matter, only their number.
    rng = Rng.seeded(*range(replicas.replicas))
    return torch.unflatten(points + search(replicas, points, labels, rng).delta, 0, (replicas.replicas, -1))


def loss_of(label: int, ahead: Array) -> Array:
    """Cross-entropy of a class, from the lead of class 1."""
    return np.asarray(np.logaddexp(0.0, -ahead if label == 1 else ahead))


def entropy_of(ahead: Array) -> Array:
    """Entropy of two classes, from the lead of either: p * -log p for both."""
    return sum((np.exp(-loss_of(label, ahead)) * loss_of(label, ahead) for label in (0, 1)), np.zeros_like(ahead))


def across(beyond: Array) -> str:
    return f"{(beyond > 0).sum()} of {beyond.size} across, the deepest by {beyond.max():.3f}"


def of_both(results: Mapping[Case, Moves], radius: float, name: str, evidence: Callable[[Moves], str]) -> str:
    return "; ".join(f"{norm}: {evidence(results[norm, radius, name])}" for norm in NORMS)


def apart(results: Mapping[Case, Moves], norm: str, radius: float) -> Array:
    """[seed, point]: how far LDP's end and UDP's are from each other."""
    ends = [results[norm, radius, name].end for name in OBJECTIVES]
    return np.asarray(np.linalg.norm(ends[0] - ends[1], axis=-1))


def in_most(seen: Iterable[Array]) -> Outcome:
    """Is it so of all points, in every one of these [seed, point], with most seeds?"""
    return in_most_seeds(np.all(np.concatenate(list(seen), axis=1), axis=1).tolist())


def seeds_of(results: Mapping[Case, Moves]) -> int:
    """How many."""
    return len(next(iter(results.values())).end)


def table(results: Mapping[Case, Moves], radii: Sequence[float]) -> Table:
    rows = [
        (
            f"{name}, {norm}, eps {radius:g}",
            _of_pairs(100.0 * (moved.beyond_network > 0), 0),
            _of_pairs(100.0 * (moved.beyond_best > 0), 0),
            f"{moved.beyond_network.max():.3f}",
            f"{moved.beyond_best.max():.3f}",
            _of_pairs(moved.length, 2),
        )
        for radius in radii
        for (norm, r, name), moved in results.items()
        if r == radius
    ]
    return Table(
        "Where the perturbed points end: near pair / far pair",
        ("search", "across θ %", "across θ* %", "past θ", "past θ*", "way"),
        tuple(rows),
        f"Shares and means of {seeds_of(results)} seeds x 2 points. θ: the network's boundary; θ*: the best one, "
        f"{PAIRS.near} from the near points and {PAIRS.far} from the far ones. Past: the deepest of all points. Way: "
        "Euclidean distance from start to end.",
    )


def _of_pairs(values: Array, digits: int) -> str:
    return " / ".join(f"{values[:, pair].mean():.{digits}f}" for pair in (NEAR, FAR))


def draw_moves(axes: Axes, grid: tuple[Array, Array, Array], moves: Moves, shown: int, radius: float) -> None:
    """Arrows from start to end, the balls, the network's boundary (solid) and the best one (dashed)."""
    x, y, ahead = grid
    axes.contour(x, y, ahead, levels=[0.0], colors=BOUNDARY, linewidths=1.4)
    axes.axvline(0.0, color=BEST, linewidth=1.0, linestyle="dashed")
    for start, end, label in zip(moves.start, moves.end[shown], moves.labels, strict=True):
        axes.add_patch(
            Circle(tuple(start), radius, fill=False, color=COLOURS[label], linewidth=0.6, linestyle="dotted")
        )
        head = min(10.0, 60 * float(np.linalg.norm(end - start)))
        arrow = {"arrowstyle": "-|>", "mutation_scale": head, "color": COLOURS[label], "shrinkA": 0, "shrinkB": 0}
        axes.annotate("", xy=tuple(end), xytext=tuple(start), arrowprops=arrow | {"linewidth": 1.3}, zorder=4)
    draw_points(axes, moves.start, moves.labels, size=32)
    axes.set(xlim=(x[0], x[-1]), ylim=(y[0], y[-1]))
    bare(axes)
