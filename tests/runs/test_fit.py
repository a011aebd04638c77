from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch

import widemargin as wm
from partly import CLASSES, KNOWN, POINTS, ROWS, write_csv
from small_runs import DIGITS, PLAN, net, same
from widemargin import OPEN, Adam, Dataset, Epochs, Linf, Plan, Single, Updates, udp
from widemargin.data.checks import UNLABELLED
from widemargin.data.local import LocalData
from widemargin.data.local_files import Table
from widemargin.data.toy import LMS5
from widemargin.measure.accuracy import accuracy
from widemargin.networks.mlp import MLPSpec
from widemargin.networks.named import LeNetSpec
from widemargin.recipes import standard
from widemargin.report.verdicts import Outcome
from widemargin.runs.fit import fit
from widemargin.runs.folder import RunFolder
from widemargin.runs.prepare import prepare
from widemargin.runs.run import Run
from widemargin.runs.runner import run_training
from widemargin.uncertainty.cuts import after


@pytest.fixture(autouse=True)
def _in_a_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)


def test_fit_takes_them_warns_or_refuses() -> None:
    write_csv()
    plan = wm.Plan(wm.Updates(5), wm.Adam(0.01), batch=16)
    method = wm.udp_consistency(wm.L2(0.3, wm.OPEN), 0.1, 3, weight=1.0)
    shape, labels = wm.networks.MLPSpec((2, 8, 2)), torch.tensor(np.where(np.arange(ROWS) < KNOWN, CLASSES, UNLABELLED))
    hidden = wm.Dataset(torch.tensor(POINTS), labels)
    by_pair, by_set = (wm.fit(shape, data, method, plan).network for data in ((hidden.points, labels), hidden))
    assert torch.equal(by_pair(hidden.points), by_set(hidden.points))
    assert wm.fit(shape, LocalData(Table("own.csv")), method, plan).figures["clean"] >= 0
    with pytest.raises(ValueError, match=r"^labels must be in 0..1 for 2 classes, got -1..1$"):
        wm.fit(shape, hidden, wm.standard(), plan)
    with pytest.warns(UserWarning, match="140 of 182 training rows have no label and are left out"):
        wm.fit(shape, LocalData(Table("own.csv")), wm.standard(), plan)
    with pytest.warns(UserWarning, match="are left out"):
        wm.fit(shape.build(torch.Generator()), LocalData(Table("own.csv")).draw(), wm.standard(), plan)


SHORT = Plan(Updates(30), Adam(0.05))


def test_fit_takes_a_cloud_a_pair_or_a_description_and_they_agree() -> None:
    cloud = LMS5(count=60).draw()
    outcomes = [
        fit(net(), data, udp(Linf(0.1, OPEN), 0.05, 2), SHORT)
        for data in (cloud, (cloud.points, cloud.labels), LMS5(count=60))
    ]
    assert all(same(outcome.network, outcomes[0].network) for outcome in outcomes)
    assert accuracy(outcomes[0].network, cloud) > 0.9
    assert outcomes[0].best is outcomes[0].network
    assert outcomes[0].figures == {}


def test_fit_trains_a_module_in_place_wherever_it_is_cut() -> None:
    module = net()
    before = module[0].weight.detach().clone()
    fit(Single(after(module, 2)), LMS5(count=60), udp(Linf(0.1, OPEN), 0.05, 2), SHORT)
    assert not torch.equal(module[0].weight, before)


def test_another_fit_in_the_folder_is_told_what_differs(tmp_path: Path) -> None:
    points, labels = torch.rand(8, 2), torch.arange(8) % 2
    torch.manual_seed(0)
    first, other = torch.nn.Linear(2, 2), torch.nn.Linear(2, 2)
    fit(first, (points, labels), standard(), SHORT, out=tmp_path / "a")
    with pytest.raises(ValueError, match=r"began with other initial weights: .*torch.manual_seed\(0\)") as refused:
        fit(other, (points, labels), standard(), SHORT, out=tmp_path / "a")
    assert "resume" not in str(refused.value)
    torch.manual_seed(0)
    with pytest.raises(ValueError, match=r"one with other arguments \(seed, data\): choose another folder, out="):
        fit(torch.nn.Linear(2, 2), (2 * points, labels), standard(), SHORT, seed=1, out=tmp_path / "a")


def test_fit_goes_on_in_its_folder(tmp_path: Path) -> None:
    def run(updates: int) -> Outcome:
        return fit(net(), LMS5(count=60), standard(), SHORT, out=tmp_path / str(updates))

    first, again = run(30), run(30)
    assert same(first.network, again.network)
    assert first.records == again.records
    with pytest.raises(ValueError, match="holds another run"):
        fit(net(), LMS5(count=61), standard(), SHORT, out=tmp_path / "30")


def test_fit_of_descriptions_is_a_trial(tmp_path: Path) -> None:
    trial = Run(LMS5(), MLPSpec((2, 4, 2)), standard(), SHORT, 3)
    fitted = fit(MLPSpec((2, 4, 2)), LMS5(), standard(), SHORT, 3, tmp_path / "a")
    assert same(fitted.network, run_training(prepare(trial), RunFolder(tmp_path / "a")).network)


def test_parts_are_validated() -> None:
    outcome = fit(LeNetSpec(side=8), DIGITS.draw(), standard(), replace(PLAN, length=Epochs(2)))
    assert outcome.figures.keys() == {"clean"}
    assert [line["epoch"] for line in outcome.records if "clean" in line] == [1, 2]


def test_points_alone_have_nothing_to_validate() -> None:
    assert isinstance(LMS5().draw(), Dataset)
    assert all("clean" not in line for line in fit(net(), LMS5(), standard(), SHORT).records)
