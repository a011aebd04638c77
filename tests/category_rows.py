"""Rows with two numbers and two columns of categories, and what they may become, one by one."""

from itertools import product

import torch
from torch import Tensor, nn

from widemargin.data.dataset import Dataset
from widemargin.perturb.balls import OPEN
from widemargin.perturb.categories import CategoryChanges
from widemargin.uncertainty.cuts import at_input
from widemargin.uncertainty.single import Single

COLUMNS = ((2, 3, 4), (5, 6))
BOX = OPEN.holding((2, 3, 4, 5, 6))
ONE, BOTH = CategoryChanges(COLUMNS), CategoryChanges(COLUMNS, 2)


def rows(count: int = 12, seed: int = 0) -> Tensor:
    draws = torch.Generator().manual_seed(seed)
    points = torch.zeros(count, 7)
    points[:, :2] = torch.randn(count, 2, generator=draws)
    for column in COLUMNS:
        chosen = torch.randint(len(column), (count,), generator=draws)
        points[torch.arange(count), torch.tensor(column)[chosen]] = 1
    return points


def may_become(row: Tensor, most: int) -> list[Tensor]:
    """The slow, obvious twin of an enumeration; a row without a category keeps none."""
    options = [[None] if row[list(column)].sum() == 0 else list(column) for column in COLUMNS]
    found = []
    for chosen in product(*options):
        other = row.clone()
        for column, place in zip(COLUMNS, chosen, strict=True):
            if place is not None:
                other[list(column)] = 0
                other[place] = 1
        if sum(bool((other[list(c)] != row[list(c)]).any()) for c in COLUMNS) <= most:
            found.append(other)
    return found


def is_row(points: Tensor) -> bool:
    """Whether each column has one category, or none."""
    parts = [points[:, list(column)] for column in COLUMNS]
    return all(bool(((part == 0) | (part == 1)).all() and (part.sum(1) <= 1).all()) for part in parts)


def changed(points: Tensor, others: Tensor) -> Tensor:
    """How many columns differ, by row."""
    return sum(((points[:, list(c)] != others[:, list(c)]).any(1).long() for c in COLUMNS), torch.zeros(len(points)))


def weighing(*weights: float) -> Single:
    """A linear network: class 1 if these weights of the features add up to more than 0."""
    linear = nn.Linear(7, 2, bias=False)
    with torch.no_grad():
        linear.weight.copy_(torch.stack([-torch.tensor(weights) / 2, torch.tensor(weights) / 2]))
    return Single(at_input(linear))


def curved(seed: int = 0) -> Single:
    torch.manual_seed(seed)
    return Single(at_input(nn.Sequential(nn.Linear(7, 12), nn.ReLU(), nn.Linear(12, 3))))


def labelled(network: Single, points: Tensor) -> Dataset:
    """All classified right."""
    with torch.no_grad():
        return Dataset(points, network(points).argmax(1), (0, 1, 2)[: network(points).shape[1]])
