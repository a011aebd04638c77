import io
from dataclasses import replace
from functools import partial
from pathlib import Path

import pytest
import rich.console

import widemargin as wm
from widemargin.measure.margin import margins
from widemargin.report.store import Store
from widemargin.workers import Workers
from widemargin_studies import app_two_distances, plane

SHORT = wm.Plan(wm.Updates(30), wm.Adam(5e-3))


@pytest.fixture
def workers() -> Workers:
    return Workers(rich.console.Console(file=io.StringIO()), 1)


def test_two_distances_end_to_end(tmp_path: Path, workers: Workers, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(app_two_distances, "SEEDS", (0, 1))
    monkeypatch.setattr(app_two_distances, "MEMBERS", 2)
    monkeypatch.setattr(app_two_distances, "OSCILLATING", wm.Plan(wm.Updates(20), wm.Adam(5e-3), batch=20))
    monkeypatch.setattr(plane, "FULL_BATCH", replace(SHORT, length=wm.Updates(20)))
    monkeypatch.setattr(plane, "margins", partial(margins, resolution=41, refinements=0))
    store = Store(tmp_path / "runs")
    app_two_distances.run(store, workers)
    assert app_two_distances.missing(store) == 0
    report = app_two_distances.report(store)
    assert len(report.verdicts) == 4
    report.write(tmp_path / "report")
