"""Training in the plane, shared by the studies: many seeds as replicas, measured, stored once."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import groupby
from typing import Any

import numpy as np

from widemargin.data.dataset import Dataset
from widemargin.data.toy import PointSet
from widemargin.measure.boundary import Window, lead, log_probs
from widemargin.measure.margin import Margins, margins
from widemargin.method import Method
from widemargin.networks.mlp import MLP, MLPSpec
from widemargin.report.figures import Picture
from widemargin.report.store import Parts, Store
from widemargin.runs.run import Run
from widemargin.training.loop import train
from widemargin.training.plan import Adam, Cosine, Plan, Updates
from widemargin.uncertainty.network import Network
from widemargin.uncertainty.replicas import Replicas
from widemargin.workers import Job, OnProgress

NETWORK = MLPSpec((2, 64, 64, 2))
FULL_BATCH = Plan(Updates(2_500), Adam(5e-3, Cosine()))
BATCHES_OF_100 = Plan(Updates(3_000), Adam(5e-3, Cosine()), batch=100)
TICK_EVERY = 25


@dataclass(frozen=True)
class Grids:
    """How finely margins are measured and regions drawn.  No part of a key: other grids need another store."""

    resolution: int = 301
    refinements: int = 3
    picture: int = 201

    def margins(self, network: Network, cloud: Dataset, p: float = 2.0) -> Margins:
        return margins(network, cloud, self.resolution, self.refinements, p)

    def picture_arrays(self, network: Network, cloud: Dataset) -> dict[str, Any]:
        """What a report needs to draw a network's regions without having it."""
        window = Window.around(cloud, pad=0.3)
        x, y = window.grid(self.picture)
        answers = log_probs(network, window.points(self.picture)).reshape(self.picture, self.picture, -1)
        values = lead(answers, 1).astype(np.float32)
        return {"points": cloud.points.numpy(), "labels": cloud.labels.numpy(), "x": x, "y": y, "lead": values}


GRIDS = Grids()


def runs_of(data: PointSet, method: Method, plan: Plan, seeds: Iterable[int]) -> list[Run]:
    return [Run(data, NETWORK, method, plan, seed) for seed in seeds]


def jobs(
    runs: Sequence[Run],
    names: Mapping[Method, str],
    store: Store,
    grids: Grids = GRIDS,
    norms: Sequence[float] = (2.0,),
) -> list[Job]:
    """What is left to do until margins are known in these norms; runs that differ only by seed are replicas."""
    # Whole groups, even for one missing seed: batched products round by who else is in them.
    groups = [list(group) for _, group in groupby(runs, key=lambda run: replace(run, seed=0))]
    groups = [group for group in groups if missing(group, store, norms)]
    return [
        Job(
            f"{names[group[0].method]}, {type(group[0].data).__name__}",
            updates(group[0]),
            _train_group,
            (group, store, grids, norms),
        )
        for group in groups
    ]


def points_of(run: Run) -> Dataset:
    """In the plane there is no other part than that to train on."""
    points = run.data.draw()
    assert isinstance(points, Dataset)
    return points


def mlp_of(run: Run) -> MLP:
    network = run.build()
    assert isinstance(network, MLP)
    return network


def updates(run: Run) -> int:
    return run.plan.updates(len(points_of(run)))


def missing(runs: Sequence[Run], store: Store, norms: Sequence[float] = (2.0,)) -> int:
    return sum(any(margins_parts(run, p) not in store for p in norms) for run in runs)


def margins_parts(run: Run, p: float) -> Parts:
    """Margins in l2 are stored with the run itself."""
    return (run,) if p == 2 else ("margins", p, run)


def measured(run: Run, store: Store, p: float = 2.0) -> Margins:
    arrays = store.load(margins_parts(run, p)).arrays
    return Margins(arrays["margin"], arrays["best"])


def picture(run: Run, store: Store) -> Picture:
    arrays = store.load((run,)).arrays
    x, y, lead = (arrays[name] for name in ("x", "y", "lead"))
    return Picture(arrays["points"], arrays["labels"], arrays["margin"] < 0, x, y, lead)


def trained(runs: Sequence[Run], on_progress: OnProgress) -> tuple[Replicas, list[float]]:
    """Networks that differ by seed alone, trained as replicas on one cloud; and the mean loss every few updates."""
    first, seeds = runs[0], tuple(run.seed for run in runs)
    network = Replicas([mlp_of(run) for run in runs])
    losses = []
    for record in train(network, points_of(first).repeat(len(runs)), first.method, first.plan, seeds):
        if record.update % TICK_EVERY == 0:
            losses.append(record.loss)
            on_progress(record.update)
    return network, losses


def _train_group(
    runs: Sequence[Run], store: Store, grids: Grids, norms: Sequence[float], on_progress: OnProgress
) -> None:
    cloud = points_of(runs[0])
    network, losses = trained(runs, on_progress)
    for run, single in zip(runs, network.split(), strict=True):
        measured = grids.margins(single, cloud)
        numbers = {
            "errors": measured.errors,
            "worst": measured.worst_fraction,
            "median": measured.median_fraction,
            "mean": measured.mean_fraction,
        }
        arrays = {
            "margin": measured.margin,
            "best": measured.best,
            "loss": np.array(losses),
            **grids.picture_arrays(single, cloud),
        }
        weights = {name: value.numpy() for name, value in single.state_dict().items()}
        store.save((run,), numbers, arrays, weights)
        for p in norms:
            if p != 2:
                other = grids.margins(single, cloud, p)
                store.save(margins_parts(run, p), {}, {"margin": other.margin, "best": other.best}, {})
