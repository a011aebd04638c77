"""A single network: one member."""

from typing import final

from torch import Tensor

from widemargin.shapes import Encoded, MemberLogits, Points
from widemargin.uncertainty.cuts import Cut
from widemargin.uncertainty.network import Network, check_logits, logits_of, no_penalty


@final
class Single(Network):
    replicas = 1

    def __init__(self, cut: Cut) -> None:
        super().__init__()
        if not isinstance(cut, Cut):
            raise ValueError(f"Single takes a network cut in two, got {type(cut).__name__}: use at_input(network)")
        self.encoder, self.head = cut

    def encode(self, inputs: Points) -> Encoded:
        return self.encoder(inputs)  # type: ignore[no-any-return]

    def logits(self, encoded: Encoded) -> MemberLogits:
        logits = logits_of(self.head(encoded), type(self.head).__name__)
        check_logits(logits, encoded.shape[0])
        return logits.unsqueeze(0)

    def penalty(self) -> Tensor:
        return no_penalty(self)
