"""Jobs in worker processes, local or on a cluster, with a progress bar for each running job."""

from __future__ import annotations

import multiprocessing
import os
import pickle
import signal
import threading
import traceback
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures.process import BrokenProcessPool
from contextlib import contextmanager
from dataclasses import dataclass, field
from multiprocessing import resource_tracker
from multiprocessing.connection import Connection, wait
from multiprocessing.context import SpawnProcess
from typing import Any, Protocol

import torch
from rich.console import Console
from rich.progress import (
    BarColumn,
    MofNCompleteColumn,
    Progress,
    TaskID,
    TextColumn,
    TimeElapsedColumn,
    TimeRemainingColumn,
)

from widemargin.runs.stop import NoStopRequest, Stopped, StopRequest

OnProgress = Callable[[int], None]
"""Called by a job with the number of its steps done so far; it raises Stopped if the job shall stop."""
_NO_STOP = NoStopRequest()
_POLL_SECONDS = 0.2
"""Seconds between two checks for a stop."""


@dataclass(frozen=True)
class Job:
    """A picklable function of its arguments and an OnProgress."""

    name: str
    steps: int
    function: Callable[..., None]
    arguments: tuple[Any, ...]


class Engine(Protocol):
    """Where jobs run."""

    def do(self, jobs: Sequence[Job], board: Board, count: int, stop_request: StopRequest) -> None:
        """Run all jobs, at most `count` at a time, with a bar of the board for each; the first that fails ends
        the others, and its error is raised here; so is Stopped, once all running jobs have stopped."""
        ...


@dataclass(frozen=True)
class LocalProcesses:
    """One thread in each process: two busy processes with two threads each slow each other down many times."""

    def do(self, jobs: Sequence[Job], board: Board, count: int, stop_request: StopRequest) -> None:
        if count == 1:
            _do_here(jobs, board, stop_request)
        else:
            _do_in_processes(jobs, board, count, stop_request)


@dataclass(frozen=True)
class Workers:
    console: Console
    count: int = os.cpu_count() or 1
    stop_request: StopRequest = _NO_STOP
    engine: Engine = LocalProcesses()

    def __post_init__(self) -> None:
        if self.count < 1:
            raise ValueError(f"there must be at least 1 worker, got {self.count}")

    def do(self, jobs: Sequence[Job], title: str) -> None:
        """Run all jobs; the first that fails ends the others, and its error is raised here.

        On a request to stop, jobs stop at their next step, trainings are saved, and Stopped is raised here.
        """
        if not jobs:
            return
        columns = (TextColumn("{task.description:<38}", markup=False), BarColumn(), MofNCompleteColumn())
        with Progress(*columns, TimeElapsedColumn(), TimeRemainingColumn(), console=self.console) as progress:
            board = Board(progress, progress.add_task(title, total=sum(job.steps for job in jobs)))
            self.engine.do(jobs, board, min(self.count, len(jobs)), self.stop_request)


@dataclass(frozen=True)
class Board:
    """The progress bars: one for all jobs, and one for each running job."""

    progress: Progress
    total: TaskID
    done: dict[TaskID, int] = field(default_factory=dict)

    def begin(self, job: Job) -> Bar:
        return Bar(self, job, self.progress.add_task(f"  {job.name}", total=job.steps))

    def show(self, bar: TaskID, steps: int) -> None:
        self.done[bar] = steps
        self.progress.update(bar, completed=steps)
        self.progress.update(self.total, completed=sum(self.done.values()))


@dataclass(frozen=True)
class Bar:
    board: Board
    job: Job
    task: TaskID

    def update(self, steps: int) -> None:
        self.board.show(self.task, steps)

    def end(self) -> None:
        self.update(self.job.steps)
        self.board.progress.remove_task(self.task)


def _do_here(jobs: Sequence[Job], board: Board, stop_request: StopRequest) -> None:
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        for job in jobs:
            bar = board.begin(job)

            def on_progress(steps: int, bar: Bar = bar) -> None:
                bar.update(steps)
                if stop_request.now():
                    raise Stopped

            on_progress(0)
            job.function(*job.arguments, on_progress)
            bar.end()
    finally:
        torch.set_num_threads(before)


def _do_in_processes(jobs: Sequence[Job], board: Board, count: int, stop_request: StopRequest) -> None:
    left, bars, stopped = deque(jobs), dict[Connection, Bar](), False
    with _workers(count) as pipes:
        busy = set(pipes)
        while busy:
            ready = wait(busy, _POLL_SECONDS)
            if not stopped and stop_request.now():
                stopped = True
                left.clear()
                for pipe in bars:
                    # A busy worker takes this for a request to stop.
                    _send(pipe, None)
            for pipe in [pipe for pipe in pipes if pipe in ready]:
                steps = _received(pipe)
                if steps is not None:
                    bars[pipe].update(steps)
                    continue
                was_sent_stop = pipe in bars and stopped
                if pipe in bars:
                    bars.pop(pipe).end()
                job = left.popleft() if left else None
                if not was_sent_stop:
                    _send(pipe, job)
                if job is None:
                    busy.remove(pipe)
                else:
                    bars[pipe] = board.begin(job)
    if stopped:
        raise Stopped


@contextmanager
def _workers(count: int) -> Iterator[list[Connection]]:
    """Pipes to so many processes.  Nothing else is shared with them, so nothing needs cleaning up after them."""
    context = multiprocessing.get_context("spawn")
    # Otherwise it starts with the first process, and unblocks signals.
    resource_tracker.ensure_running()
    pipes: list[Connection] = []
    processes: list[SpawnProcess] = []
    try:
        for _ in range(count):
            ours, theirs = context.Pipe()
            process = context.Process(target=_work, args=(theirs,), daemon=True)
            with _interrupts_blocked():
                process.start()
            theirs.close()
            pipes.append(ours)
            processes.append(process)
        yield pipes
        for process in processes:
            process.join()
    finally:
        for process in processes:
            process.kill()
        for process in processes:
            process.join()
        for pipe in pipes:
            pipe.close()


@contextmanager
def _interrupts_blocked() -> Iterator[None]:
    """For a process that is started meanwhile: signals may be sent to the whole group, and the parent handles them."""
    before = signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGINT, signal.SIGTERM])
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


def _received(pipe: Connection) -> int | None:
    """Finished steps of a worker's job; None if it has no job."""
    try:
        message: int | Exception | None = pipe.recv()
    except (EOFError, OSError):
        raise _killed() from None
    if isinstance(message, Exception):
        raise message
    return message


def _send(pipe: Connection, job: Job | None) -> None:
    """None ends the worker."""
    try:
        pipe.send(job)
    except OSError:
        raise _killed() from None


def _killed() -> BrokenProcessPool:
    return BrokenProcessPool("a worker process was killed, maybe for want of memory: take fewer workers")


def _work(pipe: Connection) -> None:
    """The main function of a worker process."""
    threading.Thread(target=_end_with_parent, daemon=True).start()
    torch.set_num_threads(1)

    def send(message: int | Exception | None) -> None:
        try:
            pipe.send(message)
        except OSError:
            # The parent is gone.
            os._exit(1)

    def on_progress(steps: int) -> None:
        send(steps)
        if pipe.poll():
            raise Stopped

    while True:
        send(None)
        try:
            job = pipe.recv()
            if job is None:
                return
            job.function(*job.arguments, on_progress)
        except Stopped:
            # The next message is None: no job.
            continue
        except Exception as error:  # Any error of a job is raised in the parent.
            send(sendable(error))


def _end_with_parent() -> None:
    """A killed command must not leave its workers running."""
    parent = multiprocessing.parent_process()
    assert parent is not None
    parent.join()
    os._exit(1)


def sendable(error: Exception) -> Exception:
    """The error itself, if it can be pickled, with the worker's traceback as a note."""
    where = "".join(traceback.format_exception(error))
    try:
        copied: Exception = pickle.loads(pickle.dumps(error))
    except Exception:  # A user's exception class may fail to be pickled in any way.
        copied = RuntimeError(f"{type(error).__name__}: {error}")
    copied.add_note(f"In a worker process:\n{where}")
    return copied
