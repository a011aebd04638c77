"""Who does the work, and how far along is it?  Jobs in worker processes, with one bar for each that runs."""

from __future__ import annotations

import multiprocessing
import os
import queue
import threading
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, Protocol

import torch
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn, TimeRemainingColumn

Tick = Callable[[int], None]
"""Called by a job with the number of its steps done so far."""


class Ticks(Protocol):
    """A queue that processes share: which job, and how many of its steps are done."""

    def put(self, tick: tuple[int, int]) -> None: ...
    def get(self, block: bool = True, timeout: float | None = None) -> tuple[int, int]: ...


@dataclass(frozen=True)
class Job:
    """A picklable function of its arguments and a Tick."""

    name: str
    steps: int
    function: Callable[..., None]
    arguments: tuple[Any, ...]


@dataclass(frozen=True)
class Workers:
    """One thread in each process: two busy processes with two threads each slow each other down many times."""

    console: Console
    count: int = os.cpu_count() or 1

    def __post_init__(self) -> None:
        if self.count < 1:
            raise ValueError(f"there must be at least 1 worker, got {self.count}")

    def do(self, jobs: Sequence[Job], title: str) -> None:
        if not jobs:
            return
        columns = (TextColumn("{task.description:<38}"), BarColumn(), MofNCompleteColumn())
        with Progress(*columns, TimeElapsedColumn(), TimeRemainingColumn(), console=self.console) as bars:
            total = bars.add_task(title, total=sum(job.steps for job in jobs))
            if min(self.count, len(jobs)) == 1:
                self._here(jobs, bars, total)
            else:
                self._in_processes(jobs, bars, total)

    def _here(self, jobs: Sequence[Job], bars: Progress, total: Any) -> None:
        done = 0
        for job in jobs:
            bar = bars.add_task(f"  {job.name}", total=job.steps)

            def tick(steps: int, bar: Any = bar, before: int = done) -> None:
                bars.update(bar, completed=steps)
                bars.update(total, completed=before + steps)

            with _one_thread():
                job.function(*job.arguments, tick)
            done += job.steps
            bars.update(total, completed=done)
            bars.remove_task(bar)

    def _in_processes(self, jobs: Sequence[Job], bars: Progress, total: Any) -> None:
        context = multiprocessing.get_context("spawn")
        with (
            context.Manager() as manager,
            ProcessPoolExecutor(self.count, mp_context=context, initializer=_end_with_parent) as pool,
        ):
            ticks: Ticks = manager.Queue()
            running = {pool.submit(_work, job, number, ticks): number for number, job in enumerate(jobs)}
            shown: dict[int, Any] = {}
            done = [0] * len(jobs)
            try:
                while running:
                    for future in [future for future in running if future.done()]:
                        number = running.pop(future)
                        future.result()
                        done[number] = jobs[number].steps
                        if number in shown:
                            bars.remove_task(shown.pop(number))
                    self._drain(ticks, jobs, bars, shown, done, set(running.values()))
                    bars.update(total, completed=sum(done))
            except BaseException:
                pool.shutdown(wait=False, cancel_futures=True)
                raise

    def _drain(
        self,
        ticks: Ticks,
        jobs: Sequence[Job],
        bars: Progress,
        shown: dict[int, Any],
        done: list[int],
        running: set[int],
    ) -> None:
        try:
            number, steps = ticks.get(timeout=0.2)
            while True:
                if number in running:
                    done[number] = steps
                    if number not in shown:
                        shown[number] = bars.add_task(f"  {jobs[number].name}", total=jobs[number].steps)
                    bars.update(shown[number], completed=steps)
                number, steps = ticks.get(block=False)
        except queue.Empty:
            pass


@contextmanager
def _one_thread() -> Iterator[None]:
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        yield
    finally:
        torch.set_num_threads(before)


def _end_with_parent() -> None:
    """A killed command must not leave its workers behind, busy for nobody."""

    def watch() -> None:
        parent = multiprocessing.parent_process()
        assert parent is not None
        parent.join()
        os._exit(1)

    threading.Thread(target=watch, daemon=True).start()


def _work(job: Job, number: int, ticks: Ticks) -> None:
    with _one_thread():
        job.function(*job.arguments, lambda steps: ticks.put((number, steps)))
