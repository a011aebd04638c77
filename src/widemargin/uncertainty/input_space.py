"""A network as an attacker sees it: whole, from its input on."""

from __future__ import annotations

from typing import final

from torch import Tensor

from widemargin.shapes import Encoded, MemberLogits, Points
from widemargin.uncertainty.network import Network, check_alone


@final
class InputSpace(Network):
    """Any network, perturbed at its input: an attacker reaches no other place."""

    replicas = 1

    def __init__(self, network: Network) -> None:
        super().__init__()
        check_alone(network)
        self.network = network

    def encode(self, inputs: Points) -> Encoded:
        return inputs

    def logits(self, encoded: Encoded) -> MemberLogits:
        return self.network.logits(self.network.encode(encoded))

    def penalty(self) -> Tensor:
        return self.network.penalty()
