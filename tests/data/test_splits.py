"""Splits: the published counts, every class with its share, and nothing but the seed decides."""

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as some
from torch import Tensor

from widemargin.data.dataset import Dataset, Origin
from widemargin.data.splits import at_most, held_out, published_splits, random_splits, stratified
from widemargin.rng import Rng


def class_by_class(labels: Tensor, count: int, rng: Rng) -> Tensor:
    order = rng.permutations(len(labels))[0].tolist()
    members = {k: [row for row in order if labels[row] == k] for k in range(int(labels.max()) + 1)}
    exact = {k: len(rows) * count / len(labels) for k, rows in members.items()}
    shares = {k: len(rows) * count // len(labels) for k, rows in members.items()}
    rests = sorted(members, key=lambda k: (-(len(members[k]) * count % len(labels)), k))
    for k in rests[: count - sum(shares.values())]:
        shares[k] += 1
    assert all(abs(shares[k] - exact[k]) < 1 for k in members)
    return torch.tensor(sorted(row for k, rows in members.items() for row in rows[: shares[k]]), dtype=torch.int64)


@given(some.lists(some.integers(0, 5), min_size=1, max_size=60), some.floats(0, 1), some.integers(0, 99))
def test_stratified_agrees_with_class_by_class(drawn: list[int], share: float, seed: int) -> None:
    labels, count = torch.tensor(drawn), round(share * len(drawn))
    rows = stratified(labels, count, Rng.seeded(seed))
    assert len(rows) == count
    assert torch.equal(rows, class_by_class(labels, count, Rng.seeded(seed)))


def test_stratified_takes_no_more_than_there_is() -> None:
    with pytest.raises(ValueError, match=r"0\.\.2 rows"):
        stratified(torch.tensor([0, 1]), 3, Rng.seeded(0))


def test_held_out_and_the_rest_are_everything() -> None:
    rest, held = held_out(torch.arange(100) % 7, 30, Rng.seeded(0))
    assert len(held) == 30
    assert torch.equal(torch.cat([rest, held]).sort().values, torch.arange(100))


@pytest.mark.parametrize(
    ("count", "validation", "fraction", "trained"),
    [
        (60_000, 5_000, 1.0, 55_000),
        (50_000, 5_000, 1.0, 45_000),
        (73_257, 6_257, 1.0, 67_000),
        (50_000, 5_000, 0.05, 2_500),
    ],
)
def test_published_counts(count: int, validation: int, fraction: float, trained: int) -> None:
    parts = published_splits(_numbers(count), _numbers(10), validation, fraction, seed=42)
    assert (len(parts.train), len(parts.validation), len(parts.test)) == (trained, validation, 10)
    seen = torch.cat([parts.train.stored, parts.validation.stored])
    assert len(seen.unique()) == trained + validation
    for part in (parts.train, parts.validation):
        counts = part.labels.bincount()
        assert counts.max() - counts.min() <= 1


def test_the_seed_decides_and_validation_is_the_same_for_every_fraction() -> None:
    def drawn(fraction: float, seed: int) -> list[Tensor]:
        parts = published_splits(_numbers(1000), _numbers(10), 100, fraction, seed)
        return [parts.train.stored, parts.validation.stored]

    assert all(map(torch.equal, drawn(0.05, 42), drawn(0.05, 42)))
    assert not any(map(torch.equal, drawn(0.05, 42), drawn(0.05, 43)))
    assert torch.equal(drawn(0.05, 42)[1], drawn(1.0, 42)[1])


def test_the_low_data_rows_stay_what_they_are() -> None:
    parts = published_splits(_numbers(50_000), _numbers(10), 5_000, 0.05, seed=42)
    assert parts.train.stored[:5, 0].tolist() == [28, 41, 49, 73, 110]
    assert parts.validation.stored[:5, 0].tolist() == [0, 5, 7, 10, 11]


@pytest.mark.parametrize("fraction", [0.95, 1e-9])
def test_a_fraction_that_cannot_be_is_refused(fraction: float) -> None:
    with pytest.raises(ValueError, match=r"1\.\.900 of the training images"):
        published_splits(_numbers(1000), _numbers(10), 100, fraction, seed=0)


def test_at_most() -> None:
    examples = _numbers(100)
    assert at_most(examples, 100, seed=0) is examples
    assert at_most(examples, 30, seed=0).labels.bincount().tolist() == [3] * 10


def test_shared_parts() -> None:
    parts = random_splits(_numbers(200), validation=0.1, test=0.25, seed=1)
    assert [len(part) for part in (parts.train, parts.validation, parts.test)] == [130, 20, 50]
    assert len(torch.cat([parts.train.stored, parts.validation.stored, parts.test.stored]).unique()) == 200


@pytest.mark.parametrize(("validation", "test"), [(0.0, 0.5), (0.5, 0.0), (0.5, 0.5), (-0.1, 0.2), (0.1, 1.2)])
def test_shares_that_leave_a_part_empty_are_refused(validation: float, test: float) -> None:
    with pytest.raises(ValueError, match="the fractions must be above 0"):
        random_splits(_numbers(200), validation, test, seed=1)


def test_shares_of_too_few_examples_are_refused() -> None:
    with pytest.raises(ValueError, match=r"validation split must have at least one example, got 0\.01 of 20"):
        random_splits(_numbers(20), 0.01, 0.5, seed=1)


def test_global_randomness_is_left_alone() -> None:
    before = torch.random.get_rng_state()
    random_splits(_numbers(100), 0.1, 0.1, seed=0)
    assert torch.equal(torch.random.get_rng_state(), before)


def _numbers(count: int) -> Dataset:
    return Dataset(torch.arange(count)[:, None], torch.arange(count) % 10, tuple(range(10)), Origin("made", ""))
