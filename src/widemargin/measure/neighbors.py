"""Nearest neighbours of another class, in l2, l-infinity and l1: exact, in blocks."""

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
    examples: Dataset,
    batch_size: int = 512,
    on_progress: Callable[[int], None] = lambda done: None,
    rows: Int[Tensor, " B"] | None = None,
) -> Neighbors:
    """Exact Euclidean nearest neighbours of all `rows`, or of these, among all rows.

    Memory is `batch_size` times the number of examples.  Blocks find the neighbour by |a|^2 - 2ab + |b|^2, which
    cancels for near pairs: whatever is as near up to its rounding is compared again by the difference, in double
    precision.
    """
    _check_classes(examples)
    # Pixels fit single precision; the columns of a table may differ a thousandfold.
    flat = examples.points.flatten(1)
    flat = flat if examples.white != 1 else flat.double()
    # Centred: smaller squares, less cancellation.
    flat = flat - flat.mean(0)
    squares = (flat**2).sum(1)
    rounding = 4 * flat.shape[1] * torch.finfo(flat.dtype).eps * float(squares.max())
    distance, neighbor, done = list[Tensor](), list[Tensor](), 0
    for block in _blocks(examples, rows, batch_size):
        # The row's square does not change which is nearest.
        scores = torch.addmm(squares, flat[block], flat.T, alpha=-2)
        scores[examples.labels[block, None] == examples.labels] = torch.inf
        place, other = (scores <= scores.amin(1, keepdim=True) + rounding).nonzero().T
        nearest = _smallest(place, other, _euclidean(flat, block[place], other), len(block))
        distance.append(nearest.distance)
        neighbor.append(nearest.row)
        done += len(block)
        on_progress(done)
    return Neighbors(torch.cat(distance), torch.cat(neighbor))


def nearest_of_another_class_linf(
    examples: Dataset,
    batch_size: int = 128,
    on_progress: Callable[[int], None] = lambda done: None,
    rows: Int[Tensor, " B"] | None = None,
) -> Neighbors:
    """The same in l-infinity.

    A mean over some pixels differs by no more than the pixels do: means of coarse and then of finer blocks rule out
    nearly all pairs of images before any is compared pixel by pixel.
    """
    return _pruned(examples, torch.inf, batch_size, on_progress, rows)


def nearest_of_another_class_l1(
    examples: Dataset,
    batch_size: int = 128,
    on_progress: Callable[[int], None] = lambda done: None,
    rows: Int[Tensor, " B"] | None = None,
) -> Neighbors:
    """The same in l1, in which sums over blocks of pixels are the bounds."""
    return _pruned(examples, 1.0, batch_size, on_progress, rows)


NEAREST = {
    "l2": nearest_of_another_class,
    "linf": nearest_of_another_class_linf,
    "l1": nearest_of_another_class_l1,
}
"""By the name of the norm."""
_FIRST, _PAIRS = 32, 4_096


def _pruned(
    examples: Dataset,
    p: float,
    batch_size: int,
    on_progress: Callable[[int], None],
    rows: Tensor | None,
) -> Neighbors:
    _check_classes(examples)
    levels = [level.flatten(1) for level in _coarse_to_fine(examples.points, p)]
    rounding = _rounding(levels[-1], p) if len(levels) > 1 else 0.0
    distance, neighbor, done = list[Tensor](), list[Tensor](), 0
    for block in _blocks(examples, rows, batch_size):
        # Levels are rounded, and a lower bound must not exceed the distance.
        bound = torch.cdist(levels[0][block], levels[0], p=p) - rounding
        bound[examples.labels[block, None] == examples.labels] = torch.inf
        nearest = bound.min(1) if len(levels) == 1 else _nearest(bound, block, levels, p, rounding)
        distance.append(nearest[0].double())
        neighbor.append(nearest[1])
        done += len(block)
        on_progress(done)
    return Neighbors(torch.cat(distance), torch.cat(neighbor))


def _nearest(bound: Tensor, block: Tensor, levels: list[Tensor], p: float, rounding: float) -> tuple[Tensor, Tensor]:
    """From a lower bound of every distance: pairs in its order, until none can be nearer."""
    tops = bound.topk(min(_FIRST, bound.shape[1]), largest=False)
    known = torch.stack(
        [_norm(levels[-1][rows] - levels[-1][row], p) for row, rows in zip(block, tops.indices, strict=True)]
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
            apart = _norm(level[block[one]] - level[two], p) - (0.0 if level is levels[-1] else rounding)
        for index in (apart < best[one]).nonzero()[:, 0].tolist():
            if apart[index] < best[one[index]]:
                best[one[index]], neighbor[one[index]] = apart[index], two[index]
    return best, neighbor


def _norm(difference: Tensor, p: float) -> Tensor:
    return difference.abs().amax(1) if p == torch.inf else difference.abs().sum(1)


def _rounding(flat: Tensor, p: float) -> float:
    """How much more a bound of an l-infinity or l1 distance may be than the distance, by rounding alone."""
    largest = float(flat.abs().amax() if p == torch.inf else flat.abs().sum(1).amax())
    return 4 * flat.shape[1] * torch.finfo(flat.dtype).eps * largest


def _coarse_to_fine(points: Tensor, p: float) -> list[Tensor]:
    """Images as means (l-infinity) or sums (l1) over 4 x 4, then 2 x 2 pixels, and as they are; tables only as they
    are."""
    sizes = [size for size in (4, 2) if points.ndim == 4 and min(points.shape[2:]) >= size]
    weights = {size: 1.0 if p == torch.inf else size**2 for size in sizes}
    return [*(weights[size] * torch.nn.functional.avg_pool2d(points, size) for size in sizes), points]


def _blocks(examples: Dataset, rows: Tensor | None, batch_size: int) -> tuple[Tensor, ...]:
    return tuple((torch.arange(len(examples)) if rows is None else rows).split(batch_size))


def _euclidean(flat: Tensor, one: Tensor, two: Tensor) -> Tensor:
    """Of pairs, in double precision."""
    pairs = zip(one.split(_PAIRS), two.split(_PAIRS), strict=True)
    return torch.cat([torch.linalg.vector_norm(flat[a].double() - flat[b].double(), dim=1) for a, b in pairs])


def _smallest(place: Tensor, other: Tensor, apart: Tensor, count: int) -> Neighbors:
    """For every place its nearest partner; of several as near the first."""
    distance = torch.full((count,), torch.inf, dtype=apart.dtype).scatter_reduce(0, place, apart, "amin")
    ties = apart == distance[place]
    last = torch.full((count,), torch.iinfo(torch.int64).max)
    return Neighbors(distance, last.scatter_reduce(0, place[ties], other[ties], "amin"))


def _check_classes(examples: Dataset) -> None:
    if examples.classes < 2 or len(examples.labels.unique()) < 2:
        raise ValueError("the nearest example of another class needs at least 2 classes, got 1")
