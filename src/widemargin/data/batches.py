"""In which order do points come?"""

from collections.abc import Iterator

import torch
from torch import Tensor

from widemargin.rng import Rng


def batches(rows: int, size: int | None, rng: Rng) -> Iterator[Tensor]:
    """Row numbers, for ever: every pass shuffled anew, what does not fill a batch left out.  No size: all rows.

    With several networks abreast a batch has `size` rows of each one's own block, one block after the other.
    """
    share = rows // len(rng.generators)
    if size is not None and not 1 <= size <= share:
        raise ValueError(f"the batch size must be in 1..{share}, the number of points, got {size}")
    if size is None:
        everything = torch.arange(rows, device=rng.generators[0].device)
        while True:
            yield everything
    while True:
        orders = rng.permutations(rows)
        for first in range(0, share - size + 1, size):
            yield orders[:, first : first + size].flatten()
