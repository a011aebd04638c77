"""What a network predicts for some points: classes, probabilities, and how uncertain they are."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import torch
from jaxtyping import Float
from torch import Tensor

from widemargin.shapes import Labels, LogProbs, MemberLogits, PerSample, Points
from widemargin.uncertainty import predictive
from widemargin.uncertainty.network import Network, in_eval_mode


@dataclass(frozen=True, eq=False)
class Prediction:
    """All follows from the members' logits; uncertainties are in nats."""

    logits: MemberLogits

    def __len__(self) -> int:
        return self.logits.shape[1]

    @property
    def members(self) -> int:
        """How many answers are averaged: 1 for one network."""
        return len(self.logits)

    @cached_property
    def log_probabilities(self) -> LogProbs:
        """Log of the members' mean probability."""
        return predictive.log_mean_prob(self.logits)

    @property
    def probabilities(self) -> Float[Tensor, "B C"]:
        return self.log_probabilities.exp()

    @property
    def classes(self) -> Labels:
        return self.log_probabilities.argmax(-1)

    @property
    def confidence(self) -> PerSample:
        """The probability of the predicted class."""
        return self.probabilities.amax(-1)

    @property
    def entropy(self) -> PerSample:
        """Of the mean probability: the whole uncertainty."""
        return predictive.entropy(self.log_probabilities)

    @property
    def expected_entropy(self) -> PerSample:
        """Mean of the members' own entropies: what more members would not remove (aleatoric)."""
        return predictive.expected_entropy(self.logits)

    @property
    def mutual_information(self) -> PerSample:
        """What the members disagree about (epistemic); 0 for one member."""
        if self.members == 1:
            return torch.zeros_like(self.entropy)
        return predictive.mutual_information(self.logits)

    @property
    def variation_ratio(self) -> PerSample:
        """1 - the probability of the predicted class."""
        return predictive.variation_ratio(self.logits)


def predicted(network: Network, points: Points, batch_size: int) -> Prediction:
    """In eval mode and without gradients.  The network stays as it is."""
    with torch.no_grad(), in_eval_mode(network):
        return Prediction(torch.cat([network.logits(network.encode(part)) for part in points.split(batch_size)], 1))
