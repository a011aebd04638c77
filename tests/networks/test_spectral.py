import copy

import pytest
import torch
from torch import nn

from widemargin.networks.named import LeNetSpec
from widemargin.networks.spectral import Bounded, ResidualMLPSpec, bounded
from widemargin.rng import Rng

RNG = torch.Generator().manual_seed(0)


def largest(weight: torch.Tensor) -> float:
    return float(torch.linalg.matrix_norm(weight.detach().flatten(1), 2))


@pytest.mark.parametrize("scale", [0.01, 1.0, 30.0])
def test_a_layer_stretches_no_more_than_its_coefficient_and_a_gentle_one_is_left_alone(scale: float) -> None:
    layer = nn.Linear(7, 5)
    with torch.no_grad():
        layer.weight.copy_(scale * torch.randn(5, 7, generator=RNG))
    free = layer.weight.detach().clone()
    bounded(layer, 0.9).train()
    for _ in range(100):
        layer(torch.zeros(1, 7))
    assert largest(layer.weight) == pytest.approx(min(0.9, largest(free)), rel=1e-3)
    if largest(free) < 0.9:
        assert torch.equal(layer.weight, free)


def test_it_follows_the_weights_in_train_mode_and_stands_still_in_eval_mode() -> None:
    layer = bounded(nn.Linear(4, 4), 1.0)
    with torch.no_grad():
        layer.parametrizations.weight.original.copy_(5 * torch.randn(4, 4, generator=RNG))
    state = copy.deepcopy(layer.state_dict())
    layer.eval()(torch.zeros(1, 4))
    assert all(torch.equal(value, state[name]) for name, value in layer.state_dict().items())
    layer.train()
    for _ in range(200):
        layer(torch.zeros(1, 4))
    assert largest(layer.weight) == pytest.approx(1.0, rel=1e-3)


def test_a_residual_block_keeps_distances() -> None:
    """x + relu(W x) with |W| <= c moves two points no closer than 1 - c and no further than 1 + c times."""
    network = ResidualMLPSpec(2, 2, 16, 1, coefficient=0.5).build(Rng.seeded(0).generators[0]).eval()
    a, b = (torch.randn(200, 16, generator=RNG) for _ in range(2))
    ratio = (network[1](a) - network[1](b)).norm(dim=1) / (a - b).norm(dim=1)
    assert 0.49 < ratio.min() < ratio.max() < 1.51


def test_every_convolution_and_linear_layer_is_bounded_once() -> None:
    network = bounded(bounded(LeNetSpec(side=8).build(Rng.seeded(0).generators[0]), 0.5), 0.1)
    bounds = [module.coefficient for module in network.modules() if isinstance(module, Bounded)]
    assert bounds == [0.5] * 5


def test_the_seed_decides_and_nonsense_is_refused() -> None:
    first, again, other = (ResidualMLPSpec(2, 3).build(Rng.seeded(seed).generators[0]) for seed in (0, 0, 1))
    points = torch.randn(4, 2, generator=RNG)
    assert torch.equal(first(points), again(points))
    assert not torch.equal(first(points), other(points))
    assert first(points).shape == (4, 3)
    with pytest.raises(ValueError, match=r"^coefficient is the largest stretch of a layer and must be > 0, got 0"):
        bounded(nn.Linear(2, 2), 0.0)
    with pytest.raises(ValueError, match=r"^a ResidualMLP needs inputs >= 1, .* got inputs=2, classes=1"):
        ResidualMLPSpec(2, 1)
