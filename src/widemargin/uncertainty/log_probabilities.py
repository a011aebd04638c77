"""A network that answers with probabilities, taken by its word."""

from typing import final

import torch
from torch import Tensor

from widemargin.shapes import Encoded, MemberLogits, Points
from widemargin.uncertainty.network import Network


@final
class LogProbabilities(Network):
    """A network that answers with probabilities, by their logs: the same classifier, of valid logits."""

    def __init__(self, network: Network) -> None:
        super().__init__()
        self.network, self.replicas = network, network.replicas

    def encode(self, inputs: Points) -> Encoded:
        return self.network.encode(inputs)

    def logits(self, encoded: Encoded) -> MemberLogits:
        shares = self.network.logits(encoded)
        return shares.clamp_min(torch.finfo(shares.dtype).tiny).log()

    def penalty(self) -> Tensor:
        return self.network.penalty()
