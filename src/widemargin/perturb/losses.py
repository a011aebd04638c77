"""Margins of logits and their ratios, point by point: what objectives are made of.  Log-probabilities will do."""

from __future__ import annotations

import torch
from jaxtyping import Int
from torch import Tensor

from widemargin.shapes import Labels, LogProbs, PerSample

# As published: keeps the ratio finite where the logits are all equal.
_NOT_ZERO = 1e-12


def margin(logits: LogProbs, labels: Labels) -> PerSample:
    """How far the label is ahead of the best other class."""
    of_label = logits.gather(1, labels[:, None])
    others = logits.scatter(1, labels[:, None], -torch.inf).amax(1)
    return of_label.squeeze(1) - others


def towards(logits: LogProbs, labels: Labels, targets: Labels) -> PerSample:
    """How far a target is ahead of the label."""
    return (logits.gather(1, targets[:, None]) - logits.gather(1, labels[:, None])).squeeze(1)


def dlr(logits: LogProbs, labels: Labels) -> PerSample:
    """Difference of logits ratio (Croce & Hein 2020a, eq. 6): blind to shift and scale of the logits; 3 classes up."""
    check_classes("the DLR loss", logits, 3)
    first, _, third = logits.topk(3, 1).values.unbind(1)
    return -margin(logits, labels) / (first - third + _NOT_ZERO)


def targeted_dlr(logits: LogProbs, labels: Labels, targets: Labels) -> PerSample:
    """Croce & Hein (2020a), eq. 7; 4 classes up."""
    check_classes("the targeted DLR loss", logits, 4)
    first, _, third, fourth = logits.topk(4, 1).values.unbind(1)
    return towards(logits, labels, targets) / (first - (third + fourth) / 2 + _NOT_ZERO)


def likeliest_others(logits: LogProbs, labels: Labels, count: int) -> Int[Tensor, "B count"]:
    """The classes after the label, best first."""
    if logits.shape[1] <= count:
        raise ValueError(
            f"an attack on {logits.shape[1]} classes can have at most {logits.shape[1] - 1} targets, got {count}"
        )
    return logits.scatter(1, labels[:, None], -torch.inf).topk(count, 1).indices


def check_classes(what: str, logits: LogProbs, least: int) -> None:
    if logits.shape[1] < least:
        raise ValueError(f"{what} needs at least {least} classes, got {logits.shape[1]}: climb margin_loss")
