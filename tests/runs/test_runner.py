from dataclasses import replace
from pathlib import Path

import pytest

from small_runs import DIGITS, TRIAL, files, same
from widemargin import OPEN, SGD, Epochs, Linf, Plan, udp
from widemargin.files import read_tensors as read
from widemargin.measure.accuracy import accuracy
from widemargin.networks.named import ResNetSpec
from widemargin.recipes import standard
from widemargin.runs.folder import Line, RunFolder
from widemargin.runs.prepare import prepare
from widemargin.runs.runner import Pace, run_training
from widemargin.runs.stop import Stopped
from widemargin.training.loop import Diverged, Record
from widemargin.training.plan import SWA
from widemargin.uncertainty.estimators import BeforeHead

HURRIED = Pace(0.0, 0.0)


class Looking:
    def __init__(self) -> None:
        self.seen: list[object] = []

    def begin(self, done: int, updates: int) -> None:
        self.seen.append((done, updates))

    def updated(self, record: Record) -> None:
        self.seen.append(record.update)

    def validated(self, line: Line) -> None:
        self.seen.append(line["epoch"])

    def end(self) -> None:
        self.seen.append("end")


def test_a_run_leaves_all_that_it_promises(tmp_path: Path) -> None:
    looking, folder = Looking(), RunFolder(tmp_path / "new" / "run")
    outcome = run_training(prepare(TRIAL), folder, [looking])
    losses, validations = ([line for line in folder.lines() if key in line] for key in ("loss", "clean"))
    assert [line["update"] for line in losses] == list(range(1, 37))
    assert [(line["update"], line["epoch"]) for line in validations] == [(18, 2), (36, 4)]
    assert all(0 <= line["robust"] <= line["clean"] <= 1 for line in validations)
    assert outcome.records == folder.lines()
    assert outcome.figures == folder.read_figures()
    best = max(validations, key=lambda line: line["robust"])
    assert read(folder.best)[1] == {"key": TRIAL.key, **best}
    assert read(folder.last)[1]["update"] == 36
    assert accuracy(outcome.best, DIGITS.draw().validation) == best["clean"]
    assert looking.seen == [(0, 36), *range(1, 18), 2, *range(18, 36), 4, 36, "end"]
    assert (outcome.update, outcome.finished) == (36, True)
    before = {path.name: path.read_bytes() for path in folder.path.iterdir()}
    again = run_training(prepare(TRIAL), folder, [watcher := Looking()])
    assert watcher.seen == [(36, 36), "end"]
    assert same(again.network, outcome.network)
    assert {path.name: path.read_bytes() for path in folder.path.iterdir()} == before


def test_a_latent_space_and_an_average_with_batch_norm(tmp_path: Path) -> None:
    trial = replace(
        TRIAL,
        network=ResNetSpec(channels=1, width=2),
        place=BeforeHead(),
        method=udp(Linf(1.0, OPEN), 0.3, 2),
        plan=Plan(Epochs(1), SGD(0.05), batch=64, average=SWA(0.2)),
    )
    outcome = run_training(prepare(trial), RunFolder(tmp_path / "a"), pace=HURRIED)
    assert outcome.network is not outcome.best
    assert same(outcome.network, outcome.best)
    assert outcome.records[-1]["epoch"] == 1


class Leaving(Looking):
    def updated(self, record: Record) -> None:
        super().updated(record)
        if record.update == 18:
            raise Stopped


def test_who_watches_may_leave_and_all_is_saved(tmp_path: Path) -> None:
    whole, left = RunFolder(tmp_path / "whole"), RunFolder(tmp_path / "left")
    with pytest.raises(Stopped):
        run_training(prepare(TRIAL), left, [leaving := Leaving()])
    assert leaving.seen[-2:] == [18, "end"]
    assert read(left.checkpoint)[1]["update"] == 18
    run_training(prepare(TRIAL), left)
    run_training(prepare(TRIAL), whole)
    assert files(left) == files(whole)


def test_divergence_keeps_the_last_checkpoint(tmp_path: Path) -> None:
    trial = replace(TRIAL, plan=Plan(Epochs(3), SGD(1e30), batch=32), method=standard())
    folder = RunFolder(tmp_path / "a")
    with pytest.raises(Diverged, match=r"the loss must be finite, .*; the checkpoint of update \d+ is kept$"):
        run_training(prepare(trial), folder, pace=HURRIED)
    assert read(folder.checkpoint)[1]["update"] >= 1
    assert all(value.isfinite().all() for value in read(folder.checkpoint)[0].values())
