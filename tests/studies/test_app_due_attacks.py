from pathlib import Path

import numpy as np
import pytest

from widemargin.perturb.search import Search
from widemargin.report.store import Store
from widemargin.report.verdicts import Outcome
from widemargin.workers import Workers
from widemargin_studies import app_due_attacks
from widemargin_studies.app_due_attacks import Ends


def test_attacks_run_once_and_are_reported(tiny_due: Workers, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    short = {
        name: Search(
            search.objective, search.ball, app_due_attacks.Ascent(app_due_attacks.Fixed(2), search.ascent.step)
        )
        for name, search in app_due_attacks.SEARCHES.items()
    }
    monkeypatch.setattr(app_due_attacks, "SEARCHES", short)
    store = Store(tmp_path / "runs")
    assert app_due_attacks.missing(store) == 1
    app_due_attacks.run(store, tiny_due)
    assert app_due_attacks.missing(store) == 0
    report = app_due_attacks.report(store)
    assert [row[0] for row in report.tables[0].rows] == ["PGD-50", "UDP-50"]
    assert all(path.is_file() for path in report.write(tmp_path / "report"))


def ends(margin: list[float], away: float = 0.0) -> list[Ends]:
    """With five seeds that agree; fewer would decide nothing."""
    return [Ends(np.array(margin), np.ones(len(margin)), np.full(len(margin), away))] * 5


@pytest.mark.parametrize(
    ("pgd_ends", "udp_ends", "outcomes"),
    [
        (ends([-1.0, 0.1]), ends([-0.1, 1.0], away=0.6), ["held", "held", "held"]),
        (ends([-0.1, 0.1]), ends([-0.1, 1.0], away=0.4), ["not held", "held", "not held"]),
        (ends([-1.0, -1.0]), ends([-0.2, 1.0], away=0.6), ["held", "not held", "not held"]),
    ],
    ids=["the paper", "overshoot is no crossing", "udp crosses"],
)
def test_verdicts_of_attacks(pgd_ends: list[Ends], udp_ends: list[Ends], outcomes: list[Outcome]) -> None:
    assert [verdict.outcome for verdict in app_due_attacks.verdicts(pgd_ends, udp_ends)] == outcomes
