"""Runs say how many threads they are trained with, and keep them."""

from collections.abc import Iterator
from pathlib import Path

import pytest
import torch

from widemargin import cli
from widemargin.data.toy import NarrowCorridor
from widemargin.networks.mlp import MLPSpec
from widemargin.recipes import standard
from widemargin.runs.folder import RunFolder
from widemargin.runs.prepare import prepare
from widemargin.runs.run import Run
from widemargin.runs.run_yaml import read_description
from widemargin.runs.threads import fastest, with_threads
from widemargin.training.plan import Adam, Epochs, Plan

TRIAL = Run(NarrowCorridor(), MLPSpec((2, 8, 2)), standard(), Plan(Epochs(1), Adam(0.01), batch=8))
WORDS = "train --data digits --fraction .1 --method standard --epochs 1"


@pytest.fixture(autouse=True)
def three_threads(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.delenv("OMP_NUM_THREADS", raising=False)
    before = torch.get_num_threads()
    torch.set_num_threads(3)
    yield
    torch.set_num_threads(before)


def test_one_or_all(tmp_path: Path) -> None:
    task = prepare(TRIAL)
    state = {name: value.clone() for name, value in task.network.state_dict().items()}
    assert fastest(task) in (1, 3)
    assert all(torch.equal(value, state[name]) for name, value in task.network.state_dict().items())
    assert all(parameter.grad is None for parameter in task.network.parameters())
    torch.set_num_threads(1)
    assert fastest(task) == 1


def test_what_is_written_or_set_by_the_user_stays(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = tmp_path / "run"
    monkeypatch.setenv("OMP_NUM_THREADS", "3")
    cli.main([*WORDS.split(), "--out", str(folder)])
    assert read_description(RunFolder(folder).description)["threads"] == 3
    monkeypatch.delenv("OMP_NUM_THREADS")
    torch.set_num_threads(2)
    with with_threads(prepare(TRIAL), RunFolder(folder)) as task:
        assert torch.get_num_threads() == task.description["threads"] == 3
    assert torch.get_num_threads() == 2
