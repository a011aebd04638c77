"""Where the jobs of a study run, in words of the command line."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace

import rich.console

from widemargin.cli.verbs.study import EngineName
from widemargin.ray_tasks import ray_tasks
from widemargin.runs.stop import StopRequest
from widemargin.workers import Workers


@contextmanager
def workers_of(
    engine: EngineName, address: str | None, count: int | None, console: rich.console.Console, stop_request: StopRequest
) -> Iterator[Workers]:
    """By default as many as there are cores: of this computer, or of a Ray cluster."""
    if engine == "processes":
        if address is not None:
            raise ValueError("--address is for --engine ray: leave it out, or give both")
        yield Workers(console, os.cpu_count() or 1 if count is None else count, stop_request)
        return
    # Ray itself lets jobs wait until a core is free.
    workers = Workers(console, sys.maxsize if count is None else count, stop_request)
    with ray_tasks(count, address) as tasks:
        yield replace(workers, engine=tasks)
