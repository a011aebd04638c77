"""Networks with a certificate, and what no certificate may promise."""

from collections.abc import Callable
from math import inf

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from widemargin import L1, L2, Dataset, Linf
from widemargin.networks.lenet import LeNet
from widemargin.networks.mlp import MLP
from widemargin.perturb.balls import Ball
from widemargin.rng import Rng

NORMS = (Linf, L2, L1)


def normal(*shape: int, seed: int = 0) -> Tensor:
    return Rng.seeded(seed).normal(torch.empty(*shape, dtype=torch.float64))


class Residual(nn.Module):
    """Somebody's own network, with what a tracer must cope with."""

    def __init__(self) -> None:
        super().__init__()
        self.conv1, self.conv2 = nn.Conv2d(2, 4, 3, padding=1), nn.Conv2d(4, 4, 3, padding="same", groups=2)
        self.norm = nn.BatchNorm2d(4)
        self.register_buffer("mean", torch.tensor([0.3, 0.6])[:, None, None])
        self.last = nn.Linear(16, 3)

    def forward(self, images: Tensor) -> Tensor:
        hidden = self.conv1((images - self.mean) / 0.5)
        hidden = hidden + self.conv2(F.relu(self.norm(hidden)))
        hidden = F.max_pool2d(F.relu(hidden, inplace=True), 3, stride=2, padding=1)
        hidden += 0.1
        hidden = F.dropout(hidden, training=self.training)
        return self.last(hidden.view(hidden.size(0), -1))


MAKERS: dict[str, tuple[Callable[[], nn.Module], tuple[int, ...]]] = {
    "mlp": (lambda: MLP(3, 12, 8, 3), (3,)),
    "residual": (Residual, (2, 4, 4)),
    "max-pooling": (
        lambda: nn.Sequential(
            nn.Conv2d(1, 3, 3), nn.MaxPool2d(2), nn.ReLU(), nn.AvgPool2d(2), nn.Flatten(), nn.Linear(3, 3)
        ),
        (1, 6, 6),
    ),
    "norms": (
        lambda: nn.Sequential(
            nn.Linear(4, 8), nn.BatchNorm1d(8), nn.ReLU(), nn.Dropout(), nn.Linear(8, 6), nn.ReLU(), nn.Linear(6, 3)
        ),
        (4,),
    ),
    "lenet": (lambda: LeNet(3, 1, 8), (1, 8, 8)),
}


def drawn(name: str, seed: int) -> tuple[nn.Module, Dataset]:
    """A random network with random statistics, and points in the unit box labelled by it."""
    make, shape = MAKERS[name]
    with Rng.seeded(seed).as_global():
        network = make().double()
        for module in network.modules():
            if isinstance(module, nn.BatchNorm1d | nn.BatchNorm2d):
                assert module.running_mean is not None
                assert module.running_var is not None
                module.running_mean.normal_()
                module.running_var.uniform_(0.5, 2)
                module.weight.data.normal_()
        points = torch.rand(4, *shape, dtype=torch.float64)
    network.eval()
    with torch.no_grad():
        labels = network(points).argmax(1)
    return network, Dataset(points, labels)


def nearest_wrong(network: nn.Module, cloud: Dataset, ball: Ball, seed: int) -> Tensor:
    """An upper bound on each robust radius: the nearest wrong point that gradients, corners and samples find."""
    best = torch.full((len(cloud),), inf, dtype=torch.float64)

    def look(delta: Tensor) -> None:
        wrong = network(cloud.points + delta).argmax(1) != cloud.labels
        best[wrong] = best[wrong].minimum(ball.norm(delta)[wrong])

    with torch.no_grad():
        for draw in range(10):
            rng = Rng.seeded(seed, draw)
            away = ball.steepest(rng.normal(cloud.points)) if draw % 2 else ball.sample(cloud.points, rng)
            for length in (0.03, 0.1, 0.3, 1.0):
                look(ball.box.clamp(away * length * (1 if draw % 2 else 1 / ball.radius), cloud.points))
    for radius in (0.02, 0.05, 0.1, 0.2, 0.4):
        reach, delta = type(ball)(radius, ball.box), torch.zeros_like(cloud.points)  # type: ignore[call-arg]
        for _ in range(8):
            at = (cloud.points + delta).requires_grad_()
            (slope,) = torch.autograd.grad(F.cross_entropy(network(at), cloud.labels, reduction="sum"), at)
            delta = reach.project(delta + 0.2 * radius * ball.steepest(slope), cloud.points)
            with torch.no_grad():
                look(delta)
    return best
