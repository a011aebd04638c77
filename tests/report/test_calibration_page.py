from dataclasses import replace

import numpy as np
import pytest

from widemargin.measure.calibration import Bins, Calibration, Detection, UncertaintyReport, UncertaintyScores
from widemargin.report.calibration_page import Calibrated, Rescaled, page


def calibrated(accuracy: float) -> Calibrated:
    """A hundred answers of confidence .75."""
    nothing = np.full(2, np.nan)
    nothing[1] = 0.75
    bins = Bins(np.array([0, 100]), nothing, np.array([np.nan, accuracy]))
    scores = Calibration(100, 1, accuracy, 0.5, 0.25, bins)
    some = np.linspace(-2, -1, 4)
    entropy = UncertaintyScores(some, some[:2], {"noise": some}, None, {"noise": Detection(0.875, 4, 4, 1)})
    return Calibrated("net", "digest", "digits", UncertaintyReport(scores, {"entropy": entropy}), ("A note.",))


@pytest.mark.parametrize(
    ("accuracy", "verdict"),
    [
        (0.5, ": overconfident"),
        (0.0, ": overconfident"),
        (0.95, ": underconfident"),
        (0.72, ": neither over- nor underconfident"),
    ],
)
def test_confidence_is_judged_where_it_differs_clearly_from_accuracy(accuracy: float, verdict: str) -> None:
    told = page(calibrated(accuracy))
    assert f"mean confidence is 75.0 %{verdict} on the whole" in told.summary
    assert told.settings.endswith("A note.")
    assert told.tables[1].rows == (("entropy", "not defined", "0.875"),)
    assert told.html()


@pytest.mark.parametrize(
    ("accuracy", "confidence", "n", "verdict", "interval"),
    [
        (1.0, 0.97, 40, "neither over- nor underconfident", (0.9124, 1.0)),
        (1.0, 0.9, 40, "underconfident", (0.9124, 1.0)),
        (0.0, 0.05, 40, "neither over- nor underconfident", (0.0, 0.0876)),
        (0.0, 0.2, 40, "overconfident", (0.0, 0.0876)),
    ],
)
def test_of_few_examples_that_are_all_correct_or_all_wrong_little_is_known(
    accuracy: float, confidence: float, n: int, verdict: str, interval: tuple[float, float]
) -> None:
    scores = Calibration(n, 1, accuracy, 0.1, 0.1, Bins(np.array([n]), np.array([confidence]), np.array([accuracy])))
    same = np.full(n, -2.0)
    sides = (same, same[:0]) if accuracy else (same[:0], same)
    entropy = UncertaintyScores(*sides, {}, None, {})
    shown = Calibrated("net", "digest", "digits", UncertaintyReport(scores, {"entropy": entropy}))
    told = page(shown)
    low, high = interval
    of = f"Of {n} test examples of digits, {100 * accuracy:.1f} % [{100 * low:.1f}, {100 * high:.1f}] are classified"
    assert told.summary.startswith(of)
    assert f"%: {verdict} on the whole" in told.summary
    assert told.html()
    content = shown.summary()
    assert (content["accuracy_low"], content["accuracy_high"]) == pytest.approx(interval, abs=1e-4)


def test_a_scaling_is_shown_before_and_after_and_said_to_be_worse_where_it_is() -> None:
    plain = calibrated(0.5)
    for nll, is_worse in ((0.25, False), (0.75, True)):
        scores = replace(plain.report.calibration, nll=nll)
        scaled = replace(plain, scaled=Rescaled("temperature 2", scores))
        told = page(scaled)
        assert f"NLL from 0.5000 to {nll:.4f}" in told.summary
        assert ("That is worse" in told.summary) == is_worse
        assert [row[0] for row in told.tables[0].rows] == ["as trained", "temperature 2"]
        content = scaled.summary()
        assert (content["nll"], content["unscaled"]["nll"], content["scaling"]) == (nll, 0.5, "temperature 2")


def test_bins_without_answers_are_null_for_programs() -> None:
    content = calibrated(0.5).summary()
    assert content["bins"]["accuracy"] == [None, 0.5]
    assert content["auroc"]["entropy"] == {
        "wrong from right": None,
        "noise from inside": {"auroc": 0.875, "suspects": 4, "others": 4},
    }


def test_many_measures_are_drawn_in_lines_that_fit_a_page() -> None:
    plain = calibrated(0.5)
    entropy = plain.report.by["entropy"]
    report = UncertaintyReport(plain.report.calibration, {f"measure {number}": entropy for number in range(5)})
    (picture,) = (one for one in page(replace(plain, report=report)).pictures if one.name == "uncertainty")
    assert [axes.get_title() for axes in picture.figure.axes if axes.axison] == [f"measure {n}" for n in range(5)]
    assert picture.figure.get_figwidth() <= 9
