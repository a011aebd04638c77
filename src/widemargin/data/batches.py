"""In which order do examples come?"""

from collections.abc import Iterator

import torch
from torch import Tensor

from widemargin.rng import Rng


def updates_per_epoch(rows: int, size: int | None) -> int:
    """What does not fill a batch is left out of this epoch."""
    if size is not None and not 1 <= size <= rows:
        raise ValueError(f"the batch size must be in 1..{rows}, the number of examples, got {size}")
    return 1 if size is None else rows // size


def batches(rows: int, size: int | None, seeds: tuple[int, ...], first: int = 0) -> Iterator[Tensor]:
    """Row numbers for ever, from update `first` on: every epoch in an order of its own.  No size: all rows.

    An epoch's order follows from its number, so training can start in the middle.  With several networks abreast, each
    seed decides for its own block of rows, and a batch has `size` rows of every block.
    """
    per_epoch = updates_per_epoch(rows // len(seeds), size)
    update, epoch, orders = first, -1, torch.arange(rows).view(len(seeds), -1)
    while True:
        if size is not None and update // per_epoch != epoch:
            epoch = update // per_epoch
            orders = Rng.seeded(*seeds, purpose=f"order of epoch {epoch}").permutations(rows)
        start = update % per_epoch * (size or 0)
        yield orders[:, start : start + size if size else None].flatten()
        update += 1
