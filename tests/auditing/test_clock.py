import math
import time
from pathlib import Path

import pytest
import torch
from torch import nn

from widemargin.auditing.clock import Clock, Stopwatch, TimeIsUp, seconds_of


def test_a_budget_is_seconds_or_a_time() -> None:
    assert [seconds_of(budget) for budget in (None, 90, 1.5, "90", "90s", "1.5m", ".5h")] == [
        None,
        90,
        1.5,
        90,
        90,
        90,
        1800,
    ]
    with pytest.raises(ValueError, match='seconds or a time such as "90s", "10m" or "2h", got '):
        seconds_of("ten minutes")
    for wrong in (-1, 0, float("nan"), True):
        with pytest.raises(ValueError, match="budget must be seconds"):
            seconds_of(wrong)


def test_what_is_left_is_a_share_of_the_budget() -> None:
    assert Clock(None).left() == math.inf
    clock = Clock(100.0, begun=time.monotonic() - 60)
    assert clock.left() == pytest.approx(40, abs=1)
    assert clock.left(0.5) == pytest.approx(-10, abs=1)


def test_a_call_of_any_module_ends_what_is_over_time_and_no_other() -> None:
    network, points = nn.Sequential(nn.Linear(2, 2)), torch.zeros(1, 2)
    late = Clock(1.0, begun=time.monotonic() - 60)
    for clock in (Clock(None), Clock(100.0)):
        with clock.ending():
            network(points)
    with late.ending(unless=lambda: True):
        network(points)
    with pytest.raises(TimeIsUp), late.ending():
        network[0](points)
    network(points)


def test_time_of_all_calls_is_added_up_to_the_last_that_was_saved(tmp_path: Path) -> None:
    path = tmp_path / "seconds.json"
    assert Stopwatch(path).seconds == 0
    Stopwatch(path, since=time.monotonic() - 5).save()
    second = Stopwatch(path, since=time.monotonic() - 7)
    assert second.seconds == pytest.approx(5, abs=1)
    second.save()
    second.save()
    assert Stopwatch(path).seconds == pytest.approx(12, abs=1)
