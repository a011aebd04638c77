"""Distributed training: several processes that each take a shard of every batch."""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Protocol

import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.nn.parallel import DistributedDataParallel

from widemargin.rng import Rng


@dataclass(frozen=True)
class Shard:
    """These rows of a batch of `whole` rows, which is split among `among` processes.

    Gradients are averaged over the processes, so a row's term of the loss must be multiplied by `among`.
    """

    rows: range
    whole: int
    among: int = 1

    def of(self, batch: Tensor) -> Tensor:
        return batch[self.rows.start : self.rows.stop]

    def draws(self, rng: Rng) -> Rng:
        return rng if self.among == 1 else rng.for_shard(self.rows, self.whole)

    @property
    def weight(self) -> float:
        """Of the mean over its rows."""
        return self.among * len(self.rows) / self.whole


class Processes(Protocol):
    @property
    def rank(self) -> int: ...
    @property
    def count(self) -> int: ...
    def wrapped(self, step: nn.Module) -> nn.Module:
        """The step with the gradients of the whole batch."""
        ...

    def gathered(self, values: Tensor, shard: Shard) -> Tensor:
        """The values of the whole batch, from those of every process's shard."""
        ...

    def mean(self, value: Tensor) -> float:
        """Over all processes."""
        ...

    def any(self, flag: bool) -> bool:
        """Whether the flag of any process is set; the same in all."""
        ...

    def wait(self) -> None:
        """For all other processes."""
        ...


@dataclass(frozen=True)
class Alone:
    rank = 0
    count = 1

    def wrapped(self, step: nn.Module) -> nn.Module:
        return step

    def gathered(self, values: Tensor, shard: Shard) -> Tensor:
        return values

    def mean(self, value: Tensor) -> float:
        return value.item()

    def any(self, flag: bool) -> bool:
        return flag

    def wait(self) -> None:
        return


@dataclass(frozen=True)
class Together:
    """One of several processes that torchrun started; gradients are averaged by DistributedDataParallel.

    On GPUs batch-norm takes its statistics from the whole batch, as one process would; torch has that for GPUs only, so
    on the CPU each process normalises its own shard.
    """

    rank: int
    count: int
    device: torch.device | str = "cpu"

    def wrapped(self, step: nn.Module) -> nn.Module:
        on_gpu = any(parameter.is_cuda for parameter in step.parameters())
        return DistributedDataParallel(with_whole_batch_norm(step) if on_gpu else step)

    def gathered(self, values: Tensor, shard: Shard) -> Tensor:
        if shard.among == 1:
            return values
        # Shards differ in length: each fills its rows, the rest is 0.
        whole = values.new_zeros(shard.whole)
        shard.of(whole).copy_(values.detach())
        dist.all_reduce(whole)
        return whole

    def mean(self, value: Tensor) -> float:
        total = value.detach().clone()
        dist.all_reduce(total)
        return float(total) / self.count

    def any(self, flag: bool) -> bool:
        flags = torch.tensor([float(flag)], device=self.device)
        dist.all_reduce(flags, op=dist.ReduceOp.MAX)
        return bool(flags.item())

    def wait(self) -> None:
        dist.barrier()


def with_whole_batch_norm(step: nn.Module) -> nn.Module:
    """The same parameters, buffers and names, with SyncBatchNorm wherever there is batch-norm."""
    return nn.SyncBatchNorm.convert_sync_batchnorm(step)  # type: ignore[no-any-return]


ALONE = Alone()


@contextmanager
def process_group(device: torch.device) -> Iterator[Processes]:
    """The processes that torchrun started, or this one alone."""
    if "TORCHELASTIC_RUN_ID" not in os.environ or int(os.environ["WORLD_SIZE"]) == 1:
        yield ALONE
        return
    threading.Thread(target=_end_after, args=(os.getppid(),), daemon=True).start()
    store, rank, count = next(dist.rendezvous("env://"))  # type: ignore[attr-defined]
    # The launcher's store outlives a killed worker: those that are started again must not read where it listened.
    attempt = f"attempt {os.environ['TORCHELASTIC_RESTART_COUNT']}"
    ours = dist.PrefixStore(attempt, store)  # type: ignore[attr-defined]
    dist.init_process_group("nccl" if device.type == "cuda" else "gloo", store=ours, rank=rank, world_size=count)
    try:
        yield Together(dist.get_rank(), dist.get_world_size(), device)
    finally:
        dist.destroy_process_group()


def _end_after(launcher: int) -> None:
    """Exit with the launcher: the processes of a killed torchrun would otherwise keep the run's folder locked."""
    while os.getppid() == launcher:
        time.sleep(1)
    os._exit(1)


def local_shard(rows: int, processes: Processes) -> Shard:
    """This process's shard of a batch of so many rows; shards differ by one row at most.

    A shard needs two rows, as batch-norm does; a batch that is too small for that is computed whole by every process.
    """
    if rows < 2 * processes.count:
        return Shard(range(rows), rows)
    first, stop = (rank * rows // processes.count for rank in (processes.rank, processes.rank + 1))
    return Shard(range(first, stop), rows, processes.count)
