from dataclasses import replace

import pytest
import torch

from linear_oracle import distances_to, inner_points, linear
from widemargin import L1, L2, OPEN, Linf
from widemargin.perturb.apgd import APGD, Climb, TargetedAPGD, _checks
from widemargin.perturb.balls import Ball
from widemargin.perturb.objectives import margin_loss, targeted_dlr_loss
from widemargin.perturb.rows import wrong
from widemargin.rng import RowRng

NORMS = (Linf(1.0, OPEN), L2(1.0, OPEN), L1(1.0, OPEN))


@pytest.mark.parametrize("norm", NORMS, ids=repr)
@pytest.mark.parametrize("which", ["ce", "margin", "targeted"])
def test_breaks_exactly_what_is_within_reach_of_a_linear_model(norm: Ball, which: str) -> None:
    # Untargeted with two classes: with more, the highest loss need not be where the nearest boundary is.
    weights, classify = linear(5 if which == "targeted" else 2)
    inputs, labels = inner_points(classify, 200)
    known = distances_to(weights, inputs, labels, type(norm))
    ball = replace(norm, radius=float(known.median()))  # type: ignore[type-var]
    attack = {"ce": APGD(ball), "margin": APGD(ball, margin_loss), "targeted": TargetedAPGD(ball, 4)}[which]
    found = attack(classify, inputs, labels, RowRng(0, torch.arange(200))).points
    broken = wrong(classify(found), labels)
    assert float(ball.norm(found - inputs).max()) <= ball.radius * (1 + 1e-6)
    assert not bool(broken[known > 1.01 * ball.radius].any())
    assert bool(broken[known < 0.99 * ball.radius].all())


def test_errors_are_a_sentence() -> None:
    _, classify = linear(3)
    inputs, labels = inner_points(classify, 4)
    rng = RowRng(0, torch.arange(4))
    with pytest.raises(ValueError, match="at least 4 classes, got 3"):
        TargetedAPGD(Linf(0.1), 2)(classify, inputs, labels, rng)
    with pytest.raises(ValueError, match="at most 2 targets, got 9"):
        TargetedAPGD(Linf(0.1))(classify, inputs, labels, rng)
    with pytest.raises(ValueError, match=r"APGD\.steps must be a whole number of at least 1, got 0"):
        APGD(Linf(0.1), steps=0)


def test_checkpoints_as_published() -> None:
    climb = Climb(lambda points: points, targeted_dlr_loss, Linf(0.1), 100)
    assert list(_checks(climb)) == [22, 41, 57, 70, 80, 87, 93, 99]


def test_restarts_go_on_where_others_stopped() -> None:
    """A weak point that only some starts reach: a narrow well of wrong answers on a plateau."""

    def classify(points: torch.Tensor) -> torch.Tensor:
        inside = (points[:, 0] - 0.7).abs() < 0.02
        return torch.stack([1 - 4 * inside.float(), torch.zeros_like(points[:, 0])], 1) + 0 * points.sum(
            1, keepdim=True
        )

    inputs, labels = torch.full((100, 1), 0.5), torch.zeros(100, dtype=torch.long)
    rng = RowRng(0, torch.arange(100))
    # A radius is on the surface in one dimension, so widen by a second feature that sets the scale.
    inputs = torch.cat([inputs, inputs], 1)
    shares = [
        float(wrong(classify(attack(classify, inputs, labels, rng).points), labels).float().mean())
        for attack in (APGD(Linf(0.3), margin_loss, 1, n) for n in (1, 20))
    ]
    assert shares[0] < 0.3
    assert shares[1] > shares[0] + 0.2
