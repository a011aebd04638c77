"""The library's parts hold what `widemargin.testing` asks of a user's; each thing that can be wrong is noticed."""

from collections.abc import Callable
from dataclasses import dataclass

import pytest
import torch
from torch import Tensor, nn

import widemargin as wm
from cases import BALLS, WITH_BALL
from widemargin.networks.mlp import MLP
from widemargin.perturb.apgd import APGD, TargetedAPGD
from widemargin.perturb.attack import Attack, Classifier, OnInputs, Perturbed, perturbed
from widemargin.perturb.balls import Ball, Norm
from widemargin.perturb.ddn import DDN
from widemargin.perturb.fab import FAB, ShortestFAB
from widemargin.perturb.fmn import FMN
from widemargin.perturb.pgd import PGD, pgd_search
from widemargin.perturb.square import Square
from widemargin.rng import AnyRng
from widemargin.testing import assert_attack, assert_ball, assert_estimator, assert_method, assert_network
from widemargin.uncertainty.estimators import DeepKernelSpec, EnsembleSpec, Estimator, MCDropoutSpec, SingleSpec

BALL = wm.L2(0.3, wm.OPEN)


@pytest.mark.parametrize("norm", [wm.Linf, wm.L2, wm.L1])
def test_norms_hold(norm: Norm) -> None:
    assert_ball(norm)


@pytest.mark.parametrize(
    "attack",
    [
        APGD(BALL, steps=5),
        TargetedAPGD(wm.Linf(0.1), 3, 5),
        FAB(BALL, 3, 5),
        Square(wm.Linf(0.2), 50),
        PGD(wm.L1(0.5), 5),
    ],
    ids=repr,
)
def test_attacks_in_a_ball_hold(attack: Attack) -> None:
    assert_attack(attack)


@pytest.mark.parametrize(
    "attack", [ShortestFAB(BALL, 3, 5), DDN(wm.OPEN, 5), FMN(wm.L2, wm.OPEN, 5), OnInputs(pgd_search(BALL, 0.2, 3))]
)
def test_attacks_without_a_radius_hold(attack: Attack) -> None:
    assert_attack(attack, BALL)


@pytest.mark.parametrize("make", WITH_BALL.values(), ids=list(WITH_BALL))
def test_methods_hold(make: Callable[[Ball], wm.Method]) -> None:
    assert_method(make(BALLS[0]))


@pytest.mark.parametrize("estimator", [SingleSpec(), EnsembleSpec(2), MCDropoutSpec(3), DeepKernelSpec(4, 3)], ids=repr)
def test_estimators_hold(estimator: Estimator) -> None:
    assert_estimator(estimator, wm.udp(wm.Linf(0.1), 0.05, 2))


class _Open(Ball):
    """Linf's methods in a class that may be derived from."""

    norm, dual_norm, steepest = wm.Linf.norm, wm.Linf.dual_norm, wm.Linf.steepest
    project, sample = wm.Linf.project, wm.Linf.sample


MISTAKES: dict[str, Callable[[Ball, Tensor], Tensor]] = {
    "norm": lambda ball, delta: delta.flatten(1).abs().amax(1) ** 2,
    "steepest": lambda ball, gradient: 2 * gradient.sign(),
    "dual_norm": lambda ball, gradient: gradient.flatten(1).abs().amax(1),
}


@pytest.mark.parametrize(
    ("name", "said"),
    [("norm", "three times"), ("steepest", "length 1"), ("dual_norm", "the climb of the steepest step")],
)
def test_a_wrong_norm_is_named(name: str, said: str) -> None:
    wrong = type("Wrong", (_Open,), {name: MISTAKES[name]})
    with pytest.raises(AssertionError, match=said):
        assert_ball(wrong)


@pytest.mark.parametrize(
    ("project", "said"),
    [
        (lambda ball, delta, center, radii=None: delta, "project must stay within the radius"),
        (
            lambda ball, delta, center, radii=None: wm.Linf(ball.radius, wm.OPEN).project(delta, center, radii),
            "the box",
        ),
        (lambda ball, delta, center, radii=None: wm.Linf(ball.radius, ball.box).project(delta, center), "every row"),
    ],
)
def test_a_wrong_projection_is_named(project: Callable[..., Tensor], said: str) -> None:
    with pytest.raises(AssertionError, match=said):
        assert_ball(type("Wrong", (_Open,), {"project": project}))


@dataclass(frozen=True)
class Moves:
    """Moves points by a function of them and of the draws."""

    by: Callable[[Classifier, Tensor, AnyRng], Tensor]
    ball: Ball = BALL
    name: str = "moves"

    def __call__(self, model: Classifier, inputs: Tensor, labels: Tensor, rng: AnyRng) -> Perturbed:
        return perturbed(self.ball, inputs, inputs + self.by(model, inputs, rng))


@pytest.mark.parametrize(
    ("by", "said"),
    [
        (lambda model, inputs, rng: torch.ones_like(inputs), "within the radius"),
        (lambda model, inputs, rng: torch.zeros_like(inputs), "it must break a point"),
        (lambda model, inputs, rng: 0.01 * torch.randn_like(inputs), "torch's generator must not be drawn from"),
        (lambda model, inputs, rng: 0.1 * (inputs - inputs.mean(0)), "must not depend on the batch"),
        (lambda model, inputs, rng: inputs / 0, "delta must be finite"),
        (lambda model, inputs, rng: model.eval().requires_grad_(True) and _descended(model, inputs), "no gradients"),
    ],
)
def test_a_wrong_attack_is_named(by: Callable[..., Tensor], said: str) -> None:
    with pytest.raises(AssertionError, match=said):
        assert_attack(Moves(by))


def _descended(model: nn.Module, inputs: Tensor) -> Tensor:
    model(inputs).sum().backward()
    return torch.zeros_like(inputs)


def test_a_network_that_draws_is_named() -> None:
    drawing = nn.Sequential(MLP(4, 8, 3), nn.Threshold(-99, 0))
    drawing.forward = lambda x: drawing[0](x) + torch.rand(())  # type: ignore[method-assign]
    with pytest.raises(AssertionError, match="nothing may draw from torch's generator"):
        assert_network(wm.Single(wm.at_input(drawing)).eval(), torch.rand(5, 4))
