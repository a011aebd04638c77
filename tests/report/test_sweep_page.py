from dataclasses import replace

from widemargin.report.sweep_page import Swept, page
from widemargin.runs.sweep import Range, SweepTrial

TRIALS = (
    SweepTrial(0, "complete", {"eps": 0.1}, robust=0.4, clean=0.9),
    SweepTrial(1, "pruned", {"eps": 0.2}, robust=0.6, clean=0.8),
    SweepTrial(2, "complete", {"eps": 0.3}, robust=0.5, clean=0.7),
    SweepTrial(3, "diverged", {"eps": 0.4}, robust=None, clean=None),
)
SWEPT = Swept("udp", "PGD-10 linf 0.1", {"eps": Range(0.1, 0.4, log=True)}, TRIALS, 100, {"robust": 0.45, "clean": 0.6})


def test_the_best_that_was_trained_to_the_end_is_chosen_and_tested() -> None:
    told = page(SWEPT)
    assert told.summary.startswith("4 trials, 1 pruned, 1 diverged. Chosen on the validation split: trial 2, robust 50")
    # Two standard errors of a half of 100.
    assert "less than 10.0 points below" in told.summary
    assert told.summary.endswith("On the test split it has robust 45.00 % (PGD-10 linf 0.1), clean 60.00 %.")
    assert "eps from 0.1 to 0.4 on a log scale" in told.settings
    assert [row[0] for row in told.tables[0].rows] == ["2", "0"]
    assert SWEPT.summary()["chosen"] == 2


def test_what_is_not_there_is_said() -> None:
    assert "was not tested" in page(replace(SWEPT, tested=None)).summary
    hopeless = replace(SWEPT, trials=TRIALS[3:], tested=None)
    assert page(hopeless).summary == "1 trials, 1 diverged. None was trained to the end, so none is chosen."
    assert hopeless.summary()["chosen"] is None
