"""Linear models: what a search must find on them is known."""

import torch
from torch import Tensor, nn

from widemargin import Single, at_input


def line(weights: list[float], bias: float = 0.0) -> Single:
    """Two classes: the second leads the first by weights . x + bias."""
    layer = nn.Linear(len(weights), 2).double()
    with torch.no_grad():
        layer.weight.copy_(torch.tensor([[0.0] * len(weights), weights], dtype=torch.float64))
        layer.bias.copy_(torch.tensor([0.0, bias], dtype=torch.float64))
    return Single(at_input(layer))


def lead(network: Single, points: Tensor) -> Tensor:
    logits = network.head(points)
    return (logits[:, 1] - logits[:, 0]).detach()
