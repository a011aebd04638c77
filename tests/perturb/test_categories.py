"""Changes of category: always to another row that could be there, never to something in between."""

from dataclasses import replace
from pathlib import Path

import pytest
import torch

from category_rows import BOTH, BOX, COLUMNS, ONE, changed, curved, is_row, may_become, rows, weighing
from widemargin import recipes
from widemargin.data.columns import Columns
from widemargin.data.local import TableData
from widemargin.data.local_files import Table
from widemargin.networks.mlp import MLPSpec
from widemargin.perturb.apgd import APGD
from widemargin.perturb.balls import OPEN, Linf
from widemargin.perturb.categories import (
    CategoryChanges,
    FromChangedCategories,
    WithCategoryChanges,
    changes_of,
    likeliest,
    ranked,
)
from widemargin.perturb.objectives import Pair
from widemargin.perturb.search import Search
from widemargin.rng import Rng, RowRng
from widemargin.uncertainty.replicas import Replicas

POINTS = rows()
MISSING = POINTS.clone()
MISSING[0, 2:5] = 0
BALL = Linf(0.05, BOX)


def walk() -> Search:
    search = recipes.udp(BALL, 0.02, 3).perturb
    assert isinstance(search, Search)
    return search


@pytest.mark.parametrize("changes", [ONE, BOTH])
def test_all_that_a_row_may_become_and_nothing_twice(changes: CategoryChanges) -> None:
    best = ranked(changes, MISSING, lambda points, rows: points[:, 0], keep=100)
    for row, codes, possible in zip(MISSING, best.codes, best.possible, strict=True):
        made = changes.with_codes(row.expand(int(possible.sum()), -1), codes[possible])
        expected = may_become(row, changes.most)
        assert {tuple(one.tolist()) for one in made} == {tuple(one.tolist()) for one in expected}
        assert len(made) == len(expected)
    assert changes.count == len(may_become(POINTS[0], changes.most))
    assert CategoryChanges(((2,),)).count == 1


def test_categories_are_read_and_written() -> None:
    codes = ONE.codes(MISSING)
    assert codes[0, 0] == -1
    assert torch.equal(ONE.with_codes(torch.full_like(MISSING, 0.5), codes)[:, 2:], MISSING[:, 2:])
    for wrong in (0.5, 2.0):
        broken = POINTS.clone()
        broken[3, 4] = wrong
        with pytest.raises(ValueError, match="2, 3, 4 must be 1 for a row's category and 0 for the others"):
            ONE.codes(broken)
    both = POINTS.clone()
    both[3, 2:5] = 1
    with pytest.raises(ValueError, match="must be 1 for a row's category"):
        ONE.codes(both)
    with pytest.raises(ValueError, match="places up to 6, got 4"):
        ONE.codes(POINTS[:, :4])


@pytest.mark.parametrize("wrong", [{"columns": ()}, {"columns": ((1, 2), (2, 3))}, {"columns": ((1,),), "most": 0}])
def test_wrong_changes_are_refused(wrong: dict[str, object]) -> None:
    with pytest.raises(ValueError, match="CategoryChanges"):
        CategoryChanges(**wrong)  # type: ignore[arg-type]


def test_greedy_is_as_good_as_all_where_columns_add_up() -> None:
    weights = torch.randn(7, generator=torch.Generator().manual_seed(1))
    exact = ranked(BOTH, MISSING, lambda points, rows: points @ weights, keep=3)
    greedy = ranked(BOTH, MISSING, lambda points, rows: points @ weights, keep=3, evaluated=1)
    assert torch.equal(exact.codes[:, 0], greedy.codes[:, 0])
    assert torch.equal(exact.scores[:, 0], greedy.scores[:, 0])
    made = [tuple(code.tolist()) for code in greedy.codes[1]]
    assert len(set(made)) == len(made)


def test_a_row_that_is_far_from_any_change_is_still_attacked_itself() -> None:
    # Class 1 for good unless the category changes, which brings each row nearer to class 0.
    points = torch.tensor([[0.0, 0, 1, 0, 0, 1, 0]])
    best = likeliest(BOTH, weighing(0, 0, 9, 1, 1, 3, 1), points, torch.ones(1, dtype=torch.int64), keep=2)
    assert best.codes.tolist()[0] == [[1, 1], [0, 0]]


def test_an_attack_finds_the_one_category_that_flips_the_class() -> None:
    # Only the third category of the first column makes class 0.
    network, points = weighing(0, 0, 1, 1, -1, 0, 0), rows(30)
    points = points[points[:, 4] == 0]
    labels = torch.ones(len(points), dtype=torch.int64)
    attack = FromChangedCategories(APGD(Linf(0.01, BOX)), ONE)
    moved = attack(network, points, labels, RowRng(0, torch.arange(len(points))))
    assert bool((moved.points[:, 4] == 1).all())
    assert is_row(moved.points)
    assert torch.equal(moved.points[:, :2], points[:, :2])
    assert torch.equal(moved.points[:, 5:], points[:, 5:])
    assert bool((moved.distance == 0).all())
    others = FromChangedCategories(APGD(Linf(0.01, BOX)), CategoryChanges((COLUMNS[1],)))
    assert torch.equal(others(network, points, labels, RowRng(0, torch.arange(len(points)))).points, points)


@pytest.mark.parametrize("changes", [ONE, BOTH])
def test_an_attack_breaks_what_one_of_all_attacks_from_every_row_breaks(changes: CategoryChanges) -> None:
    network, attack, points = curved(), APGD(Linf(0.1, BOX), steps=3), rows(10)
    labels = network(points).argmax(1)
    moved = FromChangedCategories(attack, changes)(network, points, labels, RowRng(0, torch.arange(10)))
    assert is_row(moved.points)
    assert int(changed(points, moved.points).max()) <= changes.most
    assert float((moved.points - points)[:, :2].abs().max()) <= 0.1 + 1e-6
    broken = network(moved.points).argmax(1) != labels
    for row in range(10):
        slow = False
        for start in may_become(points[row], changes.most):
            here, label = start[None], labels[row : row + 1]
            if network(here).argmax(1) == label:
                here = attack(network, here, label, RowRng(0, torch.tensor([row]))).points
            slow |= bool(network(here).argmax(1) != label)
        assert slow == bool(broken[row])
    assert 0 < int(broken.sum()) < 10


@pytest.mark.parametrize("name", ["udp", "pgd", "trades", "vat", "udp-near", "udp-projected"])
@pytest.mark.parametrize("changes", [ONE, BOTH])
def test_a_search_goes_to_the_best_row_first(name: str, changes: CategoryChanges) -> None:
    made = {
        "udp": lambda: recipes.udp(BALL, 0.02, 3),
        "pgd": lambda: recipes.pgd(BALL, 0.02, 3),
        "trades": lambda: recipes.trades(BALL, 0.02, 3, 1.0),
        "vat": lambda: recipes.vat(BALL, 1.0),
        "udp-near": lambda: recipes.udp_near(BALL, 0.02, 3, 0.1),
        "udp-projected": lambda: recipes.udp_projected(BALL),
    }[name]()
    network = curved(1)
    labels = network(POINTS).argmax(1)
    search = WithCategoryChanges(made.perturb, changes)  # type: ignore[arg-type]
    moved = search(network, POINTS, labels, Rng.seeded(0))
    assert is_row(moved.points)
    assert is_row(POINTS + moved.delta)
    torch.testing.assert_close(POINTS + moved.delta, moved.points, rtol=0, atol=1e-6)
    assert int(changed(POINTS, moved.points).max()) <= changes.most
    if changes is BOTH:
        # One after the other need not end at the best of all.
        return
    objective, clean = search.walk.objective, network.logits(POINTS)
    for row in range(len(POINTS)):
        options = torch.stack(may_become(POINTS[row], 1))
        seen = network.logits(options)
        many = (labels[row].expand(len(options)), clean[:, [row] * len(options)])
        values = objective(Pair(many[0], lambda many=many: many[1], lambda seen=seen: seen))  # type: ignore[misc]
        assert torch.equal(options[values.argmax()][2:], moved.points[row, 2:])
    assert bool(changed(POINTS, moved.points).any())


def test_uncertainty_needs_no_label_and_the_network_stays_as_it_is() -> None:
    network = curved(1).train()
    search = WithCategoryChanges(walk(), BOTH)
    assert search.takes_unlabelled
    assert not WithCategoryChanges(recipes.pgd(BALL, 0.02, 3).perturb, ONE).takes_unlabelled  # type: ignore[arg-type]
    unknown = torch.full((len(POINTS),), -1)
    moved = search(network, POINTS, unknown, Rng.seeded(0))
    known = search(network, POINTS, torch.zeros_like(unknown), Rng.seeded(0))
    assert torch.equal(moved.points, known.points)
    assert network.training
    assert all(one.requires_grad and one.grad is None for one in network.parameters())


def test_of_many_changes_the_gradient_chooses_those_that_are_tried() -> None:
    # Of a linear network the loss rises as the gradient says, so that one try is enough.
    network = weighing(0.3, 0.1, 1, -2, 0.5, 1, -1)
    labels = network(POINTS).argmax(1)
    search = WithCategoryChanges(recipes.pgd(BALL, 0.02, 3).perturb, BOTH)  # type: ignore[arg-type]
    whole = search(network, POINTS, labels, Rng.seeded(0)).points
    assert torch.equal(replace(search, tried=1)(network, POINTS, labels, Rng.seeded(0)).points, whole)


def test_replicas_are_each_as_one() -> None:
    both = Replicas([MLPSpec((7, 8, 3)).build(torch.Generator().manual_seed(seed)) for seed in (1, 2)])
    search = WithCategoryChanges(recipes.pgd(BALL, 0.02, 3).perturb, ONE)  # type: ignore[arg-type]
    labels = torch.zeros(len(POINTS), dtype=torch.int64)
    alone = [search(one, POINTS, labels, Rng.seeded(0)) for one in both.split()]
    moved = search(both, torch.cat([POINTS, POINTS]), torch.cat([labels, labels]), Rng.seeded(0, 0))
    torch.testing.assert_close(moved.points, torch.cat([one.points for one in alone]), rtol=0, atol=1e-5)


def test_categories_must_be_held_by_the_box() -> None:
    with pytest.raises(ValueError, match="the box must hold the features of categories fixed, got 3 free"):
        WithCategoryChanges(recipes.pgd(Linf(0.1, OPEN.holding((2,))), 0.02, 3).perturb, ONE)  # type: ignore[arg-type]


def test_a_schema_says_what_may_change(tmp_path: Path) -> None:
    lines = [f"{k % 7},{'abc'[k % 3]},{'xy'[k % 2]},{k % 2}" for k in range(40)]
    (tmp_path / "own.csv").write_text("\n".join(["size,first,second,label", *lines]) + "\n")
    file = Table(str(tmp_path / "own.csv"))
    assert changes_of(None) is None
    assert changes_of(TableData(file).draw().train.schema) is None
    schema = TableData(file, Columns(category_changes=2, fixed=("first",))).draw().train.schema
    assert changes_of(schema) == CategoryChanges(((4, 5),), 1)
    schema = TableData(file, Columns(category_changes=1)).draw().train.schema
    assert changes_of(schema) == CategoryChanges(((1, 2, 3), (4, 5)), 1)
