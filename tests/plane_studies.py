"""Studies in the plane, from nothing to their report, in seconds."""

import io
from functools import partial
from pathlib import Path
from typing import Any

import pytest
import rich.console

import widemargin as wm
from widemargin.measure.margin import margins
from widemargin.report.store import Store
from widemargin.workers import Workers
from widemargin_studies import plane

SHORT = wm.Plan(wm.Updates(5), wm.Adam(5e-3))


def workers() -> Workers:
    return Workers(rich.console.Console(file=io.StringIO()), 1)


def shorten(study: Any, patch: pytest.MonkeyPatch) -> None:
    """Two seeds, few updates and a coarse grid."""
    patch.setattr(study, "SEEDS", (0, 1))
    patch.setattr(plane, "FULL_BATCH", SHORT)
    patch.setattr(plane, "margins", partial(margins, resolution=41, refinements=0))


def check(study: Any, folder: Path) -> None:
    store = Store(folder / "runs")
    with pytest.raises(ValueError, match="run the study first"):
        study.report(store)
    study.run(store, workers())
    assert study.missing(store) == 0
    paths = study.report(store).write(folder / "report")
    assert all(path.stat().st_size > 500 for path in paths)
