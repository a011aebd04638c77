"""Processes that audit one network together: they share nothing but the folder, and wait for one another."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import timedelta
from typing import Protocol

import torch.distributed as dist

from widemargin.training.processes import Processes

LONGEST_WAIT = timedelta(days=30)


class Shares(Protocol):
    @property
    def rank(self) -> int: ...
    @property
    def count(self) -> int: ...
    def wait(self) -> None:
        """For all the others."""
        ...


@dataclass(frozen=True, eq=False)
class Patient:
    """Half an hour, after which torch gives up on a process, may be less than one chunk of a large network takes."""

    rank: int
    count: int
    group: dist.ProcessGroup

    def wait(self) -> None:
        dist.barrier(self.group)


def patient(processes: Processes) -> Shares:
    """The same processes; all of them must call this together."""
    if processes.count == 1:
        return processes
    # Nothing but a wait is asked of it, so gloo will do on GPUs, too.
    group = dist.new_group(backend="gloo", timeout=LONGEST_WAIT)
    assert isinstance(group, dist.ProcessGroup)
    return Patient(processes.rank, processes.count, group)
