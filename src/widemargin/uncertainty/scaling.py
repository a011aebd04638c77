"""Scaling of a trained network's logits: one temperature for all classes, or a weight and a bias for each."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any, Literal, final

import torch
from torch import Tensor, nn

from widemargin.shapes import MemberLogits
from widemargin.uncertainty.drawn import Drawn
from widemargin.uncertainty.network import Network, logits_of
from widemargin.uncertainty.predictive import log_mean_prob
from widemargin.uncertainty.wrap import device_of, dtype_of

Kind = Literal["temperature", "vector"]


@dataclass(frozen=True)
class Scaling:
    """Logits become `weight * logits + bias`, class by class (Guo et al. 2017).

    Of several members it is their common answer that is scaled, the log of the mean probability: so a temperature
    changes no prediction, and the fit is convex.
    """

    kind: Kind
    weight: tuple[float, ...]
    """1 / temperature for every class, or a number for each."""
    bias: tuple[float, ...]

    def __post_init__(self) -> None:
        if self.kind not in ("temperature", "vector"):
            raise ValueError(f"a scaling is a temperature or a vector, got {self.kind!r}")
        if len(self.weight) != len(self.bias) or len(self.weight) < 2:
            raise ValueError(
                f"a scaling has a weight and a bias for each of 2 classes or more, got {len(self.weight)} and "
                f"{len(self.bias)}"
            )

    def __call__(self, logits: Tensor) -> Tensor:
        return logits * logits.new_tensor(self.weight) + logits.new_tensor(self.bias)

    def __str__(self) -> str:
        return f"temperature {1 / self.weight[0]:.4g}" if self.kind == "temperature" else "vector scaling"

    def to_dict(self) -> dict[str, Any]:
        return asdict(self)

    @classmethod
    def from_dict(cls, content: dict[str, Any]) -> Scaling:
        return cls(content["kind"], tuple(map(float, content["weight"])), tuple(map(float, content["bias"])))


@final
class Scaled(nn.Module):
    """A network with scaled logits: one linear layer more, which can be exported, attacked and certified as any."""

    def __init__(self, network: nn.Module, scaling: Scaling) -> None:
        super().__init__()
        self.network, self.is_drawn = network, is_drawn(network)
        # Nothing is drawn: a user's random numbers stay as they would be.
        layer = nn.utils.skip_init(nn.Linear, len(scaling.weight), len(scaling.weight))
        with torch.no_grad():
            layer.weight.copy_(torch.tensor(scaling.weight).diag())
            layer.bias.copy_(torch.tensor(scaling.bias))
        self.scaling = layer.to(device_of(network), dtype_of(network)).requires_grad_(False)
        self.train(network.training)

    def forward(self, inputs: Tensor) -> Tensor:
        scaled: Tensor = self.scaling(self._unscaled(inputs))
        return scaled

    def _unscaled(self, inputs: Tensor) -> Tensor:
        if isinstance(self.network, Network):
            return common_logits(self.network.logits(self.network.encode(inputs)), self.is_drawn)
        return logits_of(self.network(inputs), type(self.network).__name__)


def common_logits(logits: MemberLogits, is_drawn: bool = False) -> Tensor:
    """What is scaled: one network's logits, or the log of several members' mean probability.

    Of members that are drawn it is always the latter: a network with one draw has more of them in an audit, and its
    export returns the log, to which a vector of weights would do something else than to the logits.
    """
    return logits[0] if len(logits) == 1 and not is_drawn else log_mean_prob(logits)


def is_drawn(network: nn.Module) -> bool:
    return any(isinstance(module, Drawn) for module in network.modules())
