"""Healthy networks, and the same with planted failures."""

from collections.abc import Callable
from functools import cache

import torch
from torch import Tensor, nn
from torch.nn.functional import cross_entropy

from widemargin import Dataset, Linf, Single, at_input
from widemargin.measure import diagnostics as d
from widemargin.networks.mlp import MLP
from widemargin.rng import Rng
from widemargin.uncertainty.network import Network

ROWS = 80


BALL = Linf(0.1)
EFFORT = d.Effort(many_steps=30, queries=100, draws=8)
"""These networks are small enough for less effort."""


def blobs(classes: int, *shape: int) -> Dataset:
    """Classes around points of their own, in the unit box."""
    labels = torch.arange(ROWS) % classes
    centers = 0.3 + 0.4 * Rng.seeded(1).uniform(torch.empty(classes, *shape))
    noise = Rng.seeded(2).normal(torch.empty(ROWS, *shape))
    return Dataset((centers[labels] + 0.06 * noise).clamp(0, 1), labels)


FLAT, IMAGES = blobs(3, 12), blobs(4, 1, 6, 6)


def trained(module: nn.Module, cloud: Dataset, steps: int = 60) -> nn.Module:
    optimizer = torch.optim.Adam(module.parameters(), 0.02)
    for _ in range(steps):
        optimizer.zero_grad()
        cross_entropy(module(cloud.points), cloud.labels).backward()
        optimizer.step()
    optimizer.zero_grad()
    return module.eval()


@cache
def linear() -> nn.Module:
    with Rng.seeded(0).as_global():
        return trained(nn.Linear(12, 3), FLAT, 120)


@cache
def mlp() -> nn.Module:
    with Rng.seeded(0).as_global():
        return trained(MLP(12, 24, 3), FLAT)


@cache
def conv() -> nn.Module:
    with Rng.seeded(0).as_global():
        layers = [nn.Conv2d(1, 6, 3), nn.BatchNorm2d(6), nn.ReLU(), nn.Flatten(), nn.Dropout(0.1), nn.Linear(96, 4)]
        return trained(nn.Sequential(*layers), IMAGES)


class Then(nn.Module):
    """A function before a network and one after it."""

    def __init__(
        self,
        module: nn.Module,
        before: Callable[[Tensor], Tensor] = lambda x: x,
        after: Callable[[Tensor], Tensor] = lambda x: x,
    ) -> None:
        super().__init__()
        self.module, self.before, self.after = module, before, after

    def forward(self, points: Tensor) -> Tensor:
        return self.after(self.module(self.before(points)))  # type: ignore[no-any-return]


def single(module: nn.Module) -> Network:
    return Single(at_input(module)).eval()


def planted(
    before: Callable[[Tensor], Tensor] = lambda x: x, after: Callable[[Tensor], Tensor] = lambda x: x
) -> Network:
    return single(Then(mlp(), before, after))


def stairs(points: Tensor) -> Tensor:
    return (points * 8).round() / 8


def verdicts(findings: tuple[d.Finding, ...]) -> dict[str, str]:
    return {finding.name: finding.verdict for finding in findings}
