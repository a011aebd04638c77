"""Descriptions of image networks and of their first weights, and names for the paper's own."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import partial
from typing import TypeVar

import torch
from torch import Generator, nn

from widemargin.networks.lenet import LeNet, check_lenet
from widemargin.networks.resnet import DropoutResNet18, PreActResNet18, check_dropout, check_resnet
from widemargin.parts import CHOICES, choice, choices

SomeModule = TypeVar("SomeModule", bound=nn.Module)


@choice("network", "lenet")
@dataclass(frozen=True)
class LeNetSpec:
    classes: int = 10
    channels: int = 1
    side: int = 28
    capacity: int = 1
    dropout: float = 0.0

    def __post_init__(self) -> None:
        check_lenet(self.classes, self.channels, self.side, self.capacity)
        check_dropout(self.dropout)

    def for_data(self, shape: tuple[int, ...], classes: int) -> LeNetSpec:
        channels, height, width = _image("lenet", shape)
        if height != width:
            raise ValueError(f"lenet needs square images, got {height} x {width}: give a --size, or take resnet18")
        return replace(self, classes=classes, channels=channels, side=height)

    def build(self, rng: Generator) -> LeNet:
        return drawn(lambda: LeNet(self.classes, self.channels, self.side, self.capacity, self.dropout), rng)


@choice("network", "resnet18")
@dataclass(frozen=True)
class ResNetSpec:
    """A PreActResNet18, drawn from torch's default or, for SVHN and augmented CIFAR-10, He's normal distribution."""

    classes: int = 10
    channels: int = 3
    width: int = 64
    he_normal: bool = False

    def __post_init__(self) -> None:
        check_resnet(self.classes, self.channels, self.width)

    def for_data(self, shape: tuple[int, ...], classes: int) -> ResNetSpec:
        return replace(self, classes=classes, channels=_image("resnet18", shape)[0])

    def build(self, rng: Generator) -> PreActResNet18:
        network = drawn(lambda: PreActResNet18(self.classes, self.channels, self.width), rng)
        if self.he_normal:
            draw_he_normal(network, rng)
        return network


@choice("network", "resnet18-dropout")
@dataclass(frozen=True)
class DropoutResNetSpec:
    classes: int = 10
    channels: int = 3
    width: int = 64
    dropout: float = 0.2

    def __post_init__(self) -> None:
        check_resnet(self.classes, self.channels, self.width)
        check_dropout(self.dropout)

    def for_data(self, shape: tuple[int, ...], classes: int) -> DropoutResNetSpec:
        return replace(self, classes=classes, channels=_image("resnet18-dropout", shape)[0])

    def build(self, rng: Generator) -> DropoutResNet18:
        return drawn(lambda: DropoutResNet18(self.classes, self.channels, self.width, self.dropout), rng)


ImageShape = LeNetSpec | ResNetSpec | DropoutResNetSpec

CHOICES["network"]["resnet18-he"] = partial(ResNetSpec, he_normal=True)


def named(name: str) -> ImageShape:
    """A network of the paper by its name; `dataclasses.replace` changes its classes, width or capacity."""
    networks = choices("network")
    if name not in networks:
        raise ValueError(f"a network's name must be one of {', '.join(networks)}, got {name!r}")
    spec: ImageShape = networks[name]()
    return spec


def _image(name: str, shape: tuple[int, ...]) -> tuple[int, ...]:
    if len(shape) != 3:
        raise ValueError(f"{name} is for images: for tables take mlp")
    return shape


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
