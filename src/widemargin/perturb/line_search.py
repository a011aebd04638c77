"""Line search: bring a misclassified point to the boundary; and what else minimum-norm attacks share."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from itertools import count

import torch
from torch import Tensor

from widemargin.perturb.attack import Classifier
from widemargin.perturb.balls import Ball, Box
from widemargin.perturb.gradient import slope
from widemargin.perturb.losses import margin
from widemargin.perturb.rows import among, per_row, wrong
from widemargin.shapes import Labels, LogProbs, PerSample, Points

# Of a long sum of products, how many roundings its error may be.
_ROUNDINGS = 16
# How many roundings inputs may be off.
_OF_INPUTS = 4
# By which shares of its way a place may be pushed outward.
_PUSHES = (0.0, 1e-6, 1e-5, 1e-4, 1e-3, 2e-3, 4e-3, 7e-3, 1e-2)
# To which share of its way a place is known to be on the boundary, however precise the numbers.
_NEAR_ENOUGH = 1e-7
# Every so manieth guess is the middle.
_HALVING = 4


def line_search(
    classify: Classifier,
    inputs: Points,
    labels: Labels,
    places: Points,
    near_enough: float = _NEAR_ENOUGH,
    first: Sequence[float] = (),
) -> Points:
    """From each wrong place straight towards its point until the class would change, to that share of its way.

    Of places that may be all but there, `first` has the shares of the way back that are tried first.

    Places where the classifier is right come back as the points themselves: nothing was found.  A point leaves the
    batch as soon as its bracket is that narrow, or as narrow as its numbers allow.

    The lead of the wrong class is all but linear on a short way, so a guess is where a line would cross 0 (the Illinois
    rule); now and then it is the middle of the bracket, whatever the lead may be.
    """
    with torch.no_grad():
        answers = classify(places)
        is_wrong = wrong(answers, labels)
        best = torch.where(per_row(is_wrong, inputs), places, inputs)
        row = is_wrong.nonzero()[:, 0]
        if len(row) == 0:
            return best
        high, low = (torch.full((len(row),), end, dtype=inputs.dtype, device=inputs.device) for end in (1.0, 0.0))
        start, end, row_labels = inputs[row], places[row], labels[row]
        at_low, at_high = _lead(classify(start), row_labels), _lead(answers[row], row_labels)
        now = _Bracket(row, start, end, row_labels, low, high, at_low, at_high, row >= 0)
        for guess in count(1):
            if len((now := now.open(near_enough)).row) == 0:
                break
            back = first[guess - 1] if guess <= len(first) else 0.0
            best[now.row] = now.narrowed(classify, best[now.row], back, halve=guess % _HALVING == 0)
        return best


@dataclass(eq=False)
class _Bracket:
    """Of the points whose crossing is not known yet, row for row."""

    row: Tensor
    inputs: Points
    places: Points
    labels: Labels
    low: Tensor
    """Shares of the way: here the class is right, and at `high` it is plainly wrong."""
    high: Tensor
    at_low: Tensor
    at_high: Tensor
    across: Tensor
    """Whether the last guess was plainly wrong."""

    def open(self, near_enough: float) -> _Bracket:
        wide = self.high - self.low > max(4 * _precision(self.high), near_enough) * self.high
        return self if bool(wide.all()) else among(self, wide)

    def narrowed(self, classify: Classifier, best: Points, back: float, halve: bool) -> Points:
        """One guess each; the nearest wrong places are then these."""
        guess = middle = (self.low + self.high) / 2
        if not halve:
            crossing = self.low + (self.high - self.low) * (self.at_low / (self.at_low - self.at_high))
            guess = torch.where((crossing > self.low) & (crossing < self.high), crossing, middle)
        if back:
            guess = torch.where(self.low > 0, guess, 1 - back)
        tried = self.inputs + per_row(guess, self.inputs) * (self.places - self.inputs)
        # Rounding must not carry it out of the box.
        tried = tried.clamp(torch.minimum(self.inputs, self.places), torch.maximum(self.inputs, self.places))
        answers = classify(tried)
        across, lead = plainly_wrong(answers, self.labels), _lead(answers, self.labels)
        # An end that stays twice counts half: the next line then crosses on its side.
        stays = torch.where(across == self.across, 0.5, 1.0).to(lead)
        self.low, self.high = torch.where(across, self.low, guess), torch.where(across, guess, self.high)
        self.at_low = torch.where(across, self.at_low * stays, lead)
        self.at_high = torch.where(across, lead, self.at_high * stays)
        self.across = across
        return torch.where(per_row(across, tried), tried, best)


def plainly_wrong(answers: LogProbs, labels: Labels) -> Tensor:
    """Wrong by more than the rounding of the answers."""
    return wrong(answers, labels) & ~(_lead(answers, labels) <= 0)


def _lead(answers: LogProbs, labels: Labels) -> Tensor:
    """Of the best other class, less what rounding may be; not a number where the answers are none."""
    # Small logits may be sums of large products.
    size = answers.abs().amax(1).clamp_min(1)
    return -margin(answers, labels) - _ROUNDINGS * _precision(answers) * size


def firm(classify: Classifier, inputs: Points, labels: Labels, places: Points, box: Box) -> Points:
    """Wrong places pushed outward as little as keeps them wrong in any other batch too; as they are if no push does.

    A computation in another order is as good as one of inputs that are a few roundings off, so the lead of the wrong
    class must outweigh what those could change.  Most places need no push, or one of a millionth of the way; only of
    points that lie on the boundary but for rounding it is as much as a hundredth.
    """
    pushed = places.clone()
    row = (places != inputs).flatten(1).any(1).nonzero()[:, 0]
    for share in _PUSHES:
        if len(row) == 0:
            break
        tried = inside(box, inputs[row] + (1 + share) * (places[row] - inputs[row])) if share else places[row]
        answers, lead, gradient = slope(classify, tried, partial(_lead, labels=labels[row]))
        rounding = _OF_INPUTS * _precision(answers) * (gradient * tried).flatten(1).abs().sum(1)
        done = wrong(answers, labels[row]) & ~(lead <= rounding)
        pushed[row[done]] = tried[done]
        row = row[~done]
    return pushed


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
