import pytest
import torch

from widemargin import Rng


def draw(kind: str, rng: Rng, rows: int) -> torch.Tensor:
    like = torch.empty(rows, 2)
    return {
        "uniform": lambda: rng.uniform(like),
        "normal": lambda: rng.normal(like),
        "integers": lambda: rng.integers(3, 9, rows),
        "permutations": lambda: rng.permutations(rows).flatten(),
    }[kind]()


KINDS = ["uniform", "normal", "integers", "permutations"]


@pytest.mark.parametrize("kind", KINDS)
def test_a_networks_draws_do_not_depend_on_its_neighbours(kind: str) -> None:
    together = draw(kind, Rng.seeded(4, 5, 6), 30).chunk(3)
    for block, seed in enumerate((4, 5, 6)):
        first_row = 10 * block if kind == "permutations" else 0
        assert torch.equal(together[block] - first_row, draw(kind, Rng.seeded(seed), 10))


@pytest.mark.parametrize("kind", KINDS)
def test_seed_and_purpose_decide_the_stream_and_nothing_else_does(kind: str) -> None:
    before = torch.get_rng_state()
    first = draw(kind, Rng.seeded(0, purpose="weights"), 50)
    assert torch.equal(first, draw(kind, Rng.seeded(0, purpose="weights"), 50))
    assert not torch.equal(first, draw(kind, Rng.seeded(1, purpose="weights"), 50))
    assert not torch.equal(first, draw(kind, Rng.seeded(0, purpose="batches"), 50))
    assert torch.equal(torch.get_rng_state(), before)


def test_permutations_shuffle_each_block_within_itself() -> None:
    orders = Rng.seeded(0, 1).permutations(10)
    assert orders.sort(1).values.tolist() == [list(range(5)), list(range(5, 10))]


def test_integers_have_both_ends() -> None:
    assert Rng.seeded(0).integers(2, 4, 200).unique().tolist() == [2, 3, 4]


def test_bad_seeds_are_refused() -> None:
    with pytest.raises(ValueError, match=r"^Rng.seeded needs at least one seed, got none$"):
        Rng.seeded()
    with pytest.raises(ValueError, match=r"^a seed must be a whole number >= 0, got -1$"):
        Rng.seeded(-1)


@pytest.mark.parametrize("kind", ["uniform", "normal", "integers"])
def test_shares_of_a_draw_are_the_whole_draw(kind: str) -> None:
    shards = [range(3), range(3, 7), range(7, 11)]
    together = torch.cat([draw(kind, Rng.seeded(3).for_shard(shard, 11), len(shard)) for shard in shards])
    assert torch.equal(together, draw(kind, Rng.seeded(3), 11))


def test_a_share_has_a_draw_for_each_of_its_rows() -> None:
    with pytest.raises(ValueError, match=r"^several processes must each draw for the 4 rows of their shard, got 1"):
        Rng.seeded(3).for_shard(range(3, 7), 11).integers(1, 9, 1)
