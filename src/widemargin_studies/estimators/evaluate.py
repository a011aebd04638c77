"""What comes out of one cell?  It is trained, judged, and its numbers stored."""

from __future__ import annotations

import copy
import time
from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import Tensor

from widemargin.data.dataset import Dataset
from widemargin.data.images import ImageSet
from widemargin.measure.calibration import (
    UNCERTAINTIES,
    Detection,
    calibration,
    member_logits,
    misclassification_detection,
    ood_detection,
)
from widemargin.measure.robustness import robust
from widemargin.perturb.balls import Linf
from widemargin.perturb.pgd import pgd_search
from widemargin.perturb.search import Search
from widemargin.report.store import Arrays, Parts, Store
from widemargin.runs.prepare import PreparedRun, prepare
from widemargin.runs.run import Run
from widemargin.training.loop import train
from widemargin.training.plan import Updates
from widemargin.uncertainty.cuts import Cut
from widemargin.uncertainty.laplace import laplace
from widemargin.uncertainty.network import Network
from widemargin.uncertainty.predictive import log_mean_prob
from widemargin.uncertainty.single import Single
from widemargin.workers import OnProgress
from widemargin_studies import plane
from widemargin_studies.estimators.cells import ENTROPY, INFORMATION, LAPLACE, MEMBERS, SINGLE, Row, fitted

Judged = tuple[dict[str, Any], Arrays]
"""Numbers and arrays of one network."""
ATTACK = pgd_search(Linf(0.1), 0.0125, 20)
GRIDS = plane.Grids(resolution=151)
"""A cell of the first grid is at most a sixth of the narrowest gap; then it is refined."""


@dataclass(frozen=True)
class Evaluation:
    """Under which attack on images, and how finely in the plane."""

    attack: Search = ATTACK
    grids: plane.Grids = GRIDS

    def parts(self, run: Run, row: Row) -> Parts:
        laid_on = (LAPLACE, MEMBERS) if row[0] == LAPLACE else ()
        judged = (self.attack,) if isinstance(run.data, ImageSet) else ()
        return ("estimators", run, *laid_on, *judged)

    def work(self, run: Run, row: Row, store: Store, on_progress: OnProgress) -> None:
        task = prepare(run)
        seconds = _trained(task, on_progress)
        if row[0] == SINGLE:
            assert isinstance(task.network, Single)
            cut = Cut(task.network.encoder, task.network.head)
            # First: a run counts as done when its own numbers are there.
            of_laplace = self._judge(laplace(cut, task.train, MEMBERS), task, row)
            store.save(self.parts(run, fitted(row)), *_with(seconds, of_laplace), {})
        store.save(self.parts(run, row), *_with(seconds, self._judge(task.network, task, row)), {})

    def _judge(self, network: Network, task: PreparedRun, row: Row) -> Judged:
        if task.test is None:
            # Point sets have no test split.
            assert isinstance(task.train, Dataset)
            return judged_in_the_plane(network, task.train, self.grids, drawn=row[1] == ENTROPY)
        assert isinstance(task.test, Dataset)
        return judged_on_images(network, task.test, self.attack)


EVALUATION = Evaluation()


def _with(seconds: float, judged: Judged) -> Judged:
    return {**judged[0], "seconds": seconds}, judged[1]


def _trained(task: PreparedRun, on_progress: OnProgress) -> float:
    """Train in place; the seconds of one core that it took."""
    # The first updates of a process are slow for reasons that are no estimator's.
    for _ in train(copy.deepcopy(task.network), task.train, task.method, replace(task.plan, length=Updates(2))):
        pass
    start = time.process_time()
    for record in train(task.network, task.train, task.method, task.plan, (task.seed,)):
        if record.update % plane.TICK_EVERY == 0:
            on_progress(record.update)
    return time.process_time() - start


def judged_in_the_plane(network: Network, cloud: Dataset, grids: plane.Grids, drawn: bool) -> Judged:
    results = grids.margins(network, cloud)
    picture = grids.picture_arrays(network, cloud) if drawn else {}
    return {"worst": results.worst_fraction}, {"margin": results.margin, "best": results.best, **picture}


def judged_on_images(network: Network, tests: Dataset, attack: Search) -> Judged:
    calibrated, strangers = calibration(network, tests), turned(tests)
    stands = robust(network, tests, attack)
    log_probs = log_mean_prob(member_logits(network, tests))
    loss = -log_probs.gather(1, tests.labels.unsqueeze(1))[:, 0]
    wrong = int((log_probs.argmax(1) != tests.labels).sum())
    by: dict[str, Detection | None] = {
        "outside by entropy": ood_detection(network, tests, strangers),
        "outside by information": None,
        "wrong by entropy": misclassification_detection(network, tests) if 0 < wrong < len(tests) else None,
    }
    if calibrated.members > 1:
        measure = UNCERTAINTIES[INFORMATION]
        by["outside by information"] = ood_detection(network, tests, strangers, measure)
    numbers = {
        "n": calibrated.n,
        "members": calibrated.members,
        "outside": len(strangers),
        "wrong": wrong,
        "clean": calibrated.accuracy,
        "robust": float(stands.double().mean()),
        "ece": calibrated.ece,
        "nll": calibrated.nll,
        "brier": calibrated.brier,
        **{name: None if one is None else one.auroc for name, one in by.items()},
    }
    bins = calibrated.bins
    arrays = {"count": bins.count, "confidence": bins.confidence, "accuracy": bins.accuracy}
    return numbers, {**arrays, "stands": stands.double().numpy(), "loss": loss.numpy()}


def turned(tests: Dataset) -> Dataset:
    """Out of distribution: digits turned by a quarter, without the zeros, which still look like zeros."""
    rows: Tensor = (tests.labels != 0).nonzero()[:, 0]
    rest = tests.take(rows)
    return replace(rest, stored=torch.rot90(rest.stored, 1, (2, 3)))
