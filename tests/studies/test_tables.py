from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

pytest.importorskip("sklearn")
from plane_studies import workers
from widemargin.report.store import Store
from widemargin_studies import tables as study


@pytest.mark.usefixtures("untyped")
def test_the_study_runs_once_and_is_reported(tmp_path: Path) -> None:
    small = replace(
        study.STUDY,
        sets=("iris",),
        seeds=(0,),
        measured=4,
        attack=study.Attack(2, 3, 2, 2),
        gradient=("UDP",),
        settings={"epochs": 1, "hidden": (4,), "batch_size": 64, "steps": 1},
    )
    store = Store(tmp_path)
    assert small.missing(store) == len(study.MODELS)
    small.run(store, workers())
    assert small.missing(store) == 0
    report = small.report(store)
    (table,) = report.tables
    assert [row[0] for row in table.rows] == list(study.MODELS)
    assert [row[0] for row in table.rows if row[4]] == ["UDP"]
    half, auto, double = (
        store.load(small.parts("iris", model, 0)).numbers["eps"] for model in ("UDP, 0.5 x eps", "UDP", "UDP, 2 x eps")
    )
    assert (half, double) == pytest.approx((auto / 2, auto * 2), rel=1e-5)
    assert {verdict.word for verdict in report.verdicts} == {"undecided"}


def test_margins_of_a_line_are_the_distance_to_it() -> None:
    rng = np.random.default_rng(0)
    others, x = rng.normal(size=(60, 3)), rng.normal(size=(8, 3))
    normal = np.array([0.6, 0.8, 0.0])

    def predict(rows: np.ndarray) -> np.ndarray:
        return (rows @ normal > 0).astype(int)

    y = predict(x)
    y[0] = 1 - y[0]
    margins = study.decision_margins(predict, x, y, others, study.Attack(rounds=80), 0)
    exact = np.abs(x @ normal)
    assert margins[0] == 0
    assert (margins[1:] >= exact[1:] - 1e-9).all()
    assert (margins[1:] <= 1.2 * exact[1:] + 0.02).all()
    assert np.isinf(
        study.decision_margins(lambda rows: np.zeros(len(rows)), x, np.zeros(8), others, study.ATTACK, 0)
    ).all()


def test_calibration_error_by_hand() -> None:
    probabilities = np.array([[0.95, 0.05], [0.95, 0.05], [0.35, 0.65], [0.35, 0.65]])
    assert study.ece(probabilities, np.array([0, 1, 1, 1])) == pytest.approx(0.5 * 0.45 + 0.5 * 0.35)


def test_bounds_of_splits_that_share_rows_are_wider_than_those_of_seeds() -> None:
    estimate = study.of_splits([1.0, 2.0, 3.0], 0.5)
    assert estimate.value == 2.0
    assert estimate.high - 2.0 == pytest.approx(4.303 * (1 / 3 + 0.5) ** 0.5)
