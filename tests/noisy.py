"""A network on a line whose logits have noise, and points for it."""

from collections.abc import Callable

import torch
from torch import Tensor, nn

from widemargin import Dataset, Single, at_input
from widemargin.uncertainty.network import Network

POINTS = Dataset(torch.linspace(-1, 1, 41)[:, None], (torch.linspace(-1, 1, 41) > 0).long())


class Noisy(nn.Module):
    """Right where the single number's sign is the class; noise on the logits makes single answers flip."""

    def __init__(self, noise: Callable[[Tensor], Tensor]) -> None:
        super().__init__()
        self.noise = noise

    def forward(self, points: Tensor) -> Tensor:
        return torch.cat([-points, points], 1) + self.noise(points)


def noisy(noise: Callable[[Tensor], Tensor] = lambda x: torch.randn(x.shape[0], 2)) -> Network:
    return Single(at_input(Noisy(noise))).eval()
