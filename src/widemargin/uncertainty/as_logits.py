"""A network written elsewhere, whose output may be a tensor, a tuple of one or an object with `.logits`."""

from __future__ import annotations

from typing import Any, final

from torch import Tensor, fx, nn


@final
class AsLogits(nn.Module):
    """A user's network that returns its logits as a tensor.  It gets a copy of the inputs, which it may overwrite.

    It may return them as `.logits` of an object, or as the only entry of a tuple.
    """

    def __init__(self, network: nn.Module, name: str) -> None:
        super().__init__()
        self.network = network
        self.name = name

    def forward(self, inputs: Tensor) -> Tensor:
        if isinstance(inputs, Tensor) and not len(inputs):
            # `view(len(x), -1)` fails for an empty batch.
            return self.forward(inputs.new_zeros((1, *inputs.shape[1:])))[:0]
        output: Any = self.network(inputs.clone())
        # While torch.fx traces, it is a proxy.
        if isinstance(output, Tensor | fx.Proxy):
            return output  # type: ignore[return-value]
        logits = output[0] if isinstance(output, tuple | list) and len(output) == 1 else getattr(output, "logits", None)
        if not isinstance(logits, Tensor):
            raise ValueError(
                f"{self.name} must return logits as one tensor, got a {type(output).__name__}: let its forward return "
                "the logits alone"
            )
        return logits
