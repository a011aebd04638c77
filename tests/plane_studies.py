"""Studies in the plane, from nothing to their report, in seconds."""

import io
from pathlib import Path

import pytest
import rich.console

import widemargin as wm
from widemargin.report.store import Store
from widemargin.report.study import Study
from widemargin.workers import Workers
from widemargin_studies import plane

SHORT = wm.Plan(wm.Updates(5), wm.Adam(5e-3))
COARSE = plane.Grids(resolution=41, refinements=0, picture=201)


def workers() -> Workers:
    return Workers(rich.console.Console(file=io.StringIO()), 1)


def check(study: Study, folder: Path) -> None:
    store = Store(folder / "runs")
    with pytest.raises(ValueError, match="run the study first"):
        study.report(store)
    study.run(store, workers())
    assert study.missing(store) == 0
    paths = study.report(store).write(folder / "report")
    assert all(path.stat().st_size > 500 for path in paths)
