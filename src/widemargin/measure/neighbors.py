"""Nearest neighbours of another class, in l2 and l-infinity."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import torch
from jaxtyping import Float, Int
from torch import Tensor

from widemargin.data.dataset import Dataset


@dataclass(frozen=True, eq=False)
class Neighbors:
    distance: Float[Tensor, " B"]
    """In the units of the examples: pixels in [0, 1]."""
    row: Int[Tensor, " B"]
    """Of the nearest neighbour."""


def nearest_of_another_class(
    examples: Dataset, batch_size: int = 512, on_progress: Callable[[int], None] = lambda done: None
) -> Neighbors:
    """Exact Euclidean nearest neighbours, in blocks: memory is `batch_size` times the number of examples.

    Blocks find the neighbour by |a|^2 - 2ab + |b|^2, which cancels for near pairs; the distance itself is then taken of
    the difference, in double precision.
    """
    _check_classes(examples)
    # Pixels are centred: smaller squares, less cancellation.
    everything = examples.points.flatten(1)
    everything -= everything.mean(0)
    squares = (everything**2).sum(1)
    nearest = torch.empty(len(examples), dtype=torch.int64)
    for start in range(0, len(examples), batch_size):
        block = slice(start, start + batch_size)
        # The row's own square does not change which is nearest.
        scores = torch.addmm(squares, everything[block], everything.T, alpha=-2)
        scores[examples.labels[block, None] == examples.labels] = torch.inf
        nearest[block] = scores.argmin(1)
        on_progress(min(start + batch_size, len(examples)))
    distance = torch.cat(
        [
            torch.linalg.vector_norm(everything[rows].double() - everything[nearest[rows]].double(), dim=1)
            for rows in torch.arange(len(examples)).split(batch_size)
        ]
    )
    return Neighbors(distance, nearest)


def nearest_of_another_class_linf(
    examples: Dataset, batch_size: int = 128, on_progress: Callable[[int], None] = lambda done: None
) -> Neighbors:
    """Exact nearest neighbours in l-infinity, in blocks.

    A mean over some pixels differs by no more than the pixels do: means of coarse and then of finer blocks rule out
    nearly all pairs of images before any is compared pixel by pixel.
    """
    _check_classes(examples)
    levels = [level.flatten(1) for level in _coarse_to_fine(examples.points)]
    distance, neighbor = torch.empty(len(examples)), torch.empty(len(examples), dtype=torch.int64)
    for start in range(0, len(examples), batch_size):
        block = torch.arange(start, min(start + batch_size, len(examples)))
        # Means are rounded, and a lower bound must not exceed the distance.
        bound = torch.cdist(levels[0][block], levels[0], p=torch.inf) - _ROUNDING
        bound[examples.labels[block, None] == examples.labels] = torch.inf
        distance[block], neighbor[block] = _nearest(bound, block, levels)
        on_progress(int(block[-1]) + 1)
    return Neighbors(distance.double(), neighbor)


_FIRST, _PAIRS, _ROUNDING = 32, 4_096, 1e-5


def _nearest(bound: Tensor, block: Tensor, levels: list[Tensor]) -> tuple[Tensor, Tensor]:
    """From a lower bound of every distance: pairs in its order, until none can be nearer."""
    tops = bound.topk(min(_FIRST, bound.shape[1]), largest=False)
    known = torch.stack(
        [(levels[-1][rows] - levels[-1][row]).abs().amax(1) for row, rows in zip(block, tops.indices, strict=True)]
    )
    # Where fewer are of another class, the rest of the first are of the same.
    known[tops.values == torch.inf] = torch.inf
    best, place = known.min(1)
    neighbor = tops.indices.gather(1, place[:, None])[:, 0]
    row, other = (bound < best[:, None]).nonzero().T
    order = bound[row, other].argsort()
    for pairs in order.split(_PAIRS):
        one, two = row[pairs], other[pairs]
        apart = bound[one, two]
        for level in levels[1:]:
            near = apart < best[one]
            one, two = one[near], two[near]
            apart = (level[block[one]] - level[two]).abs().amax(1) - (0.0 if level is levels[-1] else _ROUNDING)
        for index in (apart < best[one]).nonzero()[:, 0].tolist():
            if apart[index] < best[one[index]]:
                best[one[index]], neighbor[one[index]] = apart[index], two[index]
    return best, neighbor


def _coarse_to_fine(points: Tensor) -> list[Tensor]:
    """Images as means over 4 x 4, then 2 x 2 pixels, and as they are; tables only as they are."""
    sizes = [size for size in (4, 2) if points.ndim == 4 and min(points.shape[2:]) >= size]
    means = [torch.nn.functional.avg_pool2d(points, size) for size in sizes]
    return [*(means or [points]), points]


def _check_classes(examples: Dataset) -> None:
    if examples.classes < 2 or len(examples.labels.unique()) < 2:
        raise ValueError("the nearest example of another class needs at least 2 classes, got 1")
