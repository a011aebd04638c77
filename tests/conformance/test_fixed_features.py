"""Features that are held fixed: no search, attack, margin or certificate moves them, and all others stay free."""

import copy

import pytest
import torch
from torch import Tensor, nn

from cases import ATTACKS, NORMS, SHORTEST_ATTACKS, WITH_BALL, rounding
from widemargin.data.dataset import Dataset
from widemargin.measure.certified import certified_radius
from widemargin.measure.diagnostics.attacks import random_places
from widemargin.measure.distance import distances
from widemargin.networks.mlp import MLP, MLPSpec
from widemargin.perturb.balls import L1, L2, OPEN, Ball, Box, Linf, Norm
from widemargin.rng import Rng
from widemargin.testing import assert_attack, assert_method
from widemargin.uncertainty.cuts import at_input
from widemargin.uncertainty.single import Single

# Checks of every call's types would take most of the time.
pytestmark = pytest.mark.usefixtures("untyped")
FIXED, FREE = (1, 4), (0, 2, 3)
BOX = Box(-2.5, 2.5)
WEIGHTS = torch.tensor([0.5, 4.0, -1.0, 0.25, -3.0])
"""Fixed features weigh most, so that a step that forgets them goes there."""


def restricted(network: MLP, point: Tensor) -> MLP:
    """The twin: a network of the free features alone; the others are those of one point."""
    twin, first = copy.deepcopy(network), network.layers[0]
    assert isinstance(first, nn.Linear)
    twin.layers[0] = nn.Linear(len(FREE), first.out_features)
    with torch.no_grad():
        twin.layers[0].weight.copy_(first.weight[:, FREE])  # type: ignore[operator]
        twin.layers[0].bias.copy_(first.bias + first.weight[:, FIXED] @ point[list(FIXED)])  # type: ignore[operator]
    return twin


def linear() -> Single:
    layer = nn.Linear(5, 2)
    with torch.no_grad():
        layer.weight.copy_(torch.stack([torch.zeros(5), WEIGHTS]))
        layer.bias.zero_()
    return Single(at_input(layer))


def labelled(network: Single, rows: int = 6) -> Dataset:
    points = torch.randn(rows, 5, generator=torch.Generator().manual_seed(0)).clamp(-2.4, 2.4)
    with torch.no_grad():
        return Dataset(points, network(points).argmax(1))


@pytest.mark.parametrize(("norm", "box"), [(Linf, OPEN), (L2, BOX), (L1, OPEN)])
def test_no_attack_moves_them(norm: Norm, box: Box) -> None:
    ball: Ball = norm(1.5, box.holding(FIXED))
    for make in ATTACKS.values():
        assert_attack(make(ball), features=5)
    for name, make in SHORTEST_ATTACKS.items():
        if name != "ddn" or norm is L2:
            assert_attack(make(ball), ball, features=5)


@pytest.mark.parametrize("norm", NORMS)
@pytest.mark.parametrize("name", WITH_BALL)
def test_no_training_moves_them(name: str, norm: Norm) -> None:
    method = WITH_BALL[name](norm(0.7, OPEN.holding(FIXED)))
    assert_method(method, 5, rounding(method))


@pytest.mark.parametrize("norm", NORMS)
def test_margins_and_certificates_of_a_linear_network_are_known(norm: Norm) -> None:
    network = linear()
    examples = labelled(network)
    lead = (examples.points @ WEIGHTS).abs()
    wanted = lead / norm(1.0, OPEN).dual_norm(WEIGHTS[list(FREE)][None])
    box = OPEN.holding(FIXED)
    torch.testing.assert_close(distances(network, examples, norm, box).distance, wanted, rtol=1e-3, atol=1e-5)
    proven = certified_radius(network, examples, norm(100.0, box))
    torch.testing.assert_close(proven.to(wanted), wanted, rtol=1e-3, atol=1e-5)


@pytest.mark.parametrize("norm", NORMS)
def test_margins_and_certificates_are_those_of_the_free_features(norm: Norm) -> None:
    module = MLPSpec((5, 8, 3)).build(torch.Generator().manual_seed(1)).eval()
    network = Single(at_input(module))
    examples = labelled(network, 3)
    held = distances(network, examples, norm, BOX.holding(FIXED)).distance
    proven = certified_radius(network, examples, norm(1.0, BOX.holding(FIXED)))
    for row, (point, label) in enumerate(zip(examples.points, examples.labels, strict=True)):
        alone = Dataset(point[None, list(FREE)], label[None], (0, 1, 2))
        twin = Single(at_input(restricted(module, point)))
        torch.testing.assert_close(distances(twin, alone, norm, BOX).distance[0], held[row], rtol=0.02, atol=1e-3)
        torch.testing.assert_close(certified_radius(twin, alone, norm(1.0, BOX))[0], proven[row], rtol=0.02, atol=1e-4)


@pytest.mark.parametrize("norm", NORMS)
def test_what_is_drawn_is_uniform_among_the_free_features(norm: Norm) -> None:
    ball, center = norm(0.5, OPEN.holding(FIXED)), torch.zeros(4000, 5)
    drawn = ball.sample(center, Rng.seeded(0))
    assert not drawn[:, FIXED].any()
    assert bool((ball.norm(drawn) <= 0.5 + 1e-6).all())
    # Of a ball in d dimensions the radii of uniform points have mean d / (d + 1): here 3 / 4.
    assert float(ball.norm(drawn).mean() / 0.5) == pytest.approx(0.75, abs=0.02)
    examples = Dataset(torch.zeros(5, 5), torch.arange(5) % 2)
    for draw in range(2):
        for places in random_places(examples, ball, 0, draw):
            assert not places[:, FIXED].any()


def test_a_box_says_what_it_holds() -> None:
    box = OPEN.holding((1, 3))
    assert repr(box) == "OPEN.holding((1, 3))"
    assert repr(Box(0, 2, (1,))) == "Box(low=0, high=2).holding((1,))"
    assert eval(repr(box), {"OPEN": OPEN}) == box
    assert box.holding(()) == OPEN
    assert not box.is_open
    box.check(torch.full((1, 4), 1e9))
    with pytest.raises(ValueError, match="different places in rising order"):
        OPEN.holding((3, 1))
    with pytest.raises(ValueError, match="holds feature 7 fixed, but a point has 5 features"):
        L2(1.0, OPEN.holding((7,))).project(torch.ones(1, 5), torch.zeros(1, 5))
