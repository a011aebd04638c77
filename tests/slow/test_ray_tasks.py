import contextlib
import io
import os
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator
from concurrent.futures.process import BrokenProcessPool
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import rich.console
import torch
from rich.progress import Progress, TaskID
from safetensors.torch import load_file

import interrupted
from test_workers import descendants, fail_unpicklably, for_ever, is_alive, until, write_pid
from widemargin.ray_tasks import RayTasks, ray_tasks
from widemargin.runs.stop import NoStopRequest
from widemargin.workers import Board, Job, OnProgress, Workers

COUNT = 2


@pytest.fixture(scope="module")
def tasks() -> Iterator[RayTasks]:
    with ray_tasks(COUNT) as found:
        yield found


def workers(tasks: RayTasks, said: io.StringIO | None = None) -> Workers:
    return Workers(rich.console.Console(file=said or io.StringIO(), width=200), COUNT, engine=tasks)


def wait_for(path: Path, on_progress: OnProgress) -> None:
    on_progress(7)
    until(path.is_file)


def killed(on_progress: OnProgress) -> None:
    os.kill(os.getpid(), signal.SIGKILL)


def train(folder: Path, pid: Path, on_progress: OnProgress) -> None:
    with pid.open("a") as file:
        file.write(f"{os.getpid()}\n")
    interrupted.run(folder)


@pytest.mark.slow
def test_every_job_is_done_in_a_process_of_the_cluster(
    tasks: RayTasks, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    # Named from the folder in which the command was given, as those of studies are.
    workers(tasks).do([Job(f"job {i}", 3, write_pid, (Path(str(i)),)) for i in range(3)], "Work")
    pids = {int((tmp_path / str(i)).read_text()) for i in range(3)}
    assert pids <= set(descendants(os.getpid()))


@pytest.mark.slow
def test_bars_move_while_a_job_runs(tasks: RayTasks, tmp_path: Path) -> None:
    seen: list[float | None] = []

    class Watched(Progress):
        def update(self, task_id: TaskID, *, completed: float | None = None, **more: Any) -> None:
            super().update(task_id, completed=completed, **more)
            seen.append(completed)
            if completed == 7:
                # The job waits for this: unless its steps are told while it runs, it never ends.
                (tmp_path / "go").touch()

    progress = Watched(console=rich.console.Console(file=io.StringIO()))
    board = Board(progress, progress.add_task("Work", total=9))
    tasks.do([Job("waits", 9, wait_for, (tmp_path / "go",))], board, COUNT, NoStopRequest())
    assert seen[-1] == 9


@pytest.mark.slow
def test_a_killed_worker_costs_no_number(tasks: RayTasks, tmp_path: Path) -> None:
    """It is killed in the middle; its job goes on from the checkpoint and ends as if nothing had happened."""
    folder, pid, said = tmp_path / "run", tmp_path / "pid", io.StringIO()

    def kill() -> None:
        until((folder / "checkpoint.safetensors").is_file)
        os.kill(int(pid.read_text()), signal.SIGKILL)

    killer = threading.Thread(target=kill)
    killer.start()
    workers(tasks, said).do([Job("digits", 1, train, (folder, pid))], "Work")
    killer.join()
    assert len(pid.read_text().split()) == 2
    assert "digits: its worker process was killed, it resumes from its checkpoint" in said.getvalue()
    interrupted.run(tmp_path / "uninterrupted")
    there, here = (load_file(tmp_path / name / "last.safetensors") for name in ("run", "uninterrupted"))
    assert all(torch.equal(there[name], here[name]) for name in here)


@pytest.mark.slow
def test_a_job_that_kills_every_worker_is_given_up(tasks: RayTasks, tmp_path: Path) -> None:
    said = io.StringIO()
    with pytest.raises(BrokenProcessPool, match=r"^bad was begun 2 times and its worker process was killed each time"):
        workers(replace(tasks, retries=1), said).do([Job("bad", 1, killed, ())], "Work")
    assert said.getvalue().count("resumes from its checkpoint") == 1


@pytest.mark.slow
def test_a_failure_ends_the_other_jobs_and_says_where_it_was(tasks: RayTasks, tmp_path: Path) -> None:
    pid = tmp_path / "pid"
    jobs = [Job("long", 3, for_ever, (pid,)), Job("bad", 1, fail_beside, (pid,))]
    with pytest.raises(RuntimeError, match=r"OfTwo: this and that$") as raised:
        workers(tasks).do(jobs, "Work")
    assert "in fail_unpicklably" in raised.value.__notes__[0]
    until(lambda: not is_alive(int(pid.read_text())), seconds=30)


def fail_beside(path: Path, on_progress: OnProgress) -> None:
    until(lambda: path.is_file() and bool(path.read_text()))
    fail_unpicklably(on_progress)


WORK_FOR_EVER = """
import pathlib, sys
import rich.console
from test_workers import for_ever
from widemargin.ray_tasks import ray_tasks
from widemargin.runs.stop import NoStopRequest
from widemargin.workers import Job, Workers

try:
    with ray_tasks(1) as tasks:
        jobs = [Job("long", 3, for_ever, (pathlib.Path("pid"),))]
        Workers(rich.console.Console(quiet=True), 1, engine=tasks).do(jobs, "Work")
except KeyboardInterrupt:
    sys.exit(130)
"""


@pytest.mark.slow
@pytest.mark.parametrize(("sent", "to_all"), [(signal.SIGKILL, False), (signal.SIGINT, True), (signal.SIGTERM, False)])
def test_whatever_ends_a_command_leaves_no_process_behind(tmp_path: Path, sent: signal.Signals, to_all: bool) -> None:
    (tmp_path / "work.py").write_text(WORK_FOR_EVER)
    path = os.pathsep.join([str(Path(__file__).parents[1]), *sys.path])
    command = subprocess.Popen(
        [sys.executable, "work.py"], cwd=tmp_path, env={**os.environ, "PYTHONPATH": path}, start_new_session=True
    )
    started = []
    try:
        pid = tmp_path / "pid"
        until(lambda: pid.is_file() and bool(pid.read_text()))
        started = descendants(command.pid)
        assert int(pid.read_text()) in started
        (os.killpg if to_all else os.kill)(command.pid, sent)
        command.wait(timeout=60)
        until(lambda: not is_alive(int(pid.read_text())), seconds=30)
        # Two of Ray's own, idle, look for their killed head for a minute before they end.
        until(lambda: not any(map(is_alive, started)), seconds=120 if sent == signal.SIGKILL else 30)
    finally:
        for process in [command.pid, *started]:
            with contextlib.suppress(ProcessLookupError):
                os.kill(process, signal.SIGKILL)
