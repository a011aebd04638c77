"""Batches: the order of the examples in every epoch."""

import math
from collections.abc import Iterator

import torch
from torch import Tensor

from widemargin.rng import Rng


def updates_per_epoch(rows: int, size: int | None) -> int:
    """The last batch of an epoch may be smaller; a single row, which batch-norm cannot take, joins the one before."""
    if size is None:
        return 1
    if not 1 <= size <= rows:
        raise ValueError(f"batch must be in 1..{rows}, the number of examples, got {size}")
    return rows if size == 1 else math.ceil((rows - 1) / size)


def batches(rows: int, size: int | None, seeds: tuple[int, ...], first: int = 0) -> Iterator[Tensor]:
    """An endless iterator of row numbers, from update `first` on, shuffled in every epoch.  No size: all rows.

    An epoch's order depends only on its number and the seeds, so training can resume anywhere.  With several replicas,
    each seed shuffles its own block of rows, and a batch has rows of every block.
    """
    per_epoch = updates_per_epoch(rows // len(seeds), size)
    update, epoch, orders = first, -1, torch.arange(rows).view(len(seeds), -1)
    while True:
        if size is not None and update // per_epoch != epoch:
            epoch = update // per_epoch
            orders = Rng.seeded(*seeds, purpose=f"order of epoch {epoch}").permutations(rows)
        place = update % per_epoch
        last = size is None or place == per_epoch - 1
        start = place * (size or 0)
        yield orders[:, start : None if last else start + (size or 0)].flatten()
        update += 1
