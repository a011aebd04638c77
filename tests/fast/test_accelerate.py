"""The twin of an accelerated copy is the model itself."""

import copy

import pytest
import torch
from torch import Tensor, nn

from foreign import Deciding, Noisy, Overwriting, PreNormed, ResNet18, Viewed, chain, lively
from widemargin import Ensemble, MCDropout, Single, at_input
from widemargin.fast.accelerate import accelerated
from widemargin.fast.blocks import PooledConvolution
from widemargin.fast.rewriting import Rewritten
from widemargin.fast.stacking import StackedEnsemble
from widemargin.fast.winograd import WinogradConvolution
from widemargin.networks.lenet import LeNet
from widemargin.networks.mlp import MLP
from widemargin.networks.resnet import DropoutResNet18, PreActResNet18
from widemargin.networks.spectral import bounded
from widemargin.uncertainty.as_logits import AsLogits
from widemargin.uncertainty.cuts import before_head
from widemargin.uncertainty.randomised import Randomised


def rand(*shape: int) -> Tensor:
    return torch.rand(*shape, generator=torch.Generator().manual_seed(1))


IMAGES = rand(6, 3, 32, 32)


def made(make, dtype: torch.dtype = torch.float64) -> nn.Module:
    torch.manual_seed(0)
    return lively(make()).to(dtype)


def assert_same(model: nn.Module, quick: nn.Module, inputs: Tensor) -> None:
    answers = []
    for one in (model, quick):
        points = inputs.clone().requires_grad_()
        logits = one(points)
        gradient = torch.autograd.grad(logits.logsumexp(-1).sum(), points)[0]
        with torch.inference_mode():
            answers.append((logits, gradient, one(inputs)))
    torch.testing.assert_close(answers[0], answers[1], rtol=1e-9, atol=1e-10)


class InputNoise(nn.Module):
    def forward(self, x: Tensor) -> Tensor:
        return x + 0.1 * torch.randn_like(x)


MODELS = {
    "LeNet": (LeNet, rand(32, 1, 28, 28)),
    "few images": (LeNet, rand(2, 1, 28, 28)),
    "PreActResNet18": (lambda: PreActResNet18(width=4), IMAGES),
    "DropoutResNet18": (lambda: DropoutResNet18(width=4), IMAGES),
    "foreign ResNet-18": (lambda: ResNet18(4), IMAGES),
    "foreign ResNet-18 in tiles": (lambda: ResNet18(16), IMAGES),
    "PreActResNet18 in tiles": (lambda: PreActResNet18(width=16), IMAGES),
    "random in tiles": (lambda: Randomised(Single(at_input(nn.Sequential(InputNoise(), ResNet18(16)))), 2), IMAGES[:2]),
    "views": (Viewed, IMAGES),
    "normalised before": (PreNormed, IMAGES),
    "overwriting": (Overwriting, IMAGES),
    "chain": (chain, IMAGES),
    "spectral": (lambda: bounded(ResNet18(4), 0.9), IMAGES),
    "in latent space": (lambda: Single(before_head(PreActResNet18(width=4))), IMAGES),
    "wrapped": (lambda: Single(at_input(AsLogits(ResNet18(4), "mine"))), IMAGES),
    "ensemble": (lambda: Ensemble([ResNet18(4), chain()]), IMAGES),
    "dropout draws": (lambda: MCDropout(at_input(DropoutResNet18(width=4)), 3), IMAGES),
    "stacked": (lambda: Ensemble([MLP(7, 16, 3) for _ in range(4)]), rand(9, 7)),
}


@pytest.mark.parametrize("name", MODELS)
def test_an_accelerated_copy_computes_the_same_logits_and_gradients(name: str) -> None:
    make, inputs = MODELS[name]
    model = made(make)
    state = copy.deepcopy(model.state_dict())
    quick = accelerated(model, inputs.double())
    assert quick is not model
    assert not quick.training
    assert not any(parameter.requires_grad for parameter in quick.parameters())
    assert_same(model, quick, inputs.double())
    assert any(isinstance(module, WinogradConvolution) for module in quick.modules()) == name.endswith("in tiles")
    # Nothing of the model itself has changed.
    torch.testing.assert_close(state, model.state_dict(), rtol=0, atol=0)
    assert all(parameter.requires_grad for parameter in model.parameters())


@pytest.mark.parametrize("name", ["foreign ResNet-18", "LeNet", "PreActResNet18"])
def test_no_normalisation_and_no_plain_pooling_is_left(name: str) -> None:
    make, inputs = MODELS[name]
    model = made(make)
    if name == "PreActResNet18":
        for module in model.modules():
            if isinstance(module, nn.BatchNorm2d):
                nn.init.constant_(module.weight, 0.7)
    quick = accelerated(model, inputs.double())
    assert isinstance(quick, Rewritten)
    nodes = [node for node in quick.graph.graph.nodes if node.op == "call_module"]
    called = {quick.graph.get_submodule(node.target) for node in nodes}
    assert not any(isinstance(module, nn.BatchNorm2d | nn.MaxPool2d) for module in called)
    if name == "LeNet":
        assert sum(isinstance(module, PooledConvolution) for module in called) == 2


def hooked() -> nn.Module:
    network = chain()
    network[0].register_forward_hook(lambda module, given, answer: 2 * answer)
    return network


def hooked_backwards() -> nn.Module:
    network = chain()
    network[4].register_full_backward_hook(lambda module, inward, outward: None)
    return network


LEFT_ALONE = {
    "values decide": Deciding,
    "scripted": lambda: torch.jit.script(chain().eval()),
    "scripted in part": lambda: nn.Sequential(torch.jit.script(nn.Tanh()), chain()),
    "hooked": hooked,
    "hooked backwards": hooked_backwards,
    "random": Noisy,
    "nothing to gain": lambda: nn.Sequential(nn.Flatten(), MLP(3 * 32 * 32, 8, 10)),
    "two inputs": lambda: TwoInputs(),
    "no tensor": lambda: NoTensor(),
}


class TwoInputs(Deciding):
    def forward(self, x: Tensor, scale: float = 2.0) -> Tensor:
        return self.fc(self.norm(self.conv(scale * x)).mean((2, 3)))


class NoTensor(Deciding):
    def forward(self, x: Tensor) -> tuple[Tensor]:
        return (self.fc(self.norm(self.conv(x)).mean((2, 3))),)


@pytest.mark.filterwarnings("ignore:.torch.jit.script. is deprecated")
@pytest.mark.parametrize("name", LEFT_ALONE)
def test_what_cannot_be_accelerated_is_returned_as_it_is(name: str) -> None:
    model = made(LEFT_ALONE[name])
    assert accelerated(model, IMAGES.double()) is model


class OtherWhileTraced(nn.Sequential):
    off = 0.0

    def forward(self, x: Tensor) -> Tensor:
        return super().forward(x) + self.off * isinstance(x, Tensor)


def test_a_copy_that_disagrees_is_not_used() -> None:
    model = made(lambda: OtherWhileTraced(ResNet18(4)))
    assert accelerated(model, IMAGES.double()) is not model
    model.off = 0.01
    assert accelerated(model, IMAGES.double()) is model


def test_a_model_in_train_mode_is_accelerated_as_it_is_in_eval_mode_and_stays_in_train_mode() -> None:
    model = made(lambda: ResNet18(4)).train()
    quick = accelerated(model, IMAGES.double())
    assert model.training
    assert_same(model.eval(), quick, IMAGES.double())


def test_hooks_of_the_network_around_see_every_call_of_the_copy() -> None:
    for make in (MODELS["wrapped"], MODELS["stacked"]):
        model, inputs = made(make[0]), make[1].double()
        rows: list[int] = []
        model.register_forward_pre_hook(lambda module, given, rows=rows: rows.append(len(given[0])))
        quick = accelerated(model, inputs)
        rows.clear()
        quick(inputs[:2])
        assert quick is not model
        assert rows == [2]


def test_a_copy_takes_no_points_where_the_model_does() -> None:
    model = made(lambda: Single(at_input(AsLogits(Viewed(), "mine"))))
    quick = accelerated(model, IMAGES.double())
    assert quick is not model
    assert quick(IMAGES[:0].double()).shape == (0, 10)


def test_single_precision_is_near_enough() -> None:
    model = made(lambda: ResNet18(8), torch.float32)
    assert accelerated(model, IMAGES) is not model


def test_small_ensembles_are_stacked() -> None:
    model = made(MODELS["stacked"][0])
    assert isinstance(accelerated(model, MODELS["stacked"][1].double()), StackedEnsemble)
