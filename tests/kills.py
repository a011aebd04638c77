"""Runs that are killed at any moment and go on."""

import multiprocessing
import random
import time
from collections.abc import Callable
from dataclasses import replace
from multiprocessing.context import ForkServerContext
from pathlib import Path
from typing import Any

import interrupted
from widemargin import Epochs

FILES = ("records.jsonl", "checkpoint.safetensors", "last.safetensors", "best.safetensors", "figures.json", "run.yaml")


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
