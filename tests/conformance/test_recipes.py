"""What must hold of every method: each invariant runs over every row of `cases`."""

import inspect

import pytest
import torch
from torch import Tensor, nn

import widemargin
from cases import (
    FEATURES,
    METHODS,
    ONE_MLP,
    PERTURBING,
    SETTINGS,
    WITH_BALL,
    WITH_STATE,
    WITHOUT_BALL,
    Setting,
    is_random,
    rounding,
    search_of,
)
from front_door import public_names
from widemargin import Method, Single, at_input
from widemargin.perturb.search import InTrainMode
from widemargin.rng import Rng
from widemargin.testing import assert_method, assert_trains
from widemargin.uncertainty.network import Network

every_method = pytest.mark.parametrize("method", METHODS, ids=repr)
every_search = pytest.mark.parametrize("method", PERTURBING, ids=repr)
every_setting = pytest.mark.parametrize("setting", SETTINGS, ids=repr)


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


@every_method
def test_it_holds(method: Method) -> None:
    assert_method(method, FEATURES, rounding(method))


@every_setting
@every_method
def test_it_trains_every_kind_of_network(method: Method, setting: Setting) -> None:
    assert_trains(method, setting.network(), setting.points(), rounding=1e-12)


@every_method
def test_another_seed_leads_elsewhere_if_anything_is_drawn(method: Method) -> None:
    network, points, labels = WITH_STATE.network(), WITH_STATE.points(), WITH_STATE.labels()
    one, other = (method.perturb(network, points, labels, Rng.seeded(seed)).delta for seed in (0, 1))
    assert torch.equal(one, other) == (not is_random(method))


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
