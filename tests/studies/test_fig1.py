import io
from pathlib import Path

import pytest
import rich.console

from widemargin.report.store import Store
from widemargin.workers import Workers
from widemargin_studies import app_three_cases, fig1, pictorial


def test_both_pictorial_studies_share_their_work_and_report_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    seeds = range(2)
    for module in (pictorial, fig1, app_three_cases):
        monkeypatch.setattr(module, "SEEDS", seeds)
    for module in (fig1, app_three_cases):
        monkeypatch.setattr(module, "SHOWN", 1)
    store = Store(tmp_path / "runs")
    assert fig1.missing(store) == 2
    fig1.run(store, Workers(rich.console.Console(file=io.StringIO()), 1))
    assert fig1.missing(store) == app_three_cases.missing(store) == 0
    for study, pictures in ((fig1, 1), (app_three_cases, 1)):
        report = study.report(store)
        # Two seeds decide nothing, but speak against nothing; the last claim of Fig. 1 depends on how far a network's
        # boundary is off the best one.
        assert [verdict.outcome for verdict in report.verdicts][:4] == ["undecided"] * 4
        assert len([path for path in report.write(tmp_path / study.__name__) if path.suffix == ".png"]) == pictures
