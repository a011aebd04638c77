"""A network that is random also in eval mode: each of a fixed number of draws is a member."""

from __future__ import annotations

from typing import final

import torch
from torch import Tensor

from widemargin.rng import Rng
from widemargin.shapes import Encoded, LogProbs, MemberLogits, Points
from widemargin.uncertainty.drawn import SAME, Drawn
from widemargin.uncertainty.network import Network


@final
class Randomised(Drawn):
    """Torch's generator is seeded for every call: the same draws for every row, in every batch.

    Rows and members are computed at once by torch.vmap.  What that refuses (layers that fill tensors with noise in
    place, or data-dependent control flow) raises RuntimeError.  Randomness of another source stays random.
    """

    replicas = 1

    def __init__(self, network: Network, draws: int, seed: int = 0) -> None:
        super().__init__(draws, SAME, seed)
        self.network = network

    def encode(self, inputs: Points) -> Encoded:
        return inputs

    def logits(self, encoded: Encoded) -> MemberLogits:
        def answer(point: Tensor) -> Tensor:
            log_probs: Tensor = self.network(point.unsqueeze(0))
            return log_probs.squeeze(0)

        def member(number: Tensor, points: Points) -> LogProbs:
            return torch.vmap(answer, randomness="same")(points)

        with Rng.seeded(self.member_seed(), purpose="answers").as_global():
            return torch.vmap(member, (0, None), randomness="different")(torch.arange(self.draws), encoded)

    def penalty(self) -> Tensor:
        return self.network.penalty()
