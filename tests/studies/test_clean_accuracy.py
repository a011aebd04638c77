from pathlib import Path

from pixel_studies import filled
from widemargin.report.store import Store
from widemargin.report.verdicts import Estimate
from widemargin_studies import clean_accuracy, selection


def test_the_radius_that_validation_chooses(tmp_path: Path) -> None:
    """Numbers that rise with the cell's place: the largest radius is best for all, and UDP cannot be best beyond it."""
    store = Store(tmp_path)
    filled(store, selection.ONE)
    told = selection.ONE.report(store)
    assert [verdict.word for verdict in told.verdicts] == ["not held (the paper's own numbers: held)"] * 2
    assert [row[-2] for row in told.tables[0].rows] == ["0.5"] * 4
    assert [row[0] for row in told.tables[1].rows] == [f"{method} (eps 0.5)" for method in clean_accuracy.METHODS]
    assert told.facts["seeds"] == [0]
    assert told.facts["networks"][0]["epochs"] == 20
    better, worse = Estimate(0.8, 0.7, 0.9), Estimate(0.4, 0.3, 0.5)
    assert selection.best_is_larger({0.2: worse, 0.5: better}, 0.2) == "held"
    assert selection.best_is_larger({0.2: better, 0.5: worse}, 0.2) == "not held"
    assert selection.best_is_larger({0.2: better, 0.5: better}, 0.2) == "undecided"
