"""How near is a wrong place?  What all attacks that look for the shortest way share."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import NamedTuple

import torch
from torch import Tensor

from widemargin.measure.accuracy import named_right
from widemargin.measure.attacks.attack import Classifier
from widemargin.perturb.balls import L1, L2, Ball, Linf
from widemargin.shapes import Labels, LogProbs, PerSample, Points

Norm = type[Linf] | type[L2] | type[L1]
"""A norm is named by its ball: Linf, L2 or L1."""
Height = Callable[[Tensor], Tensor]
"""From logits [B C] to what is to be climbed [B]."""


def nearer(classify: Classifier, inputs: Points, labels: Labels, places: Points) -> Points:
    """From each wrong place straight towards its point until the class would change: bisection to float precision.

    Places where the classifier is right come back as the points themselves: nothing was found.  A point leaves the
    batch as soon as its bracket is as narrow as its numbers allow.
    """
    with torch.no_grad():
        found = ~named_right(classify(places), labels)
        best = torch.where(per_row(found, inputs), places, inputs)
        high = torch.ones(len(inputs), dtype=inputs.dtype, device=inputs.device)
        low = torch.zeros_like(high)
        while len(open_ := (found & (high - low > 4 * _precision(high) * high)).nonzero()[:, 0]):
            middle = (low[open_] + high[open_]) / 2
            start, end = inputs[open_], places[open_]
            tried = start + per_row(middle, start) * (end - start)
            # Rounding must not carry it out of the box.
            tried = tried.clamp(torch.minimum(start, end), torch.maximum(start, end))
            wrong = plainly_wrong(classify(tried), labels[open_])
            low[open_] = torch.where(wrong, low[open_], middle)
            high[open_] = torch.where(wrong, middle, high[open_])
            best[open_] = torch.where(per_row(wrong, tried), tried, best[open_])
        return best


def ahead(answers: LogProbs, labels: Labels) -> PerSample:
    """By how much the best other class leads: negative where the classifier is right."""
    own = answers.gather(1, labels[:, None])[:, 0]
    return answers.scatter(1, labels[:, None], -torch.inf).amax(1) - own


def plainly_wrong(answers: LogProbs, labels: Labels) -> Tensor:
    """Wrong by more than rounding: such a place is still wrong when computed in another batch."""
    rounding = 16 * _precision(answers) * answers.abs().amax(1)
    return ~named_right(answers, labels) & ~(ahead(answers, labels) <= rounding)


class Slope(NamedTuple):
    """What one forward and one backward pass tell of a place."""

    wrong: Tensor
    height: PerSample
    gradient: Points


def slope(classify: Classifier, places: Points, labels: Labels, height: Height) -> Slope:
    with torch.enable_grad():
        places = places.detach().requires_grad_()
        answers = classify(places)
        heights = height(answers)
        (gradient,) = torch.autograd.grad(heights.sum(), places)
    return Slope(~named_right(answers.detach(), labels), heights.detach(), gradient.nan_to_num(0, 0, 0))


class Nearest:
    """Of all wrong places seen so far, the nearest to each point."""

    def __init__(self, ball: Ball, inputs: Points) -> None:
        self.ball = ball
        self.inputs = inputs
        self.places = inputs.clone()
        self.distance = torch.full((len(inputs),), torch.inf, dtype=inputs.dtype, device=inputs.device)

    @property
    def found(self) -> Tensor:
        return self.distance < torch.inf

    def see(self, places: Points, wrong: Tensor) -> Tensor:
        """Which of these are wrong and nearer than any before."""
        distance = self.ball.norm(places - self.inputs)
        better = wrong & (distance < self.distance)
        self.distance = torch.where(better, distance, self.distance)
        self.places = torch.where(per_row(better, places), places, self.places)
        return better


def farthest(ball: Ball, inputs: Points) -> PerSample:
    """The distance of the farthest corner of the box: no radius need be larger."""
    down, up = ball.box.room(inputs)
    return ball.norm(torch.maximum(-down, up).expand_as(inputs))


def fade(first: float, last: float, done: float) -> float:
    """From first to last along half a cosine."""
    return last + (first - last) * (1 + math.cos(math.pi * done)) / 2


def per_row(values: Tensor, like: Tensor) -> Tensor:
    return values.view(-1, *[1] * (like.ndim - 1))


def _precision(like: Tensor) -> float:
    return torch.finfo(like.dtype).eps
