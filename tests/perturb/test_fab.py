import pytest
import torch
from torch import Tensor

from linear_oracle import distances_to, inner_points, linear
from widemargin import L1, L2, OPEN, Box, Linf
from widemargin.perturb.balls import Ball
from widemargin.perturb.fab import FAB, ShortestFAB
from widemargin.perturb.rows import wrong
from widemargin.rng import RowRng

NORMS = (Linf(1.0, OPEN), L2(1.0, OPEN), L1(1.0, OPEN))
PER_FEATURE = Box(low=(0.15, -1.0, 0.1) * 4, high=(0.85, 0.9, 2.0) * 4)


@pytest.mark.parametrize("norm", NORMS, ids=repr)
def test_the_distance_of_a_linear_model(norm: Ball) -> None:
    weights, classify = linear(5)
    inputs, labels = inner_points(classify, 200)
    found = ShortestFAB(norm, targets=4, steps=20)(classify, inputs, labels, RowRng(0, torch.arange(200))).points
    assert bool(wrong(classify(found), labels).all())
    ratio = norm.norm(found - inputs) / distances_to(weights, inputs, labels, type(norm))
    assert float(((ratio > 0.999) & (ratio < 1.01)).float().mean()) >= 0.99


@pytest.mark.parametrize("kind", [Linf, L2, L1])
def test_the_distance_in_a_box_of_each_feature(kind: type) -> None:
    weights, classify = linear(2)
    inputs, labels = inner_points(classify, 200)
    ball = kind(1.0, PER_FEATURE)
    low, high = (torch.tensor(bound) for bound in (PER_FEATURE.low, PER_FEATURE.high))
    slope = weights.T[1 - labels] - weights.T[labels]
    lead = -(inputs * slope).sum(1)
    can = (slope.abs() * torch.where(slope > 0, high - inputs, inputs - low)).sum(1) > 1.02 * lead
    inputs, labels = inputs[can], labels[can]
    known = distances_to(weights, inputs, labels, kind, PER_FEATURE)
    found = ShortestFAB(ball, targets=1)(classify, inputs, labels, RowRng(0, torch.arange(len(labels)))).points
    PER_FEATURE.check(found)
    ratio = ball.norm(found - inputs) / known
    assert len(labels) > 50
    assert float(((ratio > 0.999) & (ratio < 1.01)).float().mean()) >= 0.99


@pytest.mark.parametrize("kind", [Linf, L2, L1])
def test_within_a_ball(kind: type) -> None:
    weights, classify = linear(5)
    inputs, labels = inner_points(classify, 200)
    known = distances_to(weights, inputs, labels, kind)
    ball = kind(float(known.median()), OPEN)
    found = FAB(ball, targets=4)(classify, inputs, labels, RowRng(0, torch.arange(200))).points
    broken = wrong(classify(found), labels)
    assert float(ball.norm(found - inputs).max()) <= ball.radius * (1 + 1e-6)
    assert torch.equal(found[~broken], inputs[~broken])
    assert not bool(broken[known > 1.01 * ball.radius].any())
    assert float(broken[known < 0.99 * ball.radius].float().mean()) >= 0.99


def test_none_found_is_the_point_itself() -> None:
    inputs, labels = torch.rand(5, 3), torch.zeros(5, dtype=torch.long)
    found = ShortestFAB(Linf(0.1), 1, 5)(
        lambda points: torch.stack([points.sum(1) + 9, points.sum(1)], 1), inputs, labels, RowRng(0, torch.arange(5))
    )
    assert torch.equal(found.points, inputs)


def test_restarts_never_find_farther() -> None:
    rng = torch.Generator().manual_seed(0)
    first, second = torch.randn(6, 30, generator=rng), torch.randn(30, 3, generator=rng)

    def classify(points: torch.Tensor) -> torch.Tensor:
        return (points @ first).sin() @ second

    inputs = torch.rand(40, 6, generator=rng)
    labels, rng = classify(inputs).argmax(1), RowRng(0, torch.arange(40))
    one, three = (
        L2(1).norm(ShortestFAB(L2(1), 2, 15, n)(classify, inputs, labels, rng).points - inputs) for n in (1, 3)
    )
    both = (one > 0) & (three > 0)
    assert float((three / one)[both].max()) < 1.01
    assert float((three / one)[both].min()) < 0.99


@pytest.mark.parametrize("norm", [Linf, L2, L1])
def test_where_the_box_ends_before_the_boundary_it_still_asks_for_numbers(norm: type[Ball]) -> None:
    # One feature has no slope, and all the room there is does not reach the boundary.
    weights = torch.tensor([[1.0, 0.5, 0.0], [0.0, 0.0, 0.0]])

    def classify(points: Tensor) -> Tensor:
        assert bool(points.isfinite().all())
        return points @ weights.T + torch.tensor([5.0, 0.0])

    inputs, labels = torch.rand(4, 3), torch.zeros(4, dtype=torch.long)
    found = FAB(norm(0.5), targets=1, steps=5)(classify, inputs, labels, RowRng(0, torch.arange(4))).points
    assert torch.equal(found, inputs)


def pocket(points: Tensor) -> Tensor:
    """Two classes in the plane: the second is right of 0.5, and in a pocket around (0.3, 0) that no slope tells of."""
    hidden = (points - torch.tensor([0.3, 0.0])).norm(dim=1) < 0.05
    lead = torch.where(hidden, 0.1, points[:, 0] - 0.5)
    return torch.stack([torch.zeros_like(lead), lead], 1)


def test_the_way_to_what_is_found_outside_is_looked_at_where_it_leaves_the_ball() -> None:
    inputs, labels = torch.zeros(1, 2), torch.zeros(1, dtype=torch.long)
    ball, rng = L2(0.3, OPEN), RowRng(0, torch.arange(1))
    found = FAB(ball, targets=1, steps=3)(pocket, inputs, labels, rng).points
    assert bool(wrong(pocket(found), labels).all())
    assert 0.299 < float(ball.norm(found)) <= ball.radius
    # This ball ends where the way is right.
    assert torch.equal(FAB(L2(0.4, OPEN), targets=1, steps=3)(pocket, inputs, labels, rng).points, inputs)
