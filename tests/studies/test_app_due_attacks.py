from pathlib import Path

import numpy as np
import pytest

from plane_studies import workers
from widemargin.report.store import Store
from widemargin.report.verdicts import Outcome
from widemargin_studies.app_due_attacks import STUDY, DueAttacks, Ends, verdicts
from widemargin_studies.due import Due


def test_attacks_run_once_and_are_reported(tiny_due: Due, tmp_path: Path) -> None:
    study, store = DueAttacks(kernel=tiny_due), Store(tmp_path / "runs")
    assert study.missing(store) == 1
    study.run(store, workers())
    assert study.missing(store) == 0
    report = study.report(store)
    assert [row[0] for row in report.tables[0].rows] == ["PGD-2", "UDP-2"]
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
    results = dict(zip(STUDY.searches, (pgd_ends, udp_ends), strict=True))
    assert [verdict.outcome for verdict in verdicts(results)] == outcomes
