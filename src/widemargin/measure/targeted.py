"""Targeted attacks by untargeted ones: a view of a network with two classes, the target and all others."""

from __future__ import annotations

from typing import final

import torch
from torch import Tensor

from widemargin.shapes import Encoded, MemberLogits, Points
from widemargin.uncertainty.network import Network


@final
class Towards(Network):
    """Class 0: any other; class 1: the target.  Who makes class 0 wrong has reached the target."""

    replicas = 1

    def __init__(self, network: Network, target: int) -> None:
        super().__init__()
        self.network, self.target = network, target

    def encode(self, inputs: Points) -> Encoded:
        return inputs

    def logits(self, encoded: Encoded) -> MemberLogits:
        logits = self.network(encoded)
        of_target = logits[:, self.target]
        others = torch.cat([logits[:, : self.target], logits[:, self.target + 1 :]], 1).amax(1)
        return torch.stack([others, of_target], 1).unsqueeze(0)

    def penalty(self) -> Tensor:
        return self.network.penalty()
