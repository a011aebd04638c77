"""How much may a layer stretch distances?  Spectral normalisation, and a residual network that neither folds nor tears.

Far points must stay far in feature space, or a Gaussian process there is sure of what it has never seen (van Amersfoort
et al. 2021, "feature collapse").
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import final

import torch
from torch import Generator, Tensor, nn
from torch.nn.utils import parametrize

from widemargin.networks.named import drawn
from widemargin.parts import part

_FIRST_ITERATIONS = 30


class Bounded(nn.Module):
    """A weight W becomes W min(1, coefficient / s), s its largest singular value: never stretched, shrunk if needed.

    s is followed by power iteration, one in every forward in train mode (Miyato et al. 2018).  A convolution counts as
    the matrix [outputs, inputs x kernel], whose s bounds the layer's Lipschitz constant only up to a factor.
    """

    left: Tensor
    right: Tensor

    def __init__(self, weight: Tensor, coefficient: float) -> None:
        super().__init__()
        if not coefficient > 0:
            raise ValueError(f"coefficient is the largest stretch of a layer and must be > 0, got {coefficient}")
        self.coefficient = coefficient
        matrix = weight.detach().flatten(1)
        # No draw: a vector that is not likely to be orthogonal to the leading one.
        start = torch.linspace(1, 2, matrix.shape[1], dtype=matrix.dtype, device=matrix.device)
        self.register_buffer("left", torch.zeros(matrix.shape[0], dtype=matrix.dtype, device=matrix.device))
        self.register_buffer("right", start / start.norm())
        for _ in range(_FIRST_ITERATIONS):
            self._iterate(matrix)

    @torch.no_grad()
    def _iterate(self, matrix: Tensor) -> None:
        # Not in place: an earlier forward may still need them to go backwards.
        self.left = nn.functional.normalize(matrix @ self.right, dim=0)
        self.right = nn.functional.normalize(matrix.mT @ self.left, dim=0)

    def forward(self, weight: Tensor) -> Tensor:
        matrix = weight.flatten(1)
        if self.training:
            self._iterate(matrix)
        largest = torch.dot(self.left, matrix @ self.right)
        return weight * (self.coefficient / largest).clamp(max=1.0)


def bounded(network: nn.Module, coefficient: float) -> nn.Module:
    """Spectral normalisation for every convolution and linear layer that has none, in place.  Batch-norm stays free."""
    for layer in network.modules():
        if isinstance(layer, nn.Conv2d | nn.Linear) and not parametrize.is_parametrized(layer):
            parametrize.register_parametrization(layer, "weight", Bounded(layer.weight, coefficient))
    return network


@final
class ResidualMLP(nn.Sequential):
    """x + relu(W x) with W bounded below 1: every block is bi-Lipschitz, so distances survive (App. D.4, DUE).

    The first layer, which only changes the number of features, and the last, which names the classes, are free.
    """

    def __init__(self, inputs: int, classes: int, width: int = 64, depth: int = 4, coefficient: float = 0.95) -> None:
        _check_residual(inputs, classes, width, depth)
        blocks = [ResidualBlock(width) for _ in range(depth)]
        super().__init__(nn.Linear(inputs, width), *blocks, nn.Linear(width, classes))
        self._coefficient = coefficient

    def bound(self) -> ResidualMLP:
        """Once its weights are drawn."""
        for block in self:
            if isinstance(block, ResidualBlock):
                bounded(block, self._coefficient)
        return self


@final
class ResidualBlock(nn.Module):
    def __init__(self, width: int) -> None:
        super().__init__()
        self.linear = nn.Linear(width, width)

    def forward(self, points: Tensor) -> Tensor:
        return points + self.linear(points).relu()  # type: ignore[no-any-return]


@part
@dataclass(frozen=True)
class ResidualMLPSpec:
    """The features of a deep kernel on points of a plane or a table."""

    inputs: int
    classes: int
    width: int = 64
    depth: int = 4
    coefficient: float = 0.95
    """The most that a block's linear layer stretches; below 1 the block can be inverted."""

    def __post_init__(self) -> None:
        _check_residual(self.inputs, self.classes, self.width, self.depth)

    def build(self, rng: Generator) -> ResidualMLP:
        return drawn(lambda: ResidualMLP(*vars(self).values()), rng).bound()


def _check_residual(inputs: int, classes: int, width: int, depth: int) -> None:
    if inputs < 1 or classes < 2 or width < 1 or depth < 1:
        raise ValueError(
            "a ResidualMLP needs inputs >= 1, classes >= 2, width >= 1 and depth >= 1, "
            f"got inputs={inputs}, classes={classes}, width={width}, depth={depth}"
        )
