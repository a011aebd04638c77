"""How near is a wrong place?  What all attacks that look for the shortest way share."""

from __future__ import annotations

import math

import torch
from torch import Tensor

from widemargin.measure.attacks.attack import Classifier
from widemargin.measure.attacks.losses import margin
from widemargin.measure.attacks.rows import per_row, wrong
from widemargin.perturb.balls import L1, L2, Ball, Box, Linf
from widemargin.shapes import Labels, LogProbs, PerSample, Points

Norm = type[Linf] | type[L2] | type[L1]
"""A norm is named by its ball: Linf, L2 or L1."""


def nearer(classify: Classifier, inputs: Points, labels: Labels, places: Points) -> Points:
    """From each wrong place straight towards its point until the class would change: bisection to float precision.

    Places where the classifier is right come back as the points themselves: nothing was found.  A point leaves the
    batch as soon as its bracket is as narrow as its numbers allow.
    """
    with torch.no_grad():
        found = wrong(classify(places), labels)
        best = torch.where(per_row(found, inputs), places, inputs)
        high = torch.ones(len(inputs), dtype=inputs.dtype, device=inputs.device)
        low = torch.zeros_like(high)
        while len(open_ := (found & (high - low > 4 * _precision(high) * high)).nonzero()[:, 0]):
            middle = (low[open_] + high[open_]) / 2
            start, end = inputs[open_], places[open_]
            tried = start + per_row(middle, start) * (end - start)
            # Rounding must not carry it out of the box.
            tried = tried.clamp(torch.minimum(start, end), torch.maximum(start, end))
            across = plainly_wrong(classify(tried), labels[open_])
            low[open_] = torch.where(across, low[open_], middle)
            high[open_] = torch.where(across, middle, high[open_])
            best[open_] = torch.where(per_row(across, tried), tried, best[open_])
        return best


def plainly_wrong(answers: LogProbs, labels: Labels) -> Tensor:
    """Wrong by more than rounding: such a place is still wrong when computed in another batch."""
    rounding = 16 * _precision(answers) * answers.abs().amax(1)
    return wrong(answers, labels) & ~(-margin(answers, labels) <= rounding)


class Nearest:
    """Of all wrong places seen so far, the nearest to each point."""

    def __init__(self, ball: Ball, inputs: Points) -> None:
        self.ball = ball
        self.inputs = inputs
        self.places = inputs.clone()
        self.distance = torch.full((len(inputs),), torch.inf, dtype=inputs.dtype, device=inputs.device)

    def see(self, places: Points, across: Tensor) -> Tensor:
        """Which of these are across the boundary and nearer than any before."""
        distance = self.ball.norm(places - self.inputs)
        better = across & (distance < self.distance)
        self.distance = torch.where(better, distance, self.distance)
        self.places = torch.where(per_row(better, places), places, self.places)
        return better


def farthest(ball: Ball, inputs: Points) -> PerSample:
    """The distance of the farthest corner of the box: no radius need be larger."""
    down, up = ball.box.room(inputs)
    return ball.norm(torch.maximum(-down, up).expand_as(inputs))


def inside(box: Box, places: Points) -> Points:
    """Places that rounding carried out of the box, back on its edge: exact, for so small a difference is."""
    down, up = box.room(places)
    return places + up.clamp_max(0) + down.clamp_min(0)


def fade(first: float, last: float, done: float) -> float:
    """From first to last along half a cosine."""
    return last + (first - last) * (1 + math.cos(math.pi * done)) / 2


def _precision(like: Tensor) -> float:
    return torch.finfo(like.dtype).eps
