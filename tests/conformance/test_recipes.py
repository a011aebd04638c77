"""What must hold of every method: each invariant runs over every row of `cases`."""

import copy
import inspect

import pytest
import torch
from torch import Tensor, nn

import widemargin
from cases import (
    METHODS,
    ONE_MLP,
    PERTURBING,
    SETTINGS,
    WITH_BALL,
    WITH_STATE,
    WITHOUT_BALL,
    Setting,
    is_random,
    search_of,
)
from front_door import public_names
from widemargin import Method, Single, at_input
from widemargin.perturb.search import InTrainMode
from widemargin.rng import Rng
from widemargin.uncertainty.network import Network

every_method = pytest.mark.parametrize("method", METHODS, ids=repr)
every_search = pytest.mark.parametrize("method", PERTURBING, ids=repr)
every_setting = pytest.mark.parametrize("setting", SETTINGS, ids=repr)


def perturb(method: Method, setting: Setting, seed: int = 0) -> Tensor:
    return method.perturb(setting.network(), setting.points(), setting.labels(), Rng.seeded(seed)).delta


def test_no_recipe_is_missing() -> None:
    recipes = {
        name
        for name, value in inspect.getmembers(widemargin.recipes, inspect.isfunction)
        if value.__module__ == "widemargin.recipes" and not name.startswith("_")
    }
    assert recipes == WITH_BALL.keys() | WITHOUT_BALL.keys()


@every_method
def test_repr_is_the_code_that_makes_it(method: Method) -> None:
    again = eval(repr(method), public_names())
    assert again == method
    assert hash(again) == hash(method)


@every_setting
@every_search
def test_delta_stays_in_ball_and_box(method: Method, setting: Setting) -> None:
    network, ball = setting.network(), search_of(method).ball
    points = setting.points()
    delta = method.perturb(network, points, setting.labels(), Rng.seeded(0)).delta
    center = network.encode(points).detach()
    assert delta.shape == center.shape
    assert (ball.norm(delta) <= ball.radius * (1 + 1e-12)).all()
    down, up = ball.box.room(center)
    assert (delta >= down - 1e-12).all()
    assert (delta <= up + 1e-12).all()
    assert (delta != 0).any(), "who moves nobody stays everywhere"


@every_setting
@every_method
def test_all_parameters_get_finite_gradients(method: Method, setting: Setting) -> None:
    network, points, labels = setting.network(), setting.points(), setting.labels()
    moved = method.perturb(network, points, labels, Rng.seeded(0))
    loss = method.loss_at(network, points, labels, moved)
    loss.backward()
    assert loss.shape == ()
    for parameter in network.parameters():
        assert parameter.grad is not None
        assert parameter.grad.isfinite().all()
        assert (parameter.grad != 0).any()


@every_method
def test_search_leaves_the_network_as_it_was(method: Method) -> None:
    network = WITH_STATE.network().train()
    network.head[3].eval()
    network.head[4].bias.requires_grad_(False)
    network.head[0].weight.grad = torch.ones_like(network.head[0].weight)
    before = copy.deepcopy(network)
    gradients = [None if p.grad is None else p.grad.clone() for p in network.parameters()]
    method.perturb(network, WITH_STATE.points(), WITH_STATE.labels(), Rng.seeded(0))

    assert [m.training for m in network.modules()] == [m.training for m in before.modules()]
    for now, then, gradient in zip(network.parameters(), before.parameters(), gradients, strict=True):
        assert now.requires_grad == then.requires_grad
        assert torch.equal(now, then)
        assert (now.grad is None) == (gradient is None)
        assert gradient is None or torch.equal(now.grad, gradient)
    for now, then in zip(network.buffers(), before.buffers(), strict=True):
        assert torch.equal(now, then)


@every_method
def test_a_sample_does_not_depend_on_its_batch(method: Method) -> None:
    """With one generator for every row, each row draws the same alone as in company."""
    network, points, labels = WITH_STATE.network(), WITH_STATE.points(), WITH_STATE.labels()
    # The published TRADES takes its first step along a gradient of 1e-8, of which rounding is a larger part.
    atol = 1e-7 if "offset_cross_entropy" in repr(method.perturb) else 1e-9
    together = method.perturb(network, points, labels, Rng.seeded(*range(len(points))))
    for row in range(len(points)):
        alone = method.perturb(network, points[row : row + 1], labels[row : row + 1], Rng.seeded(row))
        torch.testing.assert_close(alone.delta[0], together.delta[row], rtol=0, atol=atol)
        torch.testing.assert_close(alone.distance[0], together.distance[row], rtol=0, atol=atol)


@every_method
def test_the_seed_decides_and_nothing_else(method: Method) -> None:
    before = torch.get_rng_state()
    first, again, other = (perturb(method, WITH_STATE, seed) for seed in (0, 0, 1))
    assert torch.equal(first, again)
    assert torch.equal(first, other) == (not is_random(method))
    assert torch.equal(torch.get_rng_state(), before), "the global generator was consumed"


class Elementwise(nn.Module):
    """Logits without matrix products: a row's arithmetic is the same in every batch, to the last bit."""

    def __init__(self) -> None:
        super().__init__()
        self.weights = nn.Parameter(torch.linspace(-2, 2, 16 * 3).sin().view(3, 16))

    def forward(self, points: Tensor) -> Tensor:
        features = points.unbind(1)
        return torch.stack(
            [sum(((w * f).tanh() for w, f in zip(row, features, strict=True)), points[:, 0]) for row in self.weights],
            1,
        )


@every_search
@pytest.mark.parametrize(
    ("network", "tolerance"),
    [(Single(at_input(Elementwise())).double(), 0.0), (ONE_MLP.network(), 1e-12)],
    ids=["elementwise", "mlp"],
)
def test_compact_loop_agrees_with_its_masked_twin(method: Method, network: Network, tolerance: float) -> None:
    search, points, labels = search_of(method), ONE_MLP.points(rows=9), ONE_MLP.labels(rows=9) % 3
    network.eval()
    compact = search(network, points, labels, Rng.seeded(3))
    # In eval mode already, InTrainMode is the masked loop and nothing else.
    masked = InTrainMode(search)(network, points, labels, Rng.seeded(3))
    torch.testing.assert_close(compact.delta, masked.delta, rtol=0, atol=tolerance)
