"""Which image network, and with which first weights?  Descriptions that decide both, and names for the paper's own."""

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import TypeVar

import torch
from torch import Generator, nn

from widemargin.networks.lenet import LeNet, check_lenet
from widemargin.networks.resnet import DropoutResNet18, PreActResNet18, check_dropout, check_resnet

SomeModule = TypeVar("SomeModule", bound=nn.Module)


@dataclass(frozen=True, repr=False)
class LeNetSpec:
    classes: int = 10
    channels: int = 1
    side: int = 28
    capacity: int = 1
    dropout: float = 0.0

    def __post_init__(self) -> None:
        check_lenet(self.classes, self.channels, self.side, self.capacity)
        check_dropout(self.dropout)

    def __repr__(self) -> str:
        # A key hashes a repr: runs without dropout keep theirs.
        shown = {name: value for name, value in vars(self).items() if name != "dropout" or value}
        return f"LeNetSpec({', '.join(f'{name}={value!r}' for name, value in shown.items())})"

    def build(self, rng: Generator) -> LeNet:
        return drawn(lambda: LeNet(self.classes, self.channels, self.side, self.capacity, self.dropout), rng)


@dataclass(frozen=True)
class ResNetSpec:
    """A PreActResNet18, drawn from torch's default or, for SVHN and augmented CIFAR-10, He's normal distribution."""

    classes: int = 10
    channels: int = 3
    width: int = 64
    he_normal: bool = False

    def __post_init__(self) -> None:
        check_resnet(self.classes, self.channels, self.width)

    def build(self, rng: Generator) -> PreActResNet18:
        network = drawn(lambda: PreActResNet18(self.classes, self.channels, self.width), rng)
        if self.he_normal:
            draw_he_normal(network, rng)
        return network


@dataclass(frozen=True)
class DropoutResNetSpec:
    classes: int = 10
    channels: int = 3
    width: int = 64
    dropout: float = 0.2

    def __post_init__(self) -> None:
        check_resnet(self.classes, self.channels, self.width)
        check_dropout(self.dropout)

    def build(self, rng: Generator) -> DropoutResNet18:
        return drawn(lambda: DropoutResNet18(self.classes, self.channels, self.width, self.dropout), rng)


ImageShape = LeNetSpec | ResNetSpec | DropoutResNetSpec

NAMED: dict[str, ImageShape] = {
    "lenet": LeNetSpec(),
    "resnet18": ResNetSpec(),
    "resnet18-he": ResNetSpec(he_normal=True),
    "resnet18-dropout": DropoutResNetSpec(),
}


def named(name: str) -> ImageShape:
    """A network of the paper by its name; `dataclasses.replace` changes its classes, width or capacity."""
    if name not in NAMED:
        raise ValueError(f"a network's name must be one of {', '.join(NAMED)}, got {name!r}")
    return NAMED[name]


def drawn(make: Callable[[], SomeModule], rng: Generator) -> SomeModule:
    """torch's default weights on the generator's device, drawn from it in torch's order and from nothing else."""
    # On the meta device a module is made without storage, and without a draw from the global generator.
    with torch.device("meta"):
        network = make()
    network.to_empty(device=rng.device)
    for module in network.modules():
        if isinstance(module, nn.Conv2d | nn.Linear):
            # Uniform within 1 / sqrt(fan in), like the bias.
            nn.init.kaiming_uniform_(module.weight, a=math.sqrt(5), generator=rng)
            if module.bias is not None:
                bound = 1 / math.sqrt(module.weight[0].numel())
                nn.init.uniform_(module.bias, -bound, bound, generator=rng)
        elif isinstance(module, nn.BatchNorm2d):
            module.reset_parameters()
        else:
            assert not list(module.parameters(recurse=False)), f"no rule to draw the weights of a {type(module)}"
    return network


def draw_he_normal(network: nn.Module, rng: Generator) -> None:
    """He et al. (2015): convolutions anew with variance 2 / fan out, linear layers with 2 / fan in; biases are 0."""
    for module in network.modules():
        if isinstance(module, nn.Conv2d):
            nn.init.kaiming_normal_(module.weight, mode="fan_out", nonlinearity="relu", generator=rng)
        elif isinstance(module, nn.Linear):
            nn.init.kaiming_normal_(module.weight, mode="fan_in", nonlinearity="relu", generator=rng)
        if isinstance(module, nn.Conv2d | nn.Linear) and module.bias is not None:
            nn.init.zeros_(module.bias)
