from dataclasses import replace
from pathlib import Path

from plane_studies import workers
from widemargin.report.store import Store
from widemargin.training.plan import Adam, Plan, Updates
from widemargin_studies.semi_supervised import STUDY, verdicts


def test_the_study_runs_once_and_is_reported(tmp_path: Path) -> None:
    study, store = replace(STUDY, seeds=(0,), plan=Plan(Updates(2), Adam(2e-3), batch=20)), Store(tmp_path)
    assert study.missing(store) == 3
    study.run(store, workers())
    assert study.missing(store) == 0
    (table,) = study.report(store).tables
    assert [row[:2] for row in table.rows] == [("standard", "100"), ("VAT", "1300"), ("UDP", "1300")]


def test_verdicts_compare_seed_by_seed() -> None:
    tests = {"standard": [0.80, 0.85, 0.90], "VAT": [0.85, 0.85, 0.89], "UDP": [0.86, 0.92, 0.95]}
    assert [verdict.outcome for verdict in verdicts(tests)] == ["undecided", "held", "undecided"]
