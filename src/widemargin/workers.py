"""Jobs in worker processes, of this computer or of an engine's, with one bar for each that runs."""

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

from widemargin.runs.stop import Asking, Nobody, Stopped

Tick = Callable[[int], None]
"""Called by a job with the number of its steps done so far; it raises Stopped when the job is to be left."""
_NOBODY = Nobody()
_BETWEEN_LOOKS = 0.2
"""Seconds after which it is seen that somebody asks for a stop."""


@dataclass(frozen=True)
class Job:
    """A picklable function of its arguments and a Tick."""

    name: str
    steps: int
    function: Callable[..., None]
    arguments: tuple[Any, ...]


class Engine(Protocol):
    """Where jobs run."""

    def do(self, jobs: Sequence[Job], board: Board, count: int, asking: Asking) -> None:
        """All of them, at most `count` at a time, with a bar of the board for each that runs; the first that fails ends
        the others, and its error is raised here; so is Stopped, once all have stopped that were asked to."""
        ...


@dataclass(frozen=True)
class LocalProcesses:
    """One thread in each process: two busy processes with two threads each slow each other down many times."""

    def do(self, jobs: Sequence[Job], board: Board, count: int, asking: Asking) -> None:
        if count == 1:
            _do_here(jobs, board, asking)
        else:
            _do_in_processes(jobs, board, count, asking)


@dataclass(frozen=True)
class Workers:
    console: Console
    count: int = os.cpu_count() or 1
    asking: Asking = _NOBODY
    engine: Engine = LocalProcesses()

    def __post_init__(self) -> None:
        if self.count < 1:
            raise ValueError(f"there must be at least 1 worker, got {self.count}")

    def do(self, jobs: Sequence[Job], title: str) -> None:
        """All of them; the first that fails ends the others, and its error is raised here.

        When somebody asks for it, jobs stop at their next step, trainings are saved, and Stopped is raised here.
        """
        if not jobs:
            return
        columns = (TextColumn("{task.description:<38}", markup=False), BarColumn(), MofNCompleteColumn())
        with Progress(*columns, TimeElapsedColumn(), TimeRemainingColumn(), console=self.console) as progress:
            board = Board(progress, progress.add_task(title, total=sum(job.steps for job in jobs)))
            self.engine.do(jobs, board, min(self.count, len(jobs)), self.asking)


@dataclass(frozen=True)
class Board:
    """A bar for all the work above those of the jobs that run."""

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

    def tick(self, steps: int) -> None:
        self.board.show(self.task, steps)

    def end(self) -> None:
        self.tick(self.job.steps)
        self.board.progress.remove_task(self.task)


def _do_here(jobs: Sequence[Job], board: Board, asking: Asking) -> None:
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        for job in jobs:
            bar = board.begin(job)

            def tick(steps: int, bar: Bar = bar) -> None:
                bar.tick(steps)
                if asking.now():
                    raise Stopped

            tick(0)
            job.function(*job.arguments, tick)
            bar.end()
    finally:
        torch.set_num_threads(before)


def _do_in_processes(jobs: Sequence[Job], board: Board, count: int, asking: Asking) -> None:
    left, bars, stopped = deque(jobs), dict[Connection, Bar](), False
    with _workers(count) as pipes:
        busy = set(pipes)
        while busy:
            ready = wait(busy, _BETWEEN_LOOKS)
            if not stopped and asking.now():
                stopped = True
                left.clear()
                for pipe in bars:
                    # Who is at work takes that for a wish to stop.
                    _hand(pipe, None)
            for pipe in [pipe for pipe in pipes if pipe in ready]:
                steps = _heard(pipe)
                if steps is not None:
                    bars[pipe].tick(steps)
                    continue
                told = pipe in bars and stopped
                if pipe in bars:
                    bars.pop(pipe).end()
                job = left.popleft() if left else None
                if not told:
                    _hand(pipe, job)
                if job is None:
                    busy.remove(pipe)
                else:
                    bars[pipe] = board.begin(job)
    if stopped:
        raise Stopped


@contextmanager
def _workers(count: int) -> Iterator[list[Connection]]:
    """Pipes to so many processes.  Nothing else is shared with them, so that nothing is left of them in the end."""
    context = multiprocessing.get_context("spawn")
    # It is started with the first process otherwise, and lets interrupts through again when it is.
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
    """For a process that is started meanwhile.  Signals may be sent to all; the one that was asked answers them."""
    before = signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGINT, signal.SIGTERM])
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


def _heard(pipe: Connection) -> int | None:
    """Steps of a worker's job, or that it has none."""
    try:
        said: int | Exception | None = pipe.recv()
    except (EOFError, OSError):
        raise _killed() from None
    if isinstance(said, Exception):
        raise said
    return said


def _hand(pipe: Connection, job: Job | None) -> None:
    """Without a job the worker ends."""
    try:
        pipe.send(job)
    except OSError:
        raise _killed() from None


def _killed() -> BrokenProcessPool:
    return BrokenProcessPool("a worker process was killed, maybe for want of memory: take fewer workers")


def _work(pipe: Connection) -> None:
    """A worker's whole life."""
    threading.Thread(target=_end_with_parent, daemon=True).start()
    torch.set_num_threads(1)

    def say(what: int | Exception | None) -> None:
        try:
            pipe.send(what)
        except OSError:
            # Whoever asked is gone.
            os._exit(1)

    def tick(steps: int) -> None:
        say(steps)
        if pipe.poll():
            raise Stopped

    while True:
        say(None)
        try:
            job = pipe.recv()
            if job is None:
                return
            job.function(*job.arguments, tick)
        except Stopped:
            # The next thing to be received is that there is no job.
            continue
        except Exception as error:  # Whatever goes wrong in a job is for those who asked for it.
            say(sendable(error))


def _end_with_parent() -> None:
    """A killed command must not leave its workers behind, busy for nobody."""
    parent = multiprocessing.parent_process()
    assert parent is not None
    parent.join()
    os._exit(1)


def sendable(error: Exception) -> Exception:
    """The error itself, if it can be pickled, with a note where in the worker it happened."""
    where = "".join(traceback.format_exception(error))
    try:
        copied: Exception = pickle.loads(pickle.dumps(error))
    except Exception:  # An exception of somebody's own class can fail to be pickled in any way.
        copied = RuntimeError(f"{type(error).__name__}: {error}")
    copied.add_note(f"In a worker process:\n{where}")
    return copied
