"""Each thing that can be wrong is noticed; tests/conformance holds the library's own parts to the same."""

from collections.abc import Callable
from dataclasses import dataclass

import pytest
import torch
from torch import Tensor, nn

import widemargin as wm
from widemargin.networks.mlp import MLP
from widemargin.perturb.attack import Classifier, Perturbed, perturbed
from widemargin.perturb.balls import Ball
from widemargin.rng import AnyRng
from widemargin.testing import assert_attack, assert_ball, assert_method, assert_network, assert_resumes

BALL = wm.L2(0.3, wm.OPEN)


class _Open(Ball):
    """Linf's methods in a class that may be derived from."""

    norm, dual_norm, steepest = wm.Linf.norm, wm.Linf.dual_norm, wm.Linf.steepest
    project, sample = wm.Linf.project, wm.Linf.sample


MISTAKES: dict[str, Callable[[Ball, Tensor], Tensor]] = {
    "norm": lambda ball, delta: delta.flatten(1).abs().amax(1) ** 2,
    "steepest": lambda ball, gradient: 2 * gradient.sign(),
    "dual_norm": lambda ball, gradient: gradient.flatten(1).abs().amax(1),
}
TO_PLANE: dict[str, Callable[[Ball, Tensor, Tensor, Tensor], Tensor]] = {
    "as much": lambda ball, gradient, needed, center: torch.zeros_like(gradient),
    "no more": lambda ball, gradient, needed, center: wm.L2(1.0, ball.box).to_plane(gradient, 2 * needed, center),
    "in the box": lambda ball, gradient, needed, center: wm.L2(1.0, wm.OPEN).to_plane(gradient, needed, center),
    "nothing is needed": lambda ball, gradient, needed, center: wm.L2(1.0, ball.box).to_plane(
        gradient, needed.abs(), center
    ),
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


@pytest.mark.parametrize("said", TO_PLANE)
def test_a_wrong_step_to_a_plane_is_named(said: str) -> None:
    with pytest.raises(AssertionError, match=f"^to_plane must .*{said}"):
        assert_ball(type("Wrong", (_Open,), {"to_plane": TO_PLANE[said]}))


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
        (lambda model, inputs, rng: model(inputs[:0]).sum() * inputs, "asked about an empty batch"),
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


def test_an_attack_that_leaves_the_box_is_named() -> None:
    with pytest.raises(AssertionError, match="must stay in the box"):
        assert_attack(Moves(lambda model, inputs, rng: torch.ones_like(inputs)), wm.L2(0.3))


@pytest.mark.parametrize(
    ("by", "said"),
    [
        (lambda model, inputs, rng: 0.1 * (inputs - inputs.mean(0)), "must not depend on its batch"),
        (lambda model, inputs, rng: torch.ones_like(inputs), "within the radius"),
        (lambda model, inputs, rng: torch.zeros_like(inputs), "must move something"),
        (lambda model, inputs, rng: model.register_forward_hook(print) and 0.01 * inputs, "no hooks may be left"),
        (lambda model, inputs, rng: model.eval() and 0.01 * inputs, "modes must stay"),
        (lambda model, inputs, rng: model.requires_grad_(True) and 0.01 * inputs, "which weights are trained"),
        (lambda model, inputs, rng: model.zero_grad() or 0.01 * inputs, "no gradients"),
    ],
)
def test_a_wrong_search_is_named(by: Callable[..., Tensor], said: str) -> None:
    with pytest.raises(AssertionError, match=said):
        assert_method(wm.Method(Moves(by), wm.perturb.perturbed_loss))


def test_members_that_are_one_are_named() -> None:
    one = MLP(4, 8, 3)
    with pytest.raises(AssertionError, match="members that never differ are one"):
        assert_network(wm.Ensemble([one, one]).eval(), torch.rand(5, 4))


class Counting(nn.Module):
    """Its answers depend on what no checkpoint has."""

    def __init__(self) -> None:
        super().__init__()
        self.layer, self.passes = nn.Linear(4, 3), 0

    def forward(self, points: Tensor) -> Tensor:
        self.passes += self.training
        answers: Tensor = self.layer(points) * (1 + self.passes)
        return answers


def test_a_training_that_does_not_go_on_as_it_was_is_named() -> None:
    network, examples = wm.Single(wm.at_input(Counting())), wm.Dataset(torch.rand(12, 4), torch.arange(12) % 3)
    with pytest.raises(AssertionError, match="losses must be those of a training in one go"):
        assert_resumes(wm.standard(), network, examples)
