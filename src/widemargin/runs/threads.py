"""How many threads train quickest: tried for a moment, and written down.

A run that goes on keeps its number: bits depend on it."""

from __future__ import annotations

import copy
import os
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace

import torch

from widemargin.runs.folder import RunFolder
from widemargin.runs.prepare import PreparedRun

THREADS = "threads"
_ROUNDS = 3


@contextmanager
def with_threads(prepared: PreparedRun, folder: RunFolder) -> Iterator[PreparedRun]:
    """The run with its number of threads in its description, and torch set to it for as long as this lasts."""
    before = torch.get_num_threads()
    count = _written(folder) or _set_by_user() or fastest(prepared)
    torch.set_num_threads(count)
    try:
        yield replace(prepared, description={**prepared.description, THREADS: count})
    finally:
        torch.set_num_threads(before)


def fastest(prepared: PreparedRun) -> int:
    """One or all, whichever takes less time for a batch on this computer as busy as it is now; ties go to one."""
    most = torch.get_num_threads()
    if most == 1 or next(prepared.network.parameters()).device.type != "cpu":
        return most
    network = copy.deepcopy(prepared.network).eval()
    inputs, _ = prepared.train[torch.arange(min(prepared.plan.batch or len(prepared.train), len(prepared.train)))]

    def seconds(count: int) -> float:
        torch.set_num_threads(count)
        start = time.perf_counter()
        network.logits(network.encode(inputs)).logsumexp(-1).sum().backward()
        return time.perf_counter() - start

    seconds(1)
    # In turn, so that a busy moment falls on both.
    rounds = [(seconds(1), seconds(most)) for _ in range(_ROUNDS)]
    alone, together = (min(times) for times in zip(*rounds, strict=True))
    return most if together < 0.95 * alone else 1


def _written(folder: RunFolder) -> int | None:
    count = (folder.begun() or {}).get(THREADS)
    return count if isinstance(count, int) and count >= 1 else None


def _set_by_user() -> int | None:
    return torch.get_num_threads() if "OMP_NUM_THREADS" in os.environ else None
