"""Killed at every write, and at random moments; started again, every command ends as if nothing had happened."""

import contextlib
import os
import random
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass
from functools import cache
from pathlib import Path

import pytest

from faults.cases import CASES, QUICK, Case
from faults.commands import Where, ended, started, writes
from faults.tally import Tally

_TRAIN = "train --data digits --fraction .2 --method udp --eps .2 --alpha .1 --steps 3 --epochs 12 --batch 32"


@dataclass(frozen=True)
class Undisturbed:
    before: Path
    after: Path
    seconds: float


@pytest.fixture(scope="module")
def undisturbed(tmp_path_factory: pytest.TempPathFactory) -> Callable[[Case], Undisturbed]:
    folder = tmp_path_factory.mktemp("faults")

    @cache
    def found(case: Case) -> Undisturbed:
        before = folder / case.name / "before"
        before.mkdir(parents=True)
        if case.after_training:
            shutil.copytree(found(CASES[0]).after, before, dirs_exist_ok=True)
        after = shutil.copytree(before, before.with_name("after"))
        begun = time.monotonic()
        ended(after, case.words)
        return Undisturbed(before, after, time.monotonic() - begun)

    return found


def points(folder: Path) -> list[tuple[int, Where]]:
    where: tuple[Where, ...] = ("before", "after", "torn")
    return [(number, place) for number in range(writes(folder)) for place in where]


def check_again(case: Case, folder: Path, after: Path) -> None:
    ended(folder, case.words)
    assert case.result(folder) == case.result(after)
    left = [path for path in folder.rglob("*") if "partial" in path.name]
    assert not left, f"left behind: {left}"


def check_writes(case: Case, places: list[tuple[int, Where]], found: Undisturbed, tmp_path: Path) -> int:
    for number, place in enumerate(places):
        folder = shutil.copytree(found.before, tmp_path / str(number))
        process = started(folder, case.words, place)
        process.join(300)
        assert process.exitcode == -9, f"{case.name} was not killed at write {place}: {process.exitcode}"
        check_again(case, folder, found.after)
        shutil.rmtree(folder)
    return len(places)


@pytest.mark.parametrize("case", QUICK, ids=lambda case: case.name)
def test_a_few_writes(case: Case, undisturbed: Callable[[Case], Undisturbed], tmp_path: Path) -> None:
    found = undisturbed(case)
    check_writes(case, random.Random(3).sample(points(found.after), 1), found, tmp_path)


@pytest.mark.slow
@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
def test_every_write(case: Case, undisturbed: Callable[[Case], Undisturbed], tmp_path: Path, tally: Tally) -> None:
    found = undisturbed(case)
    which = "every write" if case.most > 100 else "writes chosen at random"
    with tally.of(f"{case.name}: killed at {which}") as counted:
        places = points(found.after)
        some = places if len(places) <= case.most else random.Random(5).sample(places, case.most)
        counted.tried = check_writes(case, some, found, tmp_path)


@pytest.mark.slow
@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
def test_random_moments(case: Case, undisturbed: Callable[[Case], Undisturbed], tmp_path: Path, tally: Tally) -> None:
    found = undisturbed(case)
    chance = random.Random(11)
    with tally.of(f"{case.name}: killed at random moments") as counted:
        for number in range(5):
            folder = shutil.copytree(found.before, tmp_path / str(number))
            for _ in range(5):
                process = started(folder, case.words)
                process.join(chance.uniform(0.02, found.seconds / 2))
                counted.tried += process.is_alive()
                process.kill()
                process.join()
            check_again(case, folder, found.after)


@pytest.mark.slow
def test_torchrun_at_random_moments(tmp_path: Path, tally: Tally) -> None:
    """All of its processes at once, as when a computer goes down."""

    def begun(folder: Path) -> "subprocess.Popen[bytes]":
        launcher = ["-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "2", "-m", "widemargin.cli"]
        command = [sys.executable, *launcher, *_TRAIN.split(), "--out", str(folder)]
        return subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)

    begin = time.monotonic()
    assert begun(tmp_path / "undisturbed").wait(300) == 0
    seconds, chance = time.monotonic() - begin, random.Random(13)
    with tally.of("torchrun: killed at random moments") as counted:
        for _ in range(4):
            process = begun(tmp_path / "killed")
            time.sleep(chance.uniform(0.3, 0.95) * seconds)
            counted.tried += process.poll() is None
            for one in (process.pid, *_children(process.pid)):
                with contextlib.suppress(ProcessLookupError):
                    os.kill(one, signal.SIGKILL)
            process.wait()
        assert begun(tmp_path / "killed").wait(300) == 0
        for name in ("checkpoint.safetensors", "records.jsonl", "last.safetensors"):
            assert (tmp_path / "killed" / name).read_bytes() == (tmp_path / "undisturbed" / name).read_bytes()


def _children(process: int) -> list[int]:
    """None once it has ended."""
    with contextlib.suppress(OSError):
        return [int(child) for child in Path(f"/proc/{process}/task/{process}/children").read_text().split()]
    return []
