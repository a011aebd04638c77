"""By how much another class is ahead of the label, and the slope of that: what searches for the boundary look at."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from jaxtyping import Float
from torch import Tensor

from widemargin.networks.hooks import is_hooked
from widemargin.perturb.attack import Classifier
from widemargin.perturb.losses import towards
from widemargin.shapes import Encoded, Labels, LogProbs, PerSample, Points
from widemargin.uncertainty.network import check_lets_gradients_through
from widemargin.uncertainty.single import Single


@dataclass(frozen=True, eq=False)
class Lead:
    """A value for each row, and greater than 0 where the label has lost."""

    labels: Labels
    rivals: Labels | None = None
    """None: the best other class, whichever that is."""

    @staticmethod
    def of(labels: Labels, rivals: Labels) -> Lead:
        """Of the rivals, or of whichever class leads if they are the labels themselves."""
        return Lead(labels) if bool((rivals == labels).all()) else Lead(labels, rivals)

    def at(self, row: Tensor) -> Lead:
        """Of these rows."""
        return Lead(self.labels[row], None if self.rivals is None else self.rivals[row])

    def __call__(self, logits: LogProbs) -> PerSample:
        return towards(logits, self.labels, self._rivals(logits))

    def slope(self, classify: Classifier, points: Points) -> tuple[LogProbs, PerSample, Encoded]:
        """The same as `gradient.slope` of it, sooner: the derivative by the logits is known without autograd."""
        points = points.detach().requires_grad_()
        with torch.enable_grad():
            answers = classify(points)
        check_lets_gradients_through(answers, "inputs")
        logits = answers.detach()
        rivals = self._rivals(logits)
        (uphill,) = torch.autograd.grad(answers, points, self._by_logits(logits, rivals))
        return logits, towards(logits, self.labels, rivals), uphill.nan_to_num(0.0, 0.0, 0.0)

    def _rivals(self, logits: LogProbs) -> Labels:
        if self.rivals is not None:
            return self.rivals
        return logits.detach().scatter(1, self.labels[:, None], -torch.inf).argmax(1)

    def _by_logits(self, logits: LogProbs, rivals: Labels) -> Float[Tensor, "B classes"]:
        weights = torch.zeros_like(logits).scatter_(1, rivals[:, None], 1.0)
        return weights.scatter_(1, self.labels[:, None], -1.0)


def before_softmax(model: Classifier) -> Classifier:
    """A classifier with the same leads: the logits as a single network gives them, the model itself if it has none.

    A softmax and its gradient cost as much as a small network.
    """
    if not isinstance(model, Single) or is_hooked(model):
        return model
    return lambda inputs: model.logits(model.encode(inputs))[0]
