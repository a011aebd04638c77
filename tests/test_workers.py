import io
import os
from pathlib import Path

import pytest
import rich.console

from widemargin.workers import Job, Tick, Workers


def write_pid(path: Path, tick: Tick) -> None:
    for step in range(1, 4):
        tick(step)
    path.write_text(str(os.getpid()))


def fail(tick: Tick) -> None:
    raise ValueError("this one fails")


def quiet() -> rich.console.Console:
    return rich.console.Console(file=io.StringIO())


@pytest.mark.parametrize("count", [1, 2])
def test_every_job_is_done_once(tmp_path: Path, count: int) -> None:
    jobs = [Job(f"job {i}", 3, write_pid, (tmp_path / str(i),)) for i in range(3)]
    Workers(quiet(), count).do(jobs, "Work")
    pids = {int((tmp_path / str(i)).read_text()) for i in range(3)}
    assert (os.getpid() in pids) == (count == 1)


@pytest.mark.parametrize("count", [1, 2])
def test_a_failure_reaches_the_caller(tmp_path: Path, count: int) -> None:
    jobs = [Job("good", 3, write_pid, (tmp_path / "good",)), Job("bad", 1, fail, ())]
    with pytest.raises(ValueError, match="this one fails"):
        Workers(quiet(), count).do(jobs, "Work")


def test_at_least_one_worker() -> None:
    with pytest.raises(ValueError, match="at least 1 worker, got 0"):
        Workers(quiet(), 0)
