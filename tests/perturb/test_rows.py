"""Doing several targets of a point side by side changes nothing but the time."""

from dataclasses import replace

import pytest
import torch

from linear_oracle import inner_points
from widemargin import L1, L2, OPEN, Linf
from widemargin.perturb.apgd import TargetedAPGD
from widemargin.perturb.attack import Attack, Classifier
from widemargin.perturb.balls import Ball
from widemargin.perturb.fab import FAB, ShortestFAB
from widemargin.perturb.rows import at_once, turns_at_once, wrong
from widemargin.rng import RowRng


def smooth(classes: int = 6) -> Classifier:
    """Curved boundaries; row by row in double precision, so that no batch decides how sums are rounded."""
    rng = torch.Generator().manual_seed(3)
    into, out = (torch.randn(a, b, generator=rng).double() for a, b in ((12, 20), (20, classes)))

    def classify(points: torch.Tensor) -> torch.Tensor:
        hidden = (points.double()[:, :, None] * into).sum(1).tanh()
        return (hidden[:, :, None] * out).sum(1)

    return classify


ATTACKS = [
    TargetedAPGD(Linf(0.1, OPEN), 5, 20),
    TargetedAPGD(L1(0.5, OPEN), 5, 20),
    FAB(L2(0.15, OPEN), 5, 10),
    FAB(Linf(0.05, OPEN), 5, 10, restarts=2),
    ShortestFAB(L2(0.3, OPEN), 5, 10, restarts=2),
]


@pytest.mark.parametrize("attack", ATTACKS, ids=repr)
def test_targets_side_by_side_find_what_they_find_in_turn(attack: TargetedAPGD | FAB | ShortestFAB) -> None:
    classify = smooth()
    inputs, labels = inner_points(classify, 30)
    inputs, rng = inputs.double(), RowRng(0, torch.arange(30))
    found = [replace(attack, rows_at_once=rows)(classify, inputs, labels, rng).points for rows in (1, 60, 10_000)]
    broken = wrong(classify(found[0]), labels)
    assert 3 < int(broken.sum()) < 30 or isinstance(attack, ShortestFAB)
    torch.testing.assert_close(found[1], found[0], rtol=0, atol=1e-12)
    torch.testing.assert_close(found[2], found[0], rtol=0, atol=1e-12)


def test_how_many_at_once() -> None:
    assert [at_once(rows, 9, most=256) for rows in (0, 1, 50, 128, 256, 1000)] == [9, 9, 5, 2, 1, 1]


def test_the_first_turn_is_taken_alone() -> None:
    assert [turns_at_once(50, turn, 9, most=256) for turn in (0, 1, 5, 8)] == [1, 5, 4, 1]


@pytest.mark.parametrize("ball", [Linf(0.5, OPEN), L2(2.0, OPEN), L1(6.0, OPEN)], ids=repr)
def test_nobody_is_asked_about_nothing_or_about_too_many(ball: Ball) -> None:
    """In balls that break everybody, and with a bound on the rows of a call."""
    classify, sizes = smooth(), set[int]()

    def counting(points: torch.Tensor) -> torch.Tensor:
        sizes.add(len(points))
        return classify(points)

    inputs, labels = inner_points(classify, 12)
    attacks: list[Attack] = [TargetedAPGD(ball, 5, 10), FAB(ball, 5, 10), FAB(ball, 5, 10, restarts=2)]
    for attack in attacks:
        found = replace(attack, rows_at_once=12)(counting, inputs.double(), labels, RowRng(0, torch.arange(12))).points  # type: ignore[type-var]
        assert int(wrong(classify(found), labels).sum()) >= 10
    assert min(sizes) > 0
    assert max(sizes) <= 12
