import contextlib
import io
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from concurrent.futures.process import BrokenProcessPool
from dataclasses import dataclass
from pathlib import Path

import pytest
import rich.console

from widemargin.runs.stop import Stopped
from widemargin.workers import Job, OnProgress, Workers


def write_pid(path: Path, on_progress: OnProgress) -> None:
    for step in range(1, 4):
        on_progress(step)
    path.write_text(str(os.getpid()))


def fail(on_progress: OnProgress) -> None:
    raise ValueError("this one fails")


class OfTwo(Exception):
    def __init__(self, first: str, second: str) -> None:
        super().__init__(f"{first} and {second}")


def fail_unpicklably(on_progress: OnProgress) -> None:
    raise OfTwo("this", "that")


def for_ever(path: Path, on_progress: OnProgress) -> None:
    write_pid(path, on_progress)
    time.sleep(600)


def killed_beside(path: Path, on_progress: OnProgress) -> None:
    until(path.is_file)
    os.kill(os.getpid(), signal.SIGKILL)


def quiet() -> rich.console.Console:
    return rich.console.Console(file=io.StringIO())


def until(condition: Callable[[], bool], seconds: float = 200) -> None:
    end = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < end, "waited too long"
        time.sleep(0.05)


def is_alive(pid: int) -> bool:
    try:
        return "Z" not in Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
    except (FileNotFoundError, ProcessLookupError):
        return False


def descendants(pid: int) -> list[int]:
    children = [int(child) for child in Path(f"/proc/{pid}/task/{pid}/children").read_text().split()]
    return children + [further for child in children for further in descendants(child)]


@pytest.mark.parametrize("count", [1, 2])
def test_every_job_is_done_once(tmp_path: Path, count: int) -> None:
    jobs = [Job(f"job {i}", 3, write_pid, (tmp_path / str(i),)) for i in range(3)]
    Workers(quiet(), count).do(jobs, "Work")
    pids = {int((tmp_path / str(i)).read_text()) for i in range(3)}
    assert (os.getpid() in pids) == (count == 1)


def test_a_failure_reaches_the_caller(tmp_path: Path) -> None:
    jobs = [Job("good", 3, write_pid, (tmp_path / "good",)), Job("bad", 1, fail, ())]
    with pytest.raises(ValueError, match=r"^this one fails$"):
        Workers(quiet(), 1).do(jobs, "Work")


def test_a_failure_ends_the_other_jobs_and_says_where_it_was(tmp_path: Path) -> None:
    jobs = [Job("long", 3, for_ever, (tmp_path / "pid",)), Job("bad", 1, fail_unpicklably, ())]
    with pytest.raises(RuntimeError, match=r"OfTwo: this and that$") as raised:
        Workers(quiet(), 2).do(jobs, "Work")
    assert "in fail_unpicklably" in raised.value.__notes__[0]
    assert not [pid for pid in descendants(os.getpid()) if b"spawn_main" in Path(f"/proc/{pid}/cmdline").read_bytes()]


def test_a_killed_worker_ends_the_others_and_is_told_in_a_sentence(tmp_path: Path) -> None:
    path = tmp_path / "pid"
    jobs = [Job("long", 3, for_ever, (path,)), Job("killed", 1, killed_beside, (path,))]
    with pytest.raises(BrokenProcessPool, match=r"^a worker process was killed, maybe for want of memory: take fewer"):
        Workers(quiet(), 2).do(jobs, "Work")
    assert not is_alive(int(path.read_text()))


def until_stopped(path: Path, on_progress: OnProgress) -> None:
    path.touch()
    try:
        for step in range(100_000):
            time.sleep(0.01)
            on_progress(step)
    except Stopped:
        path.write_text("saved")
        raise


@dataclass(frozen=True)
class WhenThere:
    paths: tuple[Path, ...]

    def now(self) -> bool:
        return all(path.exists() for path in self.paths)


@pytest.mark.parametrize("count", [1, 2])
def test_jobs_stop_at_their_next_step_when_somebody_asks(count: int, tmp_path: Path) -> None:
    paths = tuple(tmp_path / str(i) for i in range(3))
    jobs = [Job(path.name, 100_000, until_stopped, (path,)) for path in paths]
    with pytest.raises(Stopped):
        Workers(quiet(), count, WhenThere(paths[:count])).do(jobs, "Work")
    assert [path.read_text() for path in paths[:count]] == ["saved"] * count
    assert not paths[2].exists()


WORK_FOR_EVER = """
import pathlib, signal, sys
import rich.console
from test_workers import for_ever
from widemargin.workers import Job, Workers

if __name__ == "__main__":
    # Of tests that a shell started in the background Ctrl-C is ignored.
    signal.signal(signal.SIGINT, signal.default_int_handler)
    jobs = [Job(str(i), 3, for_ever, (pathlib.Path(f"pid-{i}"),)) for i in range(2)]
    try:
        Workers(rich.console.Console(quiet=True), 2).do(jobs, "Work")
    except KeyboardInterrupt:
        sys.exit(130)
"""


@pytest.mark.parametrize(
    ("sent", "to_all"),
    [
        (signal.SIGKILL, False),
        (signal.SIGINT, True),
        pytest.param(signal.SIGINT, False, marks=pytest.mark.slow),
        pytest.param(signal.SIGTERM, False, marks=pytest.mark.slow),
        pytest.param(signal.SIGTERM, True, marks=pytest.mark.slow),
    ],
)
def test_whatever_ends_a_command_leaves_nothing_behind(tmp_path: Path, sent: signal.Signals, to_all: bool) -> None:
    """Neither workers nor what multiprocessing starts beside them, nor a folder, nor a word."""
    (tmp_path / "work.py").write_text(WORK_FOR_EVER)
    temporary = tmp_path / "temporary"
    temporary.mkdir()
    path = os.pathsep.join([str(Path(__file__).parent), *sys.path])
    command = subprocess.Popen(
        [sys.executable, "work.py"],
        cwd=tmp_path,
        env={**os.environ, "PYTHONPATH": path, "TMPDIR": str(temporary)},
        stderr=subprocess.PIPE,
        start_new_session=True,
    )
    started = []
    try:
        pids = [tmp_path / f"pid-{i}" for i in range(2)]
        until(lambda: all(path.is_file() and path.read_text() for path in pids))
        started = descendants(command.pid)
        assert {int(path.read_text()) for path in pids} < set(started)
        (os.killpg if to_all else os.kill)(command.pid, sent)
        # The end of stderr comes when the last process that could write to it is gone.
        _, said = command.communicate(timeout=120)
        until(lambda: not any(map(is_alive, started)), seconds=30)
    finally:
        for pid in [command.pid, *started]:
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
    assert command.returncode == (130 if sent == signal.SIGINT else -sent)
    assert said == b""
    assert list(temporary.iterdir()) == []


def test_at_least_one_worker() -> None:
    with pytest.raises(ValueError, match="at least 1 worker, got 0"):
        Workers(quiet(), 0)
