import multiprocessing
import random
import time
from collections.abc import Callable
from dataclasses import replace
from multiprocessing.context import ForkServerContext
from pathlib import Path
from typing import Any

import pytest

import interrupted
from widemargin import Epochs
from widemargin.networks.named import LeNetSpec
from widemargin.uncertainty.drawn import PerStep
from widemargin.uncertainty.estimators import EnsembleSpec, MCDropoutSpec

FILES = ("records.jsonl", "checkpoint.safetensors", "last.safetensors", "best.safetensors", "figures.json", "run.yaml")


@pytest.fixture(scope="module")
def processes() -> ForkServerContext:
    """Processes that begin in no time, because their parent has imported everything."""
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload(["widemargin.runs.fit", "sklearn.datasets", "torch._dynamo"])
    first = context.Process(target=int)
    first.start()
    first.join()
    return context


def killed(start: Callable[[], multiprocessing.Process], kills: int, seconds: float) -> int:
    """Start, kill at a random moment and start again; then let it end.  How many were killed while they ran."""
    chance, hit = random.Random(7), 0
    for _ in range(kills):
        process = start()
        process.join(chance.uniform(0.05, seconds))
        hit += process.is_alive()
        process.kill()
        process.join()
    process = start()
    process.join(120)
    assert process.exitcode == 0
    return hit


def check(processes: ForkServerContext, tmp_path: Path, kills: int, needed: int, epochs: int, **change: Any) -> None:
    plan = replace(interrupted.TRIAL.plan, length=Epochs(epochs))
    trial = replace(interrupted.TRIAL, plan=plan, **change)

    def process(folder: Path) -> multiprocessing.Process:
        started = processes.Process(target=interrupted.run, args=(folder, trial))
        started.start()
        return started

    begun = time.monotonic()
    undisturbed = process(tmp_path / "undisturbed")
    undisturbed.join(120)
    assert undisturbed.exitcode == 0
    # Together the interrupted ones get no further than the end, even if the computer is less busy by then.
    seconds = (time.monotonic() - begun) / kills
    assert killed(lambda: process(tmp_path / "killed"), kills, seconds) >= needed
    for name in FILES:
        assert (tmp_path / "killed" / name).read_bytes() == (tmp_path / "undisturbed" / name).read_bytes(), name


def test_kills_at_any_moment_change_nothing(processes: ForkServerContext, tmp_path: Path) -> None:
    check(processes, tmp_path, kills=8, needed=5, epochs=12)


@pytest.mark.parametrize(
    "change",
    [
        {"estimator": EnsembleSpec(2)},
        {"network": LeNetSpec(side=8, dropout=0.2), "estimator": MCDropoutSpec(3, PerStep())},
    ],
    ids=repr,
)
def test_kills_change_nothing_where_there_are_members(
    change: dict[str, Any], processes: ForkServerContext, tmp_path: Path
) -> None:
    check(processes, tmp_path, kills=3, needed=1, epochs=3, **change)


@pytest.mark.slow
def test_ten_kills_and_more_change_nothing(processes: ForkServerContext, tmp_path: Path) -> None:
    check(processes, tmp_path, kills=14, needed=10, epochs=60)
