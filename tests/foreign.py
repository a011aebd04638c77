"""Networks as others write them, for what must serve everybody's."""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor, nn


class BasicBlock(nn.Module):
    def __init__(self, inputs: int, outputs: int, stride: int) -> None:
        super().__init__()
        self.conv1 = nn.Conv2d(inputs, outputs, 3, stride, 1, bias=False)
        self.bn1 = nn.BatchNorm2d(outputs)
        self.relu = nn.ReLU(inplace=True)
        self.conv2 = nn.Conv2d(outputs, outputs, 3, 1, 1, bias=False)
        self.bn2 = nn.BatchNorm2d(outputs)
        self.downsample = None
        if stride != 1 or inputs != outputs:
            self.downsample = nn.Sequential(nn.Conv2d(inputs, outputs, 1, stride, bias=False), nn.BatchNorm2d(outputs))

    def forward(self, x: Tensor) -> Tensor:
        identity = x if self.downsample is None else self.downsample(x)
        out = self.relu(self.bn1(self.conv1(x)))
        out = self.bn2(self.conv2(out))
        out += identity
        return self.relu(out)


class ResNet18(nn.Module):
    """For images of 32 x 32 pixels: a 3 x 3 stem and no pooling behind it."""

    def __init__(self, width: int = 64, classes: int = 10) -> None:
        super().__init__()
        self.conv1 = nn.Conv2d(3, width, 3, 1, 1, bias=False)
        self.bn1 = nn.BatchNorm2d(width)
        self.layers = nn.Sequential(
            *(
                BasicBlock(width * 2 ** max(i - (j == 0), 0), width * 2**i, 2 if i and j == 0 else 1)
                for i in range(4)
                for j in range(2)
            )
        )
        self.fc = nn.Linear(8 * width, classes)

    def forward(self, x: Tensor) -> Tensor:
        x = self.layers(F.relu(self.bn1(self.conv1(x))))
        return self.fc(torch.flatten(F.adaptive_avg_pool2d(x, 1), 1))


class Viewed(nn.Module):
    """Functional calls, a normalisation of the inputs, and `view` by sizes."""

    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("mean", torch.tensor([0.4, 0.5, 0.6]).view(3, 1, 1))
        self.conv1, self.conv2 = nn.Conv2d(3, 6, 5), nn.Conv2d(6, 8, 5)
        self.fc = nn.Linear(8 * 5 * 5, 10)

    def forward(self, x: Tensor) -> Tensor:
        x = (x - self.mean) / 0.25
        x = F.max_pool2d(F.relu(self.conv1(x)), 2)
        x = F.max_pool2d(self.conv2(x).relu(), (2, 2))
        return self.fc(x.view(x.size(0), -1))


class PreNormed(nn.Module):
    """A normalisation before a convolution, shared layers, a sum of three."""

    def __init__(self) -> None:
        super().__init__()
        self.stem, self.norm = nn.Conv2d(3, 6, 3, padding=1), nn.BatchNorm2d(6)
        self.left, self.right = nn.Conv2d(6, 6, 3, padding=1), nn.Conv2d(6, 6, 1, bias=False)
        self.fc = nn.Linear(6, 10)

    def forward(self, x: Tensor) -> Tensor:
        x = self.stem(x)
        for _ in range(2):
            active = torch.relu(self.norm(x))
            x = self.left(active) + self.right(active) + x
        return self.fc(x.mean((2, 3)))


class Overwriting(nn.Module):
    """An in-place rectifier whose input is read again behind it."""

    def __init__(self) -> None:
        super().__init__()
        self.conv, self.norm, self.fc = nn.Conv2d(3, 8, 3), nn.BatchNorm2d(8), nn.Linear(8, 10)

    def forward(self, x: Tensor) -> Tensor:
        x = self.norm(self.conv(x))
        y = F.relu(x, inplace=True)
        return self.fc((x + y).mean((2, 3)))


class Deciding(nn.Module):
    """Looks at values to decide what to do: no trace of it holds."""

    def __init__(self) -> None:
        super().__init__()
        self.conv, self.norm, self.fc = nn.Conv2d(3, 8, 3), nn.BatchNorm2d(8), nn.Linear(8, 10)

    def forward(self, x: Tensor) -> Tensor:
        x = self.norm(self.conv(x))
        if x.mean() > 0:
            x = x.relu()
        return self.fc(x.mean((2, 3)))


class Noisy(Deciding):
    """Draws in eval mode without asking its input, which a trace would freeze."""

    def forward(self, x: Tensor) -> Tensor:
        return self.fc((self.norm(self.conv(x)) + torch.randn(8, 1, 1)).relu().mean((2, 3)))


def chain() -> nn.Sequential:
    return nn.Sequential(
        nn.Conv2d(3, 8, 3, padding=1),
        nn.BatchNorm2d(8),
        nn.ReLU(inplace=True),
        nn.MaxPool2d(2),
        nn.Conv2d(8, 8, 3, stride=2, groups=2),
        nn.BatchNorm2d(8, affine=False),
        nn.GELU(),
        nn.Dropout(0.3),
        nn.Flatten(),
        nn.Linear(8 * 7 * 7, 10),
    )


def lively(network: nn.Module) -> nn.Module:
    """As after some training: normalisations have seen something and weigh channels differently, some negatively."""
    rng = torch.Generator().manual_seed(5)
    with torch.no_grad():
        for module in network.modules():
            if isinstance(module, nn.BatchNorm2d):
                module.running_mean.uniform_(-0.3, 0.3, generator=rng)
                module.running_var.uniform_(0.5, 2.0, generator=rng)
                if module.affine:
                    module.weight.uniform_(-0.2 if module.num_features == 8 else 0.2, 1.5, generator=rng)
                    module.bias.uniform_(-0.3, 0.3, generator=rng)
    return network.eval()
