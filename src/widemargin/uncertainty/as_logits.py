"""A network written elsewhere, whose logits may come in a tuple, a dict or an object."""

from __future__ import annotations

from typing import final

import torch
from torch import Tensor, nn

from widemargin.uncertainty.network import logits_of


@final
class AsLogits(nn.Module):
    """A user's network that returns its logits as a tensor.  It gets a copy of the inputs, which it may overwrite."""

    def __init__(self, network: nn.Module, name: str) -> None:
        super().__init__()
        self.network = network
        self.name = name

    def forward(self, inputs: Tensor) -> Tensor:
        if isinstance(inputs, Tensor) and not len(inputs):
            # `view(len(x), -1)` fails for an empty batch; joined to it, so that gradients have a way to go.
            one = inputs.new_zeros((1, *inputs.shape[1:]))
            return self.forward(torch.cat([inputs, one]))[:0]
        return logits_of(self.network(inputs.clone()), self.name)
