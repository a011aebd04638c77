"""Multi-layer perceptrons, one at a time or many of one shape at once."""

from collections import OrderedDict
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise

import torch
from torch import Generator, Tensor, nn

from widemargin.networks.resnet import check_dropout
from widemargin.parts import part


class MLP(nn.Module):
    """Linear layers with ReLU between them, and dropout after every ReLU if there is any."""

    def __init__(self, *widths: int, dropout: float = 0.0) -> None:
        super().__init__()
        check_widths(widths, dropout)
        self.layers = nn.ModuleList(nn.Linear(a, b) for a, b in pairwise(widths))
        self.drops = nn.ModuleList(nn.Dropout(dropout) for _ in widths[2:]) if dropout else None

    def forward(self, points: Tensor) -> Tensor:
        *hidden, last = self.layers
        for number, layer in enumerate(hidden):
            points = layer(points).relu()
            if self.drops is not None:
                points = self.drops[number](points)
        return last(points)  # type: ignore[no-any-return]

    def linear_layers(self) -> list[nn.Linear]:
        return [layer for layer in self.layers if isinstance(layer, nn.Linear)]


def check_widths(widths: tuple[int, ...], dropout: float) -> None:
    if len(widths) < 2 or min(widths) < 1:
        raise ValueError(f"an MLP needs at least an input and an output width, all >= 1, got {widths}")
    check_dropout(dropout)
    if dropout and len(widths) == 2:
        raise ValueError("an MLP drops features of its hidden layers, got dropout but no hidden layer: set it to 0")


@part
@dataclass(frozen=True)
class MLPSpec:
    """The shape of an MLP: part of what decides a run's numbers."""

    widths: tuple[int, ...]
    dropout: float = 0.0

    def __post_init__(self) -> None:
        check_widths(self.widths, self.dropout)

    def build(self, rng: Generator) -> MLP:
        """torch's default initialisation (uniform, 1 / sqrt(fan in)), drawn from a generator of the caller's."""
        network = MLP(*self.widths, dropout=self.dropout)
        with torch.no_grad():
            for name, parameter in network.named_parameters():
                layer = network.layers[int(name.split(".")[1])]
                assert isinstance(layer, nn.Linear)
                bound = layer.in_features**-0.5
                parameter.uniform_(-bound, bound, generator=rng)
        return network


@part
@dataclass(frozen=True)
class FlatMLPSpec:
    """An MLP of inputs of any shape, images for instance: all their features in one row."""

    widths: tuple[int, ...]
    dropout: float = 0.0

    def __post_init__(self) -> None:
        check_widths(self.widths, self.dropout)

    def build(self, rng: Generator) -> nn.Sequential:
        mlp = MLPSpec(self.widths, self.dropout).build(rng)
        return nn.Sequential(OrderedDict[str, nn.Module](flatten=nn.Flatten(), mlp=mlp))


class StackedMLP(nn.Module):
    """MLPs of one shape with their weights stacked: one batched product does a layer of them all."""

    def __init__(self, networks: Sequence[MLP]) -> None:
        super().__init__()
        if any(network.drops for network in networks):
            raise ValueError("MLPs with dropout cannot be stacked: train them one at a time")
        columns = list(zip(*(network.layers for network in networks), strict=True))
        # Weights are kept transposed, so that baddbmm needs no copy.
        self.weights = nn.ParameterList(torch.stack([layer.weight.detach().T for layer in c]) for c in columns)
        self.biases = nn.ParameterList(torch.stack([layer.bias.detach()[None] for layer in c]) for c in columns)

    def forward(self, blocks: Tensor) -> Tensor:
        """[network, row, feature] -> [network, row, class]."""
        depth = len(self.weights)
        for i, (weight, bias) in enumerate(zip(self.weights, self.biases, strict=True)):
            blocks = torch.baddbmm(bias, blocks, weight)
            if i < depth - 1:
                blocks = blocks.relu()
        return blocks

    def split(self) -> list[MLP]:
        widths = [self.weights[0].shape[1], *(weight.shape[2] for weight in self.weights)]
        networks = [MLP(*widths).to(self.weights[0]) for _ in range(len(self.weights[0]))]
        with torch.no_grad():
            for s, network in enumerate(networks):
                for layer, weight, bias in zip(network.layers, self.weights, self.biases, strict=True):
                    layer.weight.copy_(weight[s].T)  # type: ignore[operator]
                    layer.bias.copy_(bias[s, 0])  # type: ignore[operator]
        return networks
