import torch
from torch import nn

from widemargin import Ensemble
from widemargin.fast.stacking import StackedEnsemble, is_stackable
from widemargin.networks.mlp import MLP, MLPSpec
from widemargin.rng import Rng

POINTS = torch.linspace(-1, 1, 18, dtype=torch.float64).view(6, 3)


def members(count: int, *widths: int) -> list[MLP]:
    return [MLPSpec(widths).build(Rng.seeded(seed).generators[0]).double() for seed in range(count)]


def test_one_product_agrees_with_the_loop_over_members() -> None:
    mlps = members(4, 3, 8, 8, 5)
    assert is_stackable(mlps)
    looped = Ensemble(mlps)
    answers, gradients = [], []
    for network in (StackedEnsemble(looped), looped):
        points = POINTS.clone().requires_grad_()
        logits = network.logits(network.encode(points))
        answers.append(logits)
        gradients.append(torch.autograd.grad(logits.square().sum(), [points, *looped.parameters()]))
    torch.testing.assert_close(*answers, rtol=0, atol=1e-12)
    torch.testing.assert_close(*gradients, rtol=0, atol=1e-11)


def test_only_small_mlps_of_one_shape_are_stacked() -> None:
    hooked = members(2, 3, 8, 2)
    hooked[0].layers[0].register_forward_hook(lambda module, arguments, output: 2 * output)
    others: list[list[nn.Module]] = [
        list(members(1, 3, 8, 2)),
        [*members(1, 3, 8, 2), *members(1, 3, 9, 2)],
        [*members(1, 3, 8, 2), nn.Linear(3, 2).double()],
        list(members(2, 3, 128, 128, 2)),
        [MLP(3, 8, 2, dropout=0.5).double() for _ in range(2)],
        list(hooked),
    ]
    for networks in others:
        assert not is_stackable(networks)
