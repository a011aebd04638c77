"""Networks that return probabilities instead of logits."""

from typing import final

import torch
from torch import Tensor

from widemargin.shapes import Encoded, MemberLogits, Points
from widemargin.uncertainty.network import Network


@final
class LogProbabilities(Network):
    """The logs of a network's probabilities as logits: the same classifier."""

    def __init__(self, network: Network) -> None:
        super().__init__()
        self.network, self.replicas = network, network.replicas

    def encode(self, inputs: Points) -> Encoded:
        return self.network.encode(inputs)

    def logits(self, encoded: Encoded) -> MemberLogits:
        probs = self.network.logits(encoded)
        return probs.clamp_min(torch.finfo(probs.dtype).tiny).log()

    def penalty(self) -> Tensor:
        return self.network.penalty()
