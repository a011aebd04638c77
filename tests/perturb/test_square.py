import pytest
import torch
from torch import Tensor

from linear_oracle import distances_to, inner_points, linear
from widemargin import L1, L2, OPEN, Linf
from widemargin.perturb.rows import wrong
from widemargin.perturb.square import Square, _share, _two_bumps
from widemargin.rng import RowRng


@pytest.mark.parametrize(("kind", "reach"), [(Linf, 1.05), (L2, 1.6), (L1, 1.6)])
def test_breaks_rows_of_features_well_within_reach(kind: type, reach: float) -> None:
    weights, classify = linear(5)
    inputs, labels = inner_points(classify, 100)
    known = distances_to(weights, inputs, labels, kind)
    ball = kind(float(known.median()), OPEN)
    found = Square(ball, 500)(classify, inputs, labels, RowRng(0, torch.arange(100))).points
    broken = wrong(classify(found), labels)
    assert float(ball.norm(found - inputs).max()) <= ball.radius * (1 + 1e-6)
    assert not bool(broken[known > ball.radius].any())
    assert float(broken[known < ball.radius / reach].float().mean()) > 0.95


def test_finds_what_gradients_hide() -> None:
    """A staircase has no slope; and pixels far from the middle count as well: all corners are reached."""
    weights = torch.zeros(1, 6, 6)
    weights[:, 0, 0] = weights[:, 5, 5] = weights[:, 0, 5] = weights[:, 5, 0] = 1.0

    def classify(images: Tensor) -> Tensor:
        height = ((images * weights).flatten(1).sum(1) * 20).round() / 20
        return torch.stack([torch.full_like(height, 2.35), height], 1)

    images, labels = torch.full((8, 1, 6, 6), 0.5), torch.zeros(8, dtype=torch.long)
    found = Square(Linf(0.1), 500)(classify, images, labels, RowRng(0, torch.arange(8))).points
    assert bool(wrong(classify(found), labels).all())


def test_a_query_that_changes_nothing_is_not_asked() -> None:
    asked = []

    def classify(images: Tensor) -> Tensor:
        asked.append(len(images))
        return torch.stack([torch.ones(len(images)), torch.zeros(len(images))], 1)

    images, labels = torch.full((10, 1, 8, 8), 0.5), torch.zeros(10, dtype=torch.long)
    found = Square(Linf(0.1), 200)(classify, images, labels, RowRng(0, torch.arange(10))).points
    assert torch.equal(found, images)
    assert not found.is_inference()
    # The last fifth of the queries sets single pixels, to what they are as often as not.
    assert sum(asked) < 0.95 * 10 * 201


def test_schedule_and_bumps() -> None:
    assert [_share(query, 5000) for query in (0, 5, 6, 26, 4001, 4999)] == [
        0.8 * 0.5**halvings for halvings in (0, 0, 1, 2, 9, 9)
    ]
    for power in (1, 2):
        for sides in ((7, 7), (1, 9), (1, 1), (1, 2)):
            bumps = _two_bumps(*sides, power, True)
            assert bumps.shape == sides
            assert float(bumps.abs().pow(power).sum()) == pytest.approx(1, abs=1e-6)
