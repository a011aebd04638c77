"""An ensemble: several networks, each a member."""

from collections.abc import Sequence
from typing import final

import torch
from torch import Tensor, nn

from widemargin.shapes import Encoded, MemberLogits, Points
from widemargin.uncertainty.network import Network, check_is_module, check_logits, logits_of, no_penalty


@final
class Ensemble(Network):
    """Members are perturbed together, so they are all cut at the input.  They may be trained jointly or each before.

    Trained jointly, the loss is the mean of theirs: each gets 1 / M of its own gradient.  Adam does not care; for SGD
    `jointly` gives a descent under which every member moves as it would alone.
    """

    replicas = 1

    def __init__(self, members: Sequence[nn.Module]) -> None:
        super().__init__()
        if not members:
            raise ValueError("an Ensemble needs at least one member, got none")
        for member in members:
            check_is_module(member)
        self.members = nn.ModuleList(members)

    def encode(self, inputs: Points) -> Encoded:
        return inputs

    def logits(self, encoded: Encoded) -> MemberLogits:
        answers = [logits_of(member(encoded), type(member).__name__) for member in self.members]
        for answer in answers:
            check_logits(answer, encoded.shape[0])
        return torch.stack(answers)

    def penalty(self) -> Tensor:
        return no_penalty(self)
