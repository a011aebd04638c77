from itertools import islice

import pytest
import torch

from widemargin.data.batches import batches, updates_per_epoch


def test_without_a_size_a_batch_is_everything_in_order() -> None:
    for rows in islice(batches(5, None, (0,)), 3):
        assert rows.tolist() == [0, 1, 2, 3, 4]


@pytest.mark.parametrize(
    ("rows", "size", "lengths"),
    [(9, 3, [3, 3, 3]), (11, 3, [3, 3, 3, 2]), (10, 3, [3, 3, 4]), (3, 1, [1, 1, 1]), (2, 2, [2])],
)
def test_a_pass_holds_everything_once_and_the_next_has_another_order(rows: int, size: int, lengths: list[int]) -> None:
    """What is left is a smaller batch; a single row, which batch-norm could not take, joins the one before it."""
    assert updates_per_epoch(rows, size) == len(lengths)
    drawn = list(islice(batches(rows, size, (0,)), 2 * len(lengths)))
    assert [len(batch) for batch in drawn] == 2 * lengths
    first, second = torch.cat(drawn[: len(lengths)]), torch.cat(drawn[len(lengths) :])
    for one_pass in (first, second):
        assert one_pass.sort().values.tolist() == list(range(rows))
    if rows > 3:
        assert not torch.equal(first, second)


def test_networks_abreast_get_what_each_would_get_alone() -> None:
    together = islice(batches(30, 4, (0, 1, 2)), 5)
    alone = zip(*(islice(batches(10, 4, (seed,)), 5) for seed in range(3)), strict=True)
    for rows, parts in zip(together, alone, strict=True):
        assert torch.equal(rows, torch.cat([10 * block + part for block, part in enumerate(parts)]))


@pytest.mark.parametrize("size", [0, -1, 11])
def test_a_batch_needs_at_least_one_point_and_no_more_than_there_are(size: int) -> None:
    with pytest.raises(ValueError, match=rf"^batch must be in 1..10, the number of examples, got {size}$"):
        next(batches(20, size, (0, 1)))


@pytest.mark.parametrize("first", [1, 3, 4, 8])
def test_batches_can_start_anywhere(first: int) -> None:
    whole = list(islice(batches(10, 3, (5,)), 12))
    late = list(islice(batches(10, 3, (5,), first), 12 - first))
    assert all(torch.equal(a, b) for a, b in zip(whole[first:], late, strict=True))
