"""How far is each example from the nearest one of another class?"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import torch
from jaxtyping import Float, Int
from torch import Tensor

from widemargin.data.labelled import Labelled


@dataclass(frozen=True, eq=False)
class Neighbors:
    distance: Float[Tensor, " B"]
    """Euclidean, in the units of the examples: pixels in [0, 1]."""
    row: Int[Tensor, " B"]
    """Who it is."""


def nearest_of_another_class(
    examples: Labelled, rows_at_once: int = 512, tick: Callable[[int], None] = lambda done: None
) -> Neighbors:
    """Exact nearest neighbours, in blocks: memory is `rows_at_once` times the number of examples, whatever the set.

    Blocks find the neighbour by |a|^2 - 2ab + |b|^2, which cancels for near pairs; the distance itself is then taken of
    the difference, in double precision.
    """
    if examples.classes < 2 or len(examples.labels.unique()) < 2:
        raise ValueError("the nearest example of another class needs at least 2 classes, got 1")
    # Pixels are centred: smaller squares, less cancellation.
    everything = examples.points.flatten(1)
    everything -= everything.mean(0)
    squares = (everything**2).sum(1)
    found = torch.empty(len(examples), dtype=torch.int64)
    for start in range(0, len(examples), rows_at_once):
        block = slice(start, start + rows_at_once)
        # The row's own square does not change who is nearest.
        scores = torch.addmm(squares, everything[block], everything.T, alpha=-2)
        scores[examples.labels[block, None] == examples.labels] = torch.inf
        found[block] = scores.argmin(1)
        tick(min(start + rows_at_once, len(examples)))
    distance = torch.cat(
        [
            torch.linalg.vector_norm(everything[rows].double() - everything[found[rows]].double(), dim=1)
            for rows in torch.arange(len(examples)).split(rows_at_once)
        ]
    )
    return Neighbors(distance, found)
