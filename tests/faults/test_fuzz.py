"""Every reader, given files that were changed at random: data or one sentence, in bounded time and memory."""

from pathlib import Path

import pytest

from faults.fuzz import TARGETS, Target, fuzzed
from faults.tally import Tally


@pytest.mark.parametrize("target", TARGETS, ids=lambda target: target.name)
def test_some_changed_files(target: Target, tmp_path: Path) -> None:
    assert fuzzed(target, tmp_path, count=40, seconds=10) > 0


@pytest.mark.slow
@pytest.mark.parametrize("target", TARGETS, ids=lambda target: target.name)
def test_many_changed_files(target: Target, tmp_path: Path, tally: Tally) -> None:
    with tally.of(f"{target.name}: changed at random") as counted:
        counted.tried = fuzzed(target, tmp_path, count=1_000_000, seconds=30, seed=1)
