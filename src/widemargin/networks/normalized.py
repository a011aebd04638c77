"""Input normalisation as the first layer of a network: perturbations stay in the units of the data."""

from __future__ import annotations

import math
from collections import OrderedDict
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

import torch
from torch import Generator, Tensor, nn

from widemargin.parts import part


class Normalize(nn.Module):
    """(x - mean) / std, with one number for each channel of an image or one for all."""

    mean: Tensor
    std: Tensor

    def __init__(self, mean: Sequence[float], std: Sequence[float]) -> None:
        super().__init__()
        self.register_buffer("mean", torch.tensor(mean, dtype=torch.float32).view(1, -1, 1, 1))
        self.register_buffer("std", torch.tensor(std, dtype=torch.float32).view(1, -1, 1, 1))

    def forward(self, images: Tensor) -> Tensor:
        return (images - self.mean) / self.std


class Buildable(Protocol):
    def build(self, rng: Generator) -> nn.Module: ...


@part
@dataclass(frozen=True)
class NormalizedSpec:
    """A network of images after a normalisation of its inputs."""

    network: Buildable
    mean: tuple[float, ...]
    std: tuple[float, ...]

    def __post_init__(self) -> None:
        if not all(map(math.isfinite, self.mean)) or not all(0 < std < math.inf for std in self.std):
            raise ValueError(f"--mean must be numbers and --std numbers above 0, got {self.mean} and {self.std}")

    def build(self, rng: Generator) -> nn.Sequential:
        parts = OrderedDict[str, nn.Module](normalize=Normalize(self.mean, self.std), network=self.network.build(rng))
        return nn.Sequential(parts)
