"""Jobs as Ray tasks: on a running cluster, or on a local one for the time of the command."""

from __future__ import annotations

import logging
import os
import pickle
import socket
import sys
import tempfile
import time
from collections import deque
from collections.abc import Iterator, Sequence
from concurrent.futures.process import BrokenProcessPool
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from typing import Any

import torch

from widemargin.data.optional import import_optional
from widemargin.runs.stop import Stopped, StopRequest
from widemargin.workers import Bar, Board, Job, sendable

_OBJECT_STORE = 80 * 2**20
"""Bytes, about Ray's minimum: results go to files, only progress goes through it."""


@contextmanager
def ray_tasks(count: int | None = None, address: str | None = None) -> Iterator[RayTasks]:
    """Without an address and RAY_ADDRESS, a local cluster with `count` cores, which ends with the context."""
    import_optional("ray", "'widemargin[sweeps]'", "--engine ray")
    cluster = address or os.environ.get("RAY_ADDRESS") or "local"
    with _local_cluster(count or os.cpu_count() or 1) if cluster == "local" else _cluster_at(cluster):
        yield RayTasks()


@dataclass(frozen=True)
class RayTasks:
    """A job whose worker is killed is restarted from its last checkpoint, up to `retries` times."""

    retries: int = 3

    def do(self, jobs: Sequence[Job], board: Board, count: int, stop_request: StopRequest) -> None:
        import ray

        left, running = deque(_Attempt(number, job) for number, job in enumerate(jobs)), dict[Any, _Attempt]()
        # If its computer fails it restarts empty: the next reports fill it.
        progress: Any = ray.remote(num_cpus=0, max_restarts=-1, max_task_retries=-1)(_Progress).remote()
        perform = ray.remote(num_cpus=1, max_retries=0)(_perform)
        here = _Place.this()
        bars, stopped = _Bars(board), False
        try:
            while left or running:
                if not stopped and stop_request.now():
                    stopped = True
                    left.clear()
                    progress.stop.remote()
                while left and len(running) < count:
                    attempt = left.popleft()
                    running[perform.remote(here, attempt.number, pickle.dumps(attempt.job), progress)] = attempt
                done, _ = ray.wait(list(running), timeout=0.5)
                steps = ray.get(progress.read.remote())
                for attempt in running.values():
                    if attempt.number in steps:
                        bars.show(attempt, steps[attempt.number])
                for task in done:
                    attempt = running.pop(task)
                    if _was_killed(task) and not stopped:
                        left.appendleft(self._again(attempt, board))
                    else:
                        bars.end(attempt)
        finally:
            for task in running:
                ray.cancel(task, force=True)
            ray.kill(progress)
        if stopped:
            raise Stopped

    def _again(self, attempt: _Attempt, board: Board) -> _Attempt:
        if attempt.retried == self.retries:
            raise BrokenProcessPool(
                f"{attempt.job.name} was begun {self.retries + 1} times and its worker process was killed each time, "
                "maybe for want of memory: take fewer workers"
            )
        message = f"{attempt.job.name}: its worker process was killed, it resumes from its checkpoint"
        board.progress.console.print(message, highlight=False)
        return replace(attempt, retried=attempt.retried + 1)


@dataclass(frozen=True)
class _Attempt:
    number: int
    job: Job
    retried: int = 0


@dataclass(frozen=True)
class _Bars:
    """One for every job from its first progress to its end."""

    board: Board
    shown: dict[int, Bar] = field(default_factory=dict)

    def show(self, attempt: _Attempt, steps: int) -> None:
        if attempt.number not in self.shown:
            self.shown[attempt.number] = self.board.begin(attempt.job)
        self.shown[attempt.number].update(steps)

    def end(self, attempt: _Attempt) -> None:
        self.show(attempt, attempt.job.steps)
        self.shown.pop(attempt.number).end()


class _Progress:
    """An actor to which jobs report their progress."""

    def __init__(self) -> None:
        self.steps: dict[int, int] = {}
        self.stopped = False

    def report(self, number: int, steps: int) -> bool:
        """Whether the job shall stop."""
        self.steps[number] = steps
        return self.stopped

    def stop(self) -> None:
        self.stopped = True

    def read(self) -> dict[int, int]:
        return self.steps


@dataclass
class _Throttled:
    """Reports progress a few times a second at most: some jobs have thousands of quick steps."""

    number: int
    progress: Any
    next_at: float = 0.0
    answer: Any = None
    """To the last report, which is not waited for."""

    def __call__(self, steps: int) -> None:
        import ray

        now = time.monotonic()
        if now >= self.next_at:
            stop = self.answer is not None and ray.get(self.answer)
            self.answer = self.progress.report.remote(self.number, steps)
            self.next_at = now + 0.25
            if stop:
                raise Stopped


@dataclass(frozen=True)
class _Place:
    """The environment of the command: working directory, variables, and module paths."""

    folder: str
    variables: dict[str, str]
    modules: tuple[str, ...] = ()

    @classmethod
    def this(cls) -> _Place:
        variables = {name: value for name, value in os.environ.items() if name.startswith("WIDEMARGIN_")}
        return cls(os.getcwd(), variables, tuple(map(os.path.abspath, sys.path)))

    def enter(self) -> None:
        try:
            os.chdir(self.folder)
        except OSError:
            raise ValueError(
                f"{self.folder} must be on a file system that all computers of the Ray cluster share, and is not on "
                f"{socket.gethostname()}: give the command in a folder that is"
            ) from None
        os.environ.update(self.variables)
        sys.path.extend(path for path in self.modules if path not in sys.path)


def _perform(place: _Place, number: int, pickled: bytes, progress: Any) -> Exception | None:
    """In a worker process.  Errors of a job are returned; raised errors are those of the worker."""
    torch.set_num_threads(1)
    on_progress = _Throttled(number, progress)
    try:
        place.enter()
        on_progress(0)
        job = _unpickled(pickled)
        job.function(*job.arguments, on_progress)
    except Stopped:
        return None
    except Exception as error:  # Any error of a job is raised in the parent.
        return sendable(error)
    return None


def _unpickled(content: bytes) -> Job:
    try:
        job = pickle.loads(content)
    except (ImportError, AttributeError) as problem:
        raise ValueError(_lacking(f"{problem} on {socket.gethostname()}")) from None
    assert isinstance(job, Job)
    return job


def _lacking(what: str) -> str:
    return f"every computer of the Ray cluster must have the packages and files of this one, but one has not: {what}"


def _was_killed(task: Any) -> bool:
    """Whether the worker of a finished task was killed; an error of the job is raised."""
    import ray
    from ray import exceptions

    try:
        error = ray.get(task)
    except (
        exceptions.WorkerCrashedError,
        exceptions.OutOfMemoryError,
        exceptions.NodeDiedError,
        exceptions.ObjectLostError,
    ):
        return True
    except exceptions.RayTaskError as problem:
        raise ValueError(_lacking(str(problem.cause).partition("\n")[0])) from None
    if error is not None:
        raise error
    return False


@contextmanager
def _local_cluster(count: int) -> Iterator[None]:
    import ray

    _disable_usage_statistics()
    # Paths of its sockets must be short, and the default temporary folder may be deeply nested.
    with tempfile.TemporaryDirectory(prefix="widemargin-ray-", dir="/tmp", ignore_cleanup_errors=True) as folder:
        try:
            ray.init(
                address="local",
                num_cpus=count,
                include_dashboard=False,
                object_store_memory=_OBJECT_STORE,
                log_to_driver=False,
                logging_level=logging.ERROR,
                _node_ip_address="127.0.0.1",
                _temp_dir=folder,
            )
            yield
        finally:
            ray.shutdown()


@contextmanager
def _cluster_at(address: str) -> Iterator[None]:
    import ray

    _disable_usage_statistics()
    try:
        ray.init(address=address, log_to_driver=False, logging_level=logging.ERROR)
    except (ConnectionError, RuntimeError, ValueError) as problem:
        raise ValueError(
            f"--address must be that of a Ray cluster that runs, got {address} ({str(problem).splitlines()[0]}): start "
            "one with `ray start --head`, or leave out --address and RAY_ADDRESS"
        ) from None
    try:
        yield
    finally:
        ray.shutdown()


def _disable_usage_statistics() -> None:
    """Ray sends them to its developers otherwise."""
    os.environ["RAY_USAGE_STATS_ENABLED"] = "0"
