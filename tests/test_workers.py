import io
import os
import subprocess
import sys
import time
from collections.abc import Callable
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


WORK_FOR_EVER = """
import rich.console, time
from pathlib import Path
from tests_workers_sleep import sleep
from widemargin.workers import Job, Workers
if __name__ == "__main__":
    Workers(rich.console.Console(quiet=True), 2).do([Job(str(i), 1, sleep, (i,)) for i in range(2)], "Work")
"""
SLEEP = """
import os, time
def sleep(i, tick):
    open(f"pid-{i}", "w").write(str(os.getpid()))
    time.sleep(600)
"""


def test_a_killed_command_takes_its_workers_along(tmp_path: Path) -> None:
    (tmp_path / "tests_workers_sleep.py").write_text(SLEEP)
    (tmp_path / "work.py").write_text(WORK_FOR_EVER)
    command = subprocess.Popen([sys.executable, "work.py"], cwd=tmp_path)
    pids = [tmp_path / f"pid-{i}" for i in range(2)]
    _until(lambda: all(path.is_file() and path.read_text() for path in pids))
    command.kill()
    command.wait()
    _until(lambda: not any(_is_alive(int(path.read_text())) for path in pids))


def _until(condition: Callable[[], bool], seconds: float = 60) -> None:
    end = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < end, "waited too long"
        time.sleep(0.05)


def _is_alive(pid: int) -> bool:
    try:
        return "Z" not in Path(f"/proc/{pid}/stat").read_text().split()[2]
    except FileNotFoundError:
        return False


def test_at_least_one_worker() -> None:
    with pytest.raises(ValueError, match="at least 1 worker, got 0"):
        Workers(quiet(), 0)
