"""Killed at every write, and at random moments; started again, every command ends as if nothing had happened."""

import random
import shutil
import time
from collections.abc import Callable
from dataclasses import dataclass
from functools import cache
from pathlib import Path

import pytest

from faults.cases import CASES, Case
from faults.commands import Where, ended, started, writes
from faults.tally import Tally


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


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
def test_a_few_writes(case: Case, undisturbed: Callable[[Case], Undisturbed], tmp_path: Path) -> None:
    found = undisturbed(case)
    check_writes(case, random.Random(3).sample(points(found.after), 1), found, tmp_path)


@pytest.mark.slow
@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
def test_every_write(case: Case, undisturbed: Callable[[Case], Undisturbed], tmp_path: Path, tally: Tally) -> None:
    found = undisturbed(case)
    with tally.of(f"{case.name}: killed at every write") as counted:
        counted.tried = check_writes(case, points(found.after), found, tmp_path)


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
