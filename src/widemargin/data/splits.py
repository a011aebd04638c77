"""Stratified splits into training, validation and test rows, decided by a seed."""

from __future__ import annotations

import torch
from torch import Tensor

from widemargin.data.checks import UNLABELLED
from widemargin.data.dataset import Dataset, Splits
from widemargin.rng import Rng
from widemargin.shapes import Labels


def stratified(labels: Labels, count: int, rng: Rng) -> Tensor:
    """`count` row numbers in rising order, every class in proportion to its size (largest remainders)."""
    if not 0 <= count <= len(labels):
        raise ValueError(f"a stratified draw must take 0..{len(labels)} rows, the number there are, got {count}")
    sizes = labels.bincount()
    quotas = sizes * count // len(labels)
    rests = sizes * count % len(labels)
    # A stable sort, so that classes of equal rest are served in their own order on every machine.
    quotas[rests.sort(descending=True, stable=True).indices[: count - int(quotas.sum())]] += 1
    shuffled = rng.permutations(len(labels))[0]
    by_class = shuffled[labels[shuffled].argsort(stable=True)]
    place_in_class = torch.arange(len(labels)) - (sizes.cumsum(0) - sizes)[labels[by_class]]
    return by_class[place_in_class < quotas[labels[by_class]]].sort().values


def held_out(labels: Labels, count: int, rng: Rng) -> tuple[Tensor, Tensor]:
    """The rows that stay and the `count` rows that are held out, both in rising order."""
    held = stratified(labels, count, rng)
    stays = torch.ones(len(labels), dtype=torch.bool)
    stays[held] = False
    return stays.nonzero()[:, 0], held


def published_splits(train: Dataset, test: Dataset, validation: int, fraction: float, seed: int) -> Splits:
    """Validation first, so that it is the same for every fraction; then that fraction of the whole training file.

    So 5 % of CIFAR-10 with 5,000 to validate is 2,500 of the other 45,000.  Fraction 1 is all that validation leaves.
    """
    rest, held = held_out(train.labels, validation, Rng.seeded(seed, purpose="validation"))
    count = len(rest) if fraction == 1 else round(fraction * len(train))
    if not 1 <= count <= len(rest):
        raise ValueError(
            f"the fraction (--fraction) must ask for 1..{len(rest)} of the training images, those that validation "
            f"leaves, got {fraction}, which is {count}: choose less, or 1 for all"
        )
    rows = rest[stratified(train.labels[rest], count, Rng.seeded(seed, purpose="fraction"))]
    return Splits(train.take(rows), train.take(held), test)


def at_most(examples: Dataset, count: int, seed: int) -> Dataset:
    """All of them, or `count` drawn class by class if there are more."""
    return examples if len(examples) <= count else examples.take(rows_at_most(examples, count, seed))


def rows_at_most(examples: Dataset, count: int, seed: int) -> Tensor:
    """The row numbers of `at_most`."""
    if len(examples) <= count:
        return torch.arange(len(examples))
    return stratified(examples.labels, count, Rng.seeded(seed, purpose="test"))


def random_splits(examples: Dataset, validation: float, test: float, seed: int) -> Splits:
    """Fractions of one file, for data without published splits.  Unlabelled rows are all for training."""
    train, held, last = map(examples.take, split_rows(examples.labels, validation, test, seed))
    return Splits(train, held, last)


def split_rows(
    labels: Labels, validation: float | None, test: float | None, seed: int
) -> tuple[Tensor, Tensor, Tensor]:
    """Rows for training, those without a label at their end, for validation and for test: none where that is None."""
    known = (labels != UNLABELLED).nonzero()[:, 0]
    for name, fraction in (("validation", validation), ("test", test)):
        if fraction is None:
            continue
        if not 0 < fraction < 1 or (validation or 0) + (test or 0) >= 1:
            raise ValueError(f"the fractions must be above 0 and leave some to train on, got {name} {fraction}")
        if round(fraction * len(known)) == 0:
            raise ValueError(
                f"the {name} split must have at least one example, got {fraction} of {len(known)}: add examples"
            )
    counts = [round((fraction or 0) * len(known)) for fraction in (validation, test)]
    rest, last = held_out(labels[known], counts[1], Rng.seeded(seed, purpose="test"))
    stays, held = held_out(labels[known][rest], counts[0], Rng.seeded(seed, purpose="validation"))
    unknown = (labels == UNLABELLED).nonzero()[:, 0]
    return torch.cat([known[rest[stays]], unknown]), known[rest[held]], known[last]
