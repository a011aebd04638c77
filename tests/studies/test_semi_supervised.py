import io
from pathlib import Path

import pytest
import rich.console

from widemargin.report.store import Store
from widemargin.training.plan import Adam, Plan, Updates
from widemargin.workers import Workers
from widemargin_studies import semi_supervised as study


def test_the_study_runs_once_and_is_reported(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(study, "SEEDS", (0,))
    monkeypatch.setattr(study, "PLAN", Plan(Updates(2), Adam(2e-3), batch=20))
    store = Store(tmp_path)
    assert study.missing(store) == 3
    study.run(store, Workers(rich.console.Console(file=io.StringIO()), 1))
    assert study.missing(store) == 0
    (table,) = study.report(store).tables
    assert [row[:2] for row in table.rows] == [("standard", "100"), ("VAT", "1300"), ("UDP", "1300")]


def test_verdicts_compare_seed_by_seed() -> None:
    tests = {"standard": [0.80, 0.85, 0.90], "VAT": [0.85, 0.85, 0.89], "UDP": [0.86, 0.92, 0.95]}
    assert [verdict.outcome for verdict in study.verdicts(tests)] == ["undecided", "held", "undecided"]
