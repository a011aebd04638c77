"""Replicas: independent networks trained at once, one for each block of the batch."""

from collections.abc import Sequence
from typing import final

from torch import Tensor

from widemargin.networks.mlp import MLP, StackedMLP
from widemargin.shapes import Encoded, MemberLogits, Points
from widemargin.uncertainty.cuts import at_input
from widemargin.uncertainty.network import Network, no_penalty
from widemargin.uncertainty.single import Single


@final
class Replicas(Network):
    """Not an ensemble: the networks are independent.  One batched product replaces a loop over seeds."""

    def __init__(self, networks: Sequence[MLP]) -> None:
        super().__init__()
        self.stack = StackedMLP(networks)
        self.replicas = len(networks)

    def encode(self, inputs: Points) -> Encoded:
        return inputs

    def logits(self, encoded: Encoded) -> MemberLogits:
        blocks = encoded.unflatten(0, (self.replicas, -1))
        return self.stack(blocks).flatten(0, 1).unsqueeze(0)  # type: ignore[no-any-return]

    def penalty(self) -> Tensor:
        return no_penalty(self)

    def split(self) -> list[Single]:
        """The networks with their current weights, one by one."""
        return [Single(at_input(network)) for network in self.stack.split()]
