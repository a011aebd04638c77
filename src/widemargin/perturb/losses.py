"""What does an attack climb?  Losses of single points, from logits or log-probabilities: both are valid logits here."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

import torch
from jaxtyping import Int
from torch import Tensor
from torch.nn.functional import cross_entropy as torch_cross_entropy

from widemargin.shapes import Labels, LogProbs, PerSample

# As published: keeps the ratio finite where the logits are all equal.
_NOT_ZERO = 1e-12


class Loss(Protocol):
    """A frozen value: what an untargeted attack climbs."""

    @property
    def name(self) -> str: ...

    def __call__(self, logits: LogProbs, labels: Labels) -> PerSample: ...


@dataclass(frozen=True)
class CrossEntropy:
    name = "ce"

    def __call__(self, logits: LogProbs, labels: Labels) -> PerSample:
        return torch_cross_entropy(logits, labels, reduction="none")


@dataclass(frozen=True)
class DLR:
    """Difference of logits ratio (Croce & Hein 2020a, eq. 6): blind to shift and scale of the logits; 3 classes up."""

    name = "dlr"

    def __call__(self, logits: LogProbs, labels: Labels) -> PerSample:
        check_classes("DLR()", logits, 3)
        first, _, third = logits.topk(3, 1).values.unbind(1)
        return -margin(logits, labels) / (first - third + _NOT_ZERO)


@dataclass(frozen=True)
class Margin:
    """The best other logit less that of the label: what is left of DLR with 2 classes."""

    name = "margin"

    def __call__(self, logits: LogProbs, labels: Labels) -> PerSample:
        return -margin(logits, labels)


def margin(logits: LogProbs, labels: Labels) -> PerSample:
    """How far the label is ahead of the best other class."""
    of_label = logits.gather(1, labels[:, None])
    others = logits.scatter(1, labels[:, None], -torch.inf).amax(1)
    return of_label.squeeze(1) - others


def towards(logits: LogProbs, labels: Labels, targets: Labels) -> PerSample:
    """How far a target is ahead of the label."""
    return (logits.gather(1, targets[:, None]) - logits.gather(1, labels[:, None])).squeeze(1)


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
        raise ValueError(f"{what} needs at least {least} classes, got {logits.shape[1]}: use Margin()")
