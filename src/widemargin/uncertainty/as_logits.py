"""A network written elsewhere, whose output may be a tensor, a tuple of one or an object with `.logits`."""

from __future__ import annotations

from typing import Any, final

from torch import Tensor, fx, nn


@final
class AsLogits(nn.Module):
    """A network of others, asked for logits: what it is given is a copy, for it may overwrite it.

    It may return them as `.logits` of an object, or as the only entry of a tuple.
    """

    def __init__(self, network: nn.Module, name: str) -> None:
        super().__init__()
        self.network = network
        self.name = name

    def forward(self, inputs: Tensor) -> Tensor:
        if isinstance(inputs, Tensor) and not len(inputs):
            # Networks that ask for `view(len(x), -1)` cannot tell the sizes of nothing.
            return self.forward(inputs.new_zeros((1, *inputs.shape[1:])))[:0]
        answer: Any = self.network(inputs.clone())
        # Whoever traces it gives and takes no tensors.
        if isinstance(answer, Tensor | fx.Proxy):
            return answer  # type: ignore[return-value]
        logits = answer[0] if isinstance(answer, tuple | list) and len(answer) == 1 else getattr(answer, "logits", None)
        if not isinstance(logits, Tensor):
            raise ValueError(
                f"{self.name} must return logits as one tensor, got a {type(answer).__name__}: let its forward return "
                "the logits alone"
            )
        return logits
