"""What is an attack?  It looks for a place near a point where a classifier is wrong."""

from __future__ import annotations

import hashlib
import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Protocol

import torch
from torch import Tensor

from widemargin.shapes import Labels, Points

Classifier = Callable[[Tensor], Tensor]
"""From points [B *F] to logits [B C].  In eval mode, its parameters without gradients: whoever measures sees to it."""


class Attack(Protocol):
    """A frozen value; its repr says all that decides what it finds."""

    @property
    def name(self) -> str: ...

    def __call__(self, classify: Classifier, inputs: Points, labels: Labels, noise: Noise) -> Points:
        """For every point a place in the ball around it: one where the classifier is wrong, if one was found.

        All inputs are classified right.  What is found for a point depends on it and its noise, not on the batch.
        """
        ...


class ShortestAttack(Protocol):
    """As an Attack, but without a radius: as near as it can."""

    @property
    def name(self) -> str: ...

    def __call__(self, classify: Classifier, inputs: Points, labels: Labels, noise: Noise) -> Points:
        """For every point the nearest place found where the classifier is wrong; the point itself if there is none."""
        ...


@dataclass(frozen=True, eq=False)
class Noise:
    """What is drawn for an example follows from the seed, the purpose, its row and a counter, never from its batch.

    A hash of those (the finaliser of SplitMix64) instead of a generator: any share of the rows can be drawn, in any
    order, on any device, all at once.
    """

    seed: int
    rows: Tensor
    """[B] whole numbers: which example each is."""
    purpose: str = ""

    def at(self, which: Tensor) -> Noise:
        """Of these rows only: indices or a mask."""
        return Noise(self.seed, self.rows[which], self.purpose)

    def of(self, purpose: str) -> Noise:
        """An independent stream."""
        return Noise(self.seed, self.rows, f"{self.purpose}/{purpose}")

    def uniform(self, *shape: int, draw: int = 0) -> Tensor:
        """[B, *shape] in [0, 1), in steps of 2**-24."""
        return (self._bits(math.prod(shape), draw) & 0xFFFFFF).view(-1, *shape).float() * 2.0**-24

    def integers(self, below: int, *shape: int, draw: int = 0) -> Tensor:
        """[B, *shape] in 0..below - 1."""
        return (self.uniform(*shape, draw=draw).double() * below).long()

    def signs(self, *shape: int, draw: int = 0) -> Tensor:
        """[B, *shape] of -1.0 and 1.0."""
        return (self.uniform(*shape, draw=draw) < 0.5).float() * 2 - 1

    def normal(self, *shape: int, draw: int = 0) -> Tensor:
        """[B, *shape] by Box and Muller."""
        first, second = self.uniform(2, *shape, draw=draw).unbind(1)
        return (-2 * torch.log1p(-first)).sqrt() * (2 * math.pi * second).cos()

    def _bits(self, count: int, draw: int) -> Tensor:
        stream = hashlib.sha256(f"{self.seed} {self.purpose} {draw}".encode()).digest()[:8]
        keys = _mixed(self.rows + int.from_bytes(stream, "big", signed=True))
        return _mixed(keys[:, None] + torch.arange(1, count + 1, device=keys.device) * _GOLDEN) >> 16


# As signed numbers: torch multiplies 64-bit integers modulo 2**64 all the same.
_GOLDEN = 0x9E3779B97F4A7C15 - 2**64
_FIRST = 0xBF58476D1CE4E5B9 - 2**64
_SECOND = 0x94D049BB133111EB - 2**64


def _mixed(bits: Tensor) -> Tensor:
    bits = (bits ^ _shifted(bits, 30)) * _FIRST
    bits = (bits ^ _shifted(bits, 27)) * _SECOND
    return bits ^ _shifted(bits, 31)


def _shifted(bits: Tensor, by: int) -> Tensor:
    """To the right as if there were no sign."""
    return (bits >> by) & ((1 << (64 - by)) - 1)
