"""A training computes with a network over the same parameters; its twin is the network itself."""

import pytest
import torch
from torch import Tensor, nn

from foreign import lively
from widemargin import Ensemble, MCDropout, Single, at_input
from widemargin.fast.blocks import PooledConvolution
from widemargin.fast.stacking import StackedEnsemble
from widemargin.fast.training import sharing
from widemargin.networks.lenet import LeNet
from widemargin.networks.mlp import MLP
from widemargin.networks.resnet import DropoutResNet18, PreActResNet18
from widemargin.networks.spectral import bounded
from widemargin.uncertainty.cuts import before_head
from widemargin.uncertainty.network import Network


def rand(*shape: int) -> Tensor:
    return torch.rand(*shape, generator=torch.Generator().manual_seed(1)).double()


IMAGES = rand(4, 3, 16, 16)
NETWORKS = {
    "LeNet": (lambda: Single(at_input(LeNet())), rand(32, 1, 28, 28)),
    "LeNet, latent": (lambda: Single(before_head(LeNet())), rand(32, 1, 28, 28)),
    "PreActResNet18": (lambda: Single(before_head(PreActResNet18(width=4))), IMAGES),
    "DropoutResNet18": (lambda: Single(at_input(DropoutResNet18(width=4, dropout=0.1))), IMAGES),
    "dropout draws": (lambda: MCDropout(at_input(DropoutResNet18(width=4)), 3), IMAGES),
    "spectral": (lambda: Single(at_input(bounded(PreActResNet18(width=4), 0.9))), IMAGES),
    "ensemble": (lambda: Ensemble([MLP(7, 8, 3) for _ in range(3)]), rand(9, 7)),
    "ensemble of LeNets": (lambda: Ensemble([LeNet() for _ in range(2)]), rand(32, 1, 28, 28)),
}


def made(name: str) -> tuple[Network, Tensor]:
    torch.manual_seed(0)
    make, inputs = NETWORKS[name]
    network = lively(make()).double()
    assert isinstance(network, Network)
    return network, inputs


def answer(network: Network, inputs: Tensor, wanted: list[Tensor]) -> tuple[Tensor, ...]:
    with torch.random.fork_rng():
        torch.manual_seed(3)
        points = inputs.clone().requires_grad_()
        logits = network.logits(network.encode(points))
        return logits, *torch.autograd.grad(logits.logsumexp(-1).sum(), [points, *wanted])


@pytest.mark.parametrize("fixed", [True, False], ids=["search", "descent"])
@pytest.mark.parametrize("name", NETWORKS)
def test_what_is_trained_is_the_network(name: str, fixed: bool) -> None:
    network, inputs = made(name)
    quick = sharing(network)
    assert quick is not network
    assert {id(one) for one in quick.parameters()} == {id(one) for one in network.parameters()}
    assert {id(one) for one in quick.buffers()} == {id(one) for one in network.buffers()}
    answers = []
    # Another one of the same weights: a pass in train mode may change what the next one computes.
    for one in (quick, made(name)[0]):
        one.train(not fixed).requires_grad_(not fixed)
        answers.append(answer(one, inputs, [] if fixed else list(one.parameters())))
    torch.testing.assert_close(*answers, rtol=1e-8, atol=1e-10)


def test_statistics_and_power_iterations_of_a_training_are_the_networks_own() -> None:
    network, inputs = made("spectral")
    other, _ = made("spectral")
    sharing(network).train().logits(inputs)
    other.train().logits(inputs)
    torch.testing.assert_close(network.state_dict(), other.state_dict(), rtol=1e-8, atol=1e-10)


def test_only_what_is_faster_is_replaced() -> None:
    plain = Single(at_input(nn.Sequential(nn.Conv2d(1, 2, 3), nn.MaxPool2d(2), nn.ReLU())))
    assert sharing(plain) is plain
    hooked, _ = made("LeNet")
    hooked.head.encoder.conv1.register_forward_hook(lambda *_: None)
    assert sharing(hooked) is hooked
    lenet = sharing(made("LeNet")[0])
    assert sum(isinstance(module, PooledConvolution) for module in lenet.modules()) == 2
    assert isinstance(sharing(made("ensemble")[0]), StackedEnsemble)
    resnet = sharing(made("PreActResNet18")[0])
    assert sum("Folded" in type(module).__name__ for module in resnet.modules()) == 8


@pytest.mark.parametrize("name", ["PreActResNet18", "DropoutResNet18"])
def test_fixed_normalisations_are_not_called(name: str) -> None:
    network, inputs = made(name)
    quick = sharing(network).eval().requires_grad_(False)
    called = []
    for module in network.modules():
        if isinstance(module, nn.BatchNorm2d):
            module.register_forward_pre_hook(lambda norm, given: called.append(norm))
    quick(inputs)
    # The stem's and those of three bypasses, if they have one.
    assert len(called) == (0 if name == "PreActResNet18" else 4)
    quick.train().requires_grad_(True)
    quick(inputs)
    assert len(called) > 8
