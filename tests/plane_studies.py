"""Studies in the plane, from nothing to their report, in seconds."""

import io
import pickle
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import pytest
import rich.console

import widemargin as wm
from widemargin.report.store import Store
from widemargin.report.study import Study
from widemargin.runs.stop import StopRequest
from widemargin.workers import Board, Job, LocalProcesses, Workers
from widemargin_studies import plane

SHORT = wm.Plan(wm.Updates(5), wm.Adam(5e-3))
COARSE = plane.Grids(resolution=41, refinements=0, picture=31)


@dataclass(frozen=True)
class Pickled:
    """Jobs run here, but as another process would get them."""

    def do(self, jobs: Sequence[Job], board: Board, count: int, stop_request: StopRequest) -> None:
        LocalProcesses().do(pickle.loads(pickle.dumps(jobs)), board, 1, stop_request)


def workers() -> Workers:
    return Workers(rich.console.Console(file=io.StringIO()), 1, engine=Pickled())


def check(study: Study, folder: Path) -> None:
    store = Store(folder / "runs")
    with pytest.raises(ValueError, match="run the study first"):
        study.report(store)
    study.run(store, workers())
    assert study.missing(store) == 0
    paths = study.report(store).write(folder / "report")
    assert all(path.stat().st_size > 500 for path in paths)
