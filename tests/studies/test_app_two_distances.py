from dataclasses import replace
from pathlib import Path

import widemargin as wm
from plane_studies import COARSE, workers
from widemargin.report.store import Store
from widemargin_studies.app_two_distances import STUDY


def test_two_distances_end_to_end(tmp_path: Path) -> None:
    plan = wm.Plan(wm.Updates(20), wm.Adam(5e-3))
    study = replace(STUDY, seeds=(0, 1), members=2, plan=plan, oscillating=replace(plan, batch=20), grids=COARSE)
    store = Store(tmp_path / "runs")
    study.run(store, workers())
    assert study.missing(store) == 0
    report = study.report(store)
    assert len(report.verdicts) == 4
    report.write(tmp_path / "report")
