from collections import OrderedDict

import pytest
import torch
import torch.nn.functional as F
from torch import Generator, Tensor, nn

from widemargin.networks.mlp import FlatMLPSpec, MLPSpec
from widemargin.networks.named import DropoutResNetSpec, LeNetSpec, ResNetSpec
from widemargin.networks.normalized import NormalizedSpec
from widemargin.uncertainty.cuts import Cut, after, at_input, at_module, before_head
from widemargin.uncertainty.single import Single

IMAGES = (4, 3, 8, 8)


def noise(*shape: int) -> Tensor:
    return torch.rand(*shape, generator=Generator().manual_seed(1))


def assert_is_the_network(cut: Cut, network: nn.Module, inputs: Tensor) -> None:
    """Bit for bit, in both modes, dropout and running statistics included, with no parameter of its own."""
    halves = nn.ModuleList(cut)
    assert {id(p) for p in halves.parameters()} == {id(p) for p in network.parameters()}
    for training in (True, False):
        buffers = [buffer.clone() for buffer in network.buffers()]
        answers, statistics = [], []
        halves.train(training)
        assert all(module.training == training for module in network.modules() if not list(module.children()))
        network.train(training)
        for forward in (network, lambda x: cut.head(cut.encoder(x))):
            with torch.random.fork_rng():
                torch.manual_seed(0)
                answers.append(forward(inputs))
            statistics.append([buffer.clone() for buffer in network.buffers()])
            for buffer, value in zip(network.buffers(), buffers, strict=True):
                buffer.copy_(value)
        assert torch.equal(*answers)
        assert all(torch.equal(a, b) for a, b in zip(*statistics, strict=True))


class Block(nn.Module):
    def __init__(self, width: int) -> None:
        super().__init__()
        self.conv = nn.Conv2d(width, width, 3, padding=1)
        self.norm = nn.BatchNorm2d(width)

    def forward(self, x: Tensor) -> Tensor:
        return x + F.relu(self.norm(self.conv(x)))


class Residual(nn.Module):
    """A user's network: not a Sequential, a parameter of its own, an optional argument, functions between layers."""

    def __init__(self) -> None:
        super().__init__()
        self.stem = nn.Conv2d(3, 4, 3)
        self.block = Block(4)
        self.drop = nn.Dropout(0.5)
        self.scale = nn.Parameter(torch.tensor(0.3))
        self.fc1 = nn.Linear(4, 6)
        self.fc2 = nn.Linear(6, 3)

    def forward(self, x: Tensor, temperature: float | None = None) -> Tensor:
        z = self.block(self.stem(x - 0.5) * self.scale)
        z = torch.flatten(F.adaptive_avg_pool2d(self.drop(z), 1), 1)
        z = self.fc2(F.relu(self.fc1(z)) + self.scale)
        return z if temperature is None else z / temperature


@pytest.mark.parametrize(
    ("shape", "inputs", "encoded"),
    [
        (LeNetSpec(), (2, 1, 28, 28), (2, 16, 5, 5)),
        (LeNetSpec(side=8, capacity=2), (2, 1, 8, 8), (2, 32, 2, 2)),
        (ResNetSpec(width=4), IMAGES, (4, 32, 1, 1)),
        (DropoutResNetSpec(width=4), IMAGES, (4, 32, 1, 1)),
        (MLPSpec((2, 5, 7, 3)), (4, 2), (4, 7)),
    ],
    ids=repr,
)
def test_before_head_is_the_papers_latent_space(shape, inputs, encoded):
    network = shape.build(Generator().manual_seed(0))
    cut = before_head(network)
    assert cut.encoder(noise(*inputs)).shape == encoded
    assert_is_the_network(cut, network, noise(*inputs))


def test_a_resnets_head_starts_behind_its_last_convolution():
    for shape in (ResNetSpec(width=2), DropoutResNetSpec(width=2)):
        cut = before_head(shape.build(Generator()))
        assert not any(isinstance(module, nn.Conv2d) for module in cut.head.modules())
        assert isinstance(list(cut.encoder.children())[-1][-1].conv2, nn.Conv2d)
    kinds = [type(module) for module in before_head(ResNetSpec(width=2).build(Generator())).head]
    assert kinds == [nn.AdaptiveAvgPool2d, nn.Flatten, nn.Linear]


def test_before_head_of_a_normalised_mlp_of_images():
    network = NormalizedSpec(FlatMLPSpec((4, 3, 2)), (0.5,), (0.25,)).build(Generator())
    cut, images = before_head(network), torch.rand(5, 1, 2, 2)
    assert cut.encoder(images).shape == (5, 3)
    assert torch.equal(cut.head(cut.encoder(images)), network(images))


def test_before_head_refuses_what_it_does_not_know():
    with pytest.raises(ValueError, match="got a Residual: name the last layer of its encoder with at_module"):
        before_head(Residual())
    with pytest.raises(ValueError, match="needs a hidden layer"):
        before_head(MLPSpec((2, 3)).build(Generator()))


def test_at_input_and_after_are_the_network():
    network = nn.Sequential(nn.Linear(2, 4), nn.ReLU(), nn.Linear(4, 3))
    assert_is_the_network(at_input(network), network, noise(5, 2))
    assert_is_the_network(after(network, 2), network, noise(5, 2))
    for layers in (0, 3):
        with pytest.raises(ValueError, match=r"layers must be in 1\.\.2"):
            after(network, layers)


@pytest.mark.parametrize("shape", [ResNetSpec(width=2), DropoutResNetSpec(width=2)], ids=repr)
@pytest.mark.parametrize("name", ["encoder", "encoder.stem", "encoder.stage2", "encoder.stage2.0", "head.flatten"])
def test_at_module_takes_a_chain_apart_and_keeps_names(shape, name):
    network = shape.build(Generator().manual_seed(0))
    cut = at_module(network, name)
    assert_is_the_network(cut, network, noise(*IMAGES))
    assert list((cut.encoder.state_dict() | cut.head.state_dict()).keys()) == list(network.state_dict().keys())
    assert list(cut.encoder.modules())[-1] is list(network.get_submodule(name).modules())[-1]


def test_at_module_keeps_the_second_use_of_a_layer_in_a_chain():
    relu = nn.ReLU()
    network = nn.Sequential(nn.Linear(2, 3), relu, nn.Linear(3, 3), relu, nn.Linear(3, 2))
    cut = at_module(network, "3")
    assert len(cut.encoder) == 4
    assert_is_the_network(cut, network, noise(5, 2))


@pytest.mark.parametrize("name", ["stem", "block", "drop", "fc1", "block.norm"])
def test_at_module_cuts_any_traceable_network(name):
    network = Residual()
    if name == "block.norm":
        with pytest.raises(ValueError, match=r"'mul' is used on both sides of 'block.norm': .* no skip connection"):
            at_module(network, name)
        return
    cut = at_module(network, name)
    assert_is_the_network(cut, network, noise(*IMAGES))
    expected: list[Tensor] = []
    hook = network.get_submodule(name).register_forward_hook(lambda *call: expected.append(call[-1]))
    network.eval()(noise(*IMAGES))
    hook.remove()
    assert torch.equal(cut.encoder(noise(*IMAGES)), expected[0])


def test_a_traced_cut_trains_the_network_itself():
    network = Residual()
    single = Single(at_module(network, "block"))
    single.logits(single.encode(noise(*IMAGES))).square().sum().backward()
    assert all(p.grad is not None for p in network.parameters())


def test_cutting_leaves_modes_and_chance_untouched():
    network = Residual()
    network.block.eval()
    modes, state = [module.training for module in network.modules()], torch.get_rng_state()
    at_module(network, "fc1")
    assert [module.training for module in network.modules()] == modes
    assert torch.equal(torch.get_rng_state(), state)


def test_a_chain_with_a_hook_is_traced_so_that_the_hook_runs():
    network = nn.Sequential(nn.Sequential(nn.Linear(2, 4), nn.Linear(4, 4)), nn.Linear(4, 3))
    network[0].register_forward_hook(lambda module, inputs, output: output * 2)
    assert_is_the_network(at_module(network, "0.0"), network, noise(5, 2))


def test_names_must_exist():
    for name in ("", "fc3"):
        with pytest.raises(ValueError, match=rf"must be a submodule of Residual, got '{name}': it can be stem, block"):
            at_module(Residual(), name)


def test_something_must_follow():
    chain = nn.Sequential(OrderedDict(a=nn.Linear(2, 2), b=nn.Sequential(nn.Linear(2, 2), nn.Linear(2, 2))))
    for network, name in ((Residual(), "fc2"), (chain, "b"), (chain, "b.1")):
        with pytest.raises(ValueError, match=f"nothing follows '{name}'"):
            at_module(network, name)


def test_a_skip_connection_across_the_cut_is_refused():
    class Skip(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.inner, self.last = nn.Linear(2, 2), nn.Linear(2, 2)

        def forward(self, x: Tensor) -> Tensor:
            return self.last(self.inner(x) + x)

    with pytest.raises(ValueError, match="the input is used on both sides of 'inner'"):
        at_module(Skip(), "inner")


def test_a_layer_called_twice_is_refused():
    class Twice(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.inner, self.unused = nn.Linear(2, 2), nn.Linear(2, 2)

        def forward(self, x: Tensor) -> Tensor:
            return self.inner(self.inner(x)).relu()

    with pytest.raises(ValueError, match="'inner' exactly once to be cut there, got 2"):
        at_module(Twice(), "inner")
    with pytest.raises(ValueError, match="'unused' exactly once to be cut there, got 0"):
        at_module(Twice(), "unused")


class Functional(nn.Module):
    """One linear layer on either side of something that torch.fx cannot keep, or that would spoil the cut."""

    def __init__(self, kind: str) -> None:
        super().__init__()
        self.kind = kind
        self.first, self.last = nn.Linear(2, 2), nn.Linear(2, 2)
        if kind == "module":
            self.relu = nn.ReLU(inplace=True)

    def forward(self, x: Tensor) -> Tensor:
        z = self.first(x)
        match self.kind:
            case "dropout":
                z = F.dropout(z, training=self.training)
            case "chance":
                z = z + torch.randn(2)
            case "branch":
                z = z if z.sum() > 0 else -z
            case "module":
                z = self.relu(z)
            case "function":
                z = F.relu(z, inplace=True)
            case "method":
                z = z.relu_()
            case "torch":
                z = torch.relu_(z)
            case "constant":
                z = z + torch.tensor([0.5, 1.0])
        return self.last(z)


@pytest.mark.parametrize("kind", ["dropout", "chance"])
def test_a_trace_that_would_freeze_mode_or_chance_is_refused(kind):
    with (
        torch.random.fork_rng(),
        pytest.raises(ValueError, match="must do the same in train and eval mode to be cut at 'first'"),
    ):
        at_module(Functional(kind), "first")


def test_a_network_that_cannot_be_traced_is_refused():
    with pytest.raises(ValueError, match=r"must be an nn.Sequential or traceable by torch.fx .* got TraceError"):
        at_module(Functional("branch"), "first")


def test_a_constant_made_on_the_way_stays():
    network = Functional("constant")
    assert_is_the_network(at_module(network, "first"), network, noise(5, 2))


@pytest.mark.parametrize("kind", ["module", "function", "method", "torch"])
def test_a_head_that_would_overwrite_the_encoded_points_is_refused(kind):
    with pytest.raises(ValueError, match=r"'first' returns must outlive the cut, but .* overwrites it"):
        at_module(Functional(kind), "first")
    chain = nn.Sequential(nn.Linear(2, 2), nn.Sequential(nn.ReLU(inplace=True)), nn.Linear(2, 2))
    with pytest.raises(ValueError, match="but the ReLU that follows overwrites it"):
        at_module(chain, "0")
    assert_is_the_network(at_module(chain, "1"), chain, noise(5, 2))


@pytest.mark.parametrize("layers", [0, 3, -1])
def test_a_cut_must_leave_two_halves(layers: int) -> None:
    with pytest.raises(ValueError, match=rf"^layers must be in 1..2 for 3 layers, got {layers}$"):
        after(nn.Sequential(nn.Linear(3, 5), nn.Tanh(), nn.Linear(5, 4)), layers)
