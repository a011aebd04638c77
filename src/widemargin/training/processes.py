"""Who else trains the same network?  Several processes that each take their shard of every batch."""

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
    """These rows of a batch of `whole` rows, which so many processes have among them.

    Gradients are averaged over the processes, so that what a row adds to the loss must be multiplied by `among`.
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
        """The step whose gradients are those of the whole batch."""
        ...

    def gathered(self, values: Tensor, shard: Shard) -> Tensor:
        """Those of the whole batch, from what each process has for its shard."""
        ...

    def mean(self, value: Tensor) -> float:
        """Over all processes."""
        ...

    def any(self, flag: bool) -> bool:
        """Of the flags of all processes, the same answer in each."""
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
        # Shares differ in length, so each fills its own place and the rest is 0.
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
    """As torchrun's environment says, or alone."""
    if "TORCHELASTIC_RUN_ID" not in os.environ or int(os.environ["WORLD_SIZE"]) == 1:
        yield ALONE
        return
    threading.Thread(target=_end_after, args=(os.getppid(),), daemon=True).start()
    dist.init_process_group("nccl" if device.type == "cuda" else "gloo")
    try:
        yield Together(dist.get_rank(), dist.get_world_size(), device)
    finally:
        dist.destroy_process_group()


def _end_after(launcher: int) -> None:
    """The processes of a killed torchrun would go on without it, and keep others from the run's folder."""
    while os.getppid() == launcher:
        time.sleep(1)
    os._exit(1)


def local_shard(rows: int, processes: Processes) -> Shard:
    """This process's part of a batch of so many rows: as many as every other's, give or take one.

    A shard needs two rows, as batch-norm does; a batch that is too small for that is done whole by everyone.
    """
    if rows < 2 * processes.count:
        return Shard(range(rows), rows)
    first, stop = (rank * rows // processes.count for rank in (processes.rank, processes.rank + 1))
    return Shard(range(first, stop), rows, processes.count)
