import pytest
import torch

from widemargin.rng import Rng, RowRng

ROWS = torch.arange(2000)


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


def test_a_row_draws_the_same_whoever_is_beside_it() -> None:
    rng = RowRng(3, ROWS).of("start")
    few = torch.tensor([7, 1999, 0])
    for draw in (rng.uniform, rng.normal, rng.signs):
        assert torch.equal(
            draw(3, 4, draw=5)[few], RowRng(3, few).of("start").__getattribute__(draw.__name__)(3, 4, draw=5)
        )
    assert torch.equal(rng.at(few).uniform(2), rng.uniform(2)[few])


@pytest.mark.parametrize(
    "other",
    [RowRng(4, ROWS).of("start"), RowRng(3, ROWS).of("end"), RowRng(3, ROWS), RowRng(3, ROWS + 2000).of("start")],
)
def test_streams_of_rows_are_unrelated(other: RowRng) -> None:
    first, second = RowRng(3, ROWS).of("start").uniform(20).flatten(), other.uniform(20).flatten()
    assert abs(float(torch.corrcoef(torch.stack([first, second]))[0, 1])) < 0.02
    draws = torch.stack([other.uniform(20, draw=draw).flatten() for draw in range(4)])
    assert float((torch.corrcoef(draws) - torch.eye(4)).abs().max()) < 0.02


def test_rows_have_the_right_distributions() -> None:
    rng = RowRng(0, ROWS)
    uniform, normal = rng.uniform(50).double(), rng.normal(50).double()
    counts = torch.histc(uniform, 20, 0, 1)
    # 100,000 draws in 20 bins: standard deviation 69.
    assert float((counts - 5000).abs().max()) < 300
    assert float(uniform.max()) < 1
    assert float(uniform.min()) >= 0
    assert abs(float(normal.mean())) < 0.015
    assert abs(float(normal.std()) - 1) < 0.01
    assert abs(float((normal**4).mean()) - 3) < 0.1
    assert sorted(rng.integers(5, 50).unique().tolist()) == [0, 1, 2, 3, 4]
    assert abs(float(rng.signs(50).mean())) < 0.015
    neighbours = torch.corrcoef(torch.stack([uniform[:-1].flatten(), uniform[1:].flatten()]))[0, 1]
    along = torch.corrcoef(torch.stack([uniform[:, :-1].flatten(), uniform[:, 1:].flatten()]))[0, 1]
    assert abs(float(neighbours)) < 0.02
    assert abs(float(along)) < 0.02


def test_rows_drawn_from_a_generator_follow_it() -> None:
    first, again, other = (Rng.seeded(seed).by_row(5).uniform(3) for seed in (1, 1, 2))
    assert torch.equal(first, again)
    assert not torch.equal(first, other)
    part = Rng.seeded(1).for_shard(range(2, 5), 5).by_row(3).uniform(3)
    assert torch.equal(part, first[2:]), "a process draws for its rows what one would"


def test_generators_of_rows_draw_the_same_whoever_is_beside_them() -> None:
    rng, like = RowRng(3, torch.tensor([4, 7, 9]), "0"), torch.empty(3, 2)
    drawn = rng.by_block().normal(like)
    assert torch.equal(drawn, Rng.seeded(4, 7, 9, purpose="attack 3 0").normal(like))
    assert torch.equal(drawn[1:2], rng.at(torch.tensor([1])).by_block().normal(like[:1]))


def test_copies_of_a_row_draw_apart_and_the_0th_as_the_row() -> None:
    rng, copy = RowRng(3, ROWS), torch.ones_like(ROWS)
    assert torch.equal(rng.apart(0 * copy).uniform(20), rng.uniform(20))
    draws = torch.stack([rng.apart(number * copy).uniform(20).flatten() for number in range(4)])
    assert float((torch.corrcoef(draws) - torch.eye(4)).abs().max()) < 0.02
