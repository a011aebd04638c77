from dataclasses import replace
from pathlib import Path

import pytest

from small_runs import DIGITS, PLAN, TRIAL, files, same
from widemargin.measure.accuracy import accuracy
from widemargin.runs.folder import RunFolder
from widemargin.runs.prepare import prepare
from widemargin.runs.runner import run_training
from widemargin.runs.stop import AtEpoch, AtUpdate
from widemargin.training.plan import SWA, Average, NoAverage


@pytest.mark.parametrize("average", [NoAverage(), SWA(0.2)], ids=repr)
def test_stops_are_exact_parts_of_one_run(average: Average, tmp_path: Path) -> None:
    trial = replace(TRIAL, plan=replace(PLAN, average=average))
    whole, staged = RunFolder(tmp_path / "whole"), RunFolder(tmp_path / "staged")
    undisturbed = run_training(prepare(trial), whole)
    for until, update in ((AtUpdate(5), 5), (AtEpoch(1), 9), (AtEpoch(1), 9), (AtEpoch(2), 18)):
        outcome = run_training(prepare(trial), staged, until=until)
        assert (outcome.update, outcome.finished, outcome.figures) == (update, False, {})
        assert outcome.records == undisturbed.records[: len(outcome.records)]
        assert same(outcome.network, run_training(prepare(trial), until=until).network)
    assert accuracy(outcome.best, DIGITS.draw().validation) == outcome.records[-1]["clean"]
    assert run_training(prepare(trial), staged, until=AtEpoch(100)).finished
    assert files(staged) == files(whole)
