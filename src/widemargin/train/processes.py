"""Who else trains the same network?  Several processes that each take their share of every batch."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Protocol

import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.nn.parallel import DistributedDataParallel


class Processes(Protocol):
    @property
    def rank(self) -> int: ...
    @property
    def count(self) -> int: ...
    def wrapped(self, step: nn.Module) -> nn.Module:
        """The step whose gradients are those of the whole batch."""
        ...

    def mean(self, value: Tensor) -> float:
        """Over all processes."""
        ...

    def wait(self) -> None:
        """For all the others."""
        ...


@dataclass(frozen=True)
class Alone:
    rank = 0
    count = 1

    def wrapped(self, step: nn.Module) -> nn.Module:
        return step

    def mean(self, value: Tensor) -> float:
        return value.item()

    def wait(self) -> None:
        return


@dataclass(frozen=True)
class Together:
    """One of several processes that torchrun started; gradients are averaged by DistributedDataParallel.

    On GPUs batch-norm takes its statistics from the whole batch, as one process would; torch has that for GPUs only, so
    on the CPU each process normalises its own share.
    """

    rank: int
    count: int

    def wrapped(self, step: nn.Module) -> nn.Module:
        on_gpu = any(parameter.is_cuda for parameter in step.parameters())
        return DistributedDataParallel(with_whole_batch_norm(step) if on_gpu else step)

    def mean(self, value: Tensor) -> float:
        total = value.detach().clone()
        dist.all_reduce(total)
        return float(total) / self.count

    def wait(self) -> None:
        dist.barrier()


def with_whole_batch_norm(step: nn.Module) -> nn.Module:
    """The same parameters, buffers and names, with SyncBatchNorm wherever there is batch-norm."""
    return nn.SyncBatchNorm.convert_sync_batchnorm(step)  # type: ignore[no-any-return]


ALONE = Alone()


@contextmanager
def as_started(device: torch.device) -> Iterator[Processes]:
    """As torchrun's environment says, or alone."""
    if "TORCHELASTIC_RUN_ID" not in os.environ or int(os.environ["WORLD_SIZE"]) == 1:
        yield ALONE
        return
    dist.init_process_group("nccl" if device.type == "cuda" else "gloo")
    try:
        yield Together(dist.get_rank(), dist.get_world_size())
    finally:
        dist.destroy_process_group()


def own_share(rows: Tensor, processes: Processes) -> Tensor:
    """This process's part of a batch: as many rows as every other's."""
    if len(rows) % processes.count:
        raise ValueError(
            f"a batch must divide among {processes.count} processes, got {len(rows)} examples: choose another --batch"
        )
    return rows.view(processes.count, -1)[processes.rank]
