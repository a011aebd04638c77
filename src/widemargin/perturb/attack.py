"""What is an attack?  It looks for a place near a point where a classifier is wrong."""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol

from torch import Tensor

from widemargin.rng import RowRng
from widemargin.shapes import Labels, Points

Classifier = Callable[[Tensor], Tensor]
"""From points [B *F] to logits [B C].  In eval mode, its parameters without gradients: whoever measures sees to it."""


class Attack(Protocol):
    """A frozen value; its repr says all that decides what it finds."""

    @property
    def name(self) -> str: ...

    def __call__(self, classify: Classifier, inputs: Points, labels: Labels, rng: RowRng) -> Points:
        """For every point a place in the ball around it: one where the classifier is wrong, if one was found.

        All inputs are classified right.  What is found for a point depends on it and its draws, not on the batch.
        """
        ...


class ShortestAttack(Protocol):
    """As an Attack, but without a radius: as near as it can."""

    @property
    def name(self) -> str: ...

    def __call__(self, classify: Classifier, inputs: Points, labels: Labels, rng: RowRng) -> Points:
        """For every point the nearest place found where the classifier is wrong; the point itself if there is none."""
        ...
