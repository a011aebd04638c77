"""What moves a point: searches while a network trains and attacks while it is measured, by one protocol."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import NamedTuple, Protocol

import torch
from torch import Tensor

from widemargin.perturb.balls import Ball
from widemargin.perturb.frozen import frozen
from widemargin.perturb.rows import per_row
from widemargin.rng import AnyRng
from widemargin.shapes import Encoded, Labels, PerSample, Points
from widemargin.uncertainty.input_space import InputSpace
from widemargin.uncertainty.network import Network

Classifier = Callable[[Tensor], Tensor]
"""From points [B *F] to logits [B C].  In eval mode, its parameters without gradients: `frozen` sees to it."""


class Perturbed(NamedTuple):
    """Where each sample was moved to."""

    points: Encoded
    """Of an attack, points like the inputs; of a search, places where the network is cut in two."""
    delta: Encoded
    """From where the sample was."""
    distance: PerSample
    """How far the search went in the ball's norm; delta may be a fraction of it."""


class Perturbation(Protocol):
    """Moves points: a frozen value whose repr says all that decides where to."""

    def __call__(self, model: Network, inputs: Tensor, labels: Tensor, rng: AnyRng, /) -> Perturbed: ...


class Attack(Perturbation, Protocol):
    """A perturbation of inputs that looks for a place where the model is wrong, in a ball or as near as it can.

    All inputs are classified right.  What it finds for a point depends on that point and its draws, not on the batch.
    Where it finds nothing the point may stay or move: only a wrong answer counts, and the caller looks for that.
    """

    @property
    def name(self) -> str: ...


def perturbed(ball: Ball, inputs: Points, points: Points) -> Perturbed:
    """What an attack returns that looked for points."""
    delta = points - inputs
    return Perturbed(points, delta, ball.norm(delta))


@dataclass(frozen=True)
class Within:
    """An attack of which only what it finds in the ball counts: a point that it takes elsewhere stays where it was."""

    attack: Attack
    ball: Ball

    @property
    def name(self) -> str:
        return self.attack.name

    def __call__(self, model: Network, inputs: Points, labels: Labels, rng: AnyRng) -> Perturbed:
        points = self.attack(model, inputs, labels, rng).points.detach()
        inside = self.ball.contains(points, inputs)
        return perturbed(self.ball, inputs, torch.where(per_row(inside, inputs), points, inputs))


@dataclass(frozen=True)
class OnInputs:
    """A search as an attack: on the inputs, also of a network that is cut elsewhere."""

    search: Perturbation
    name: str = "search"

    def __call__(self, model: Network, inputs: Points, labels: Labels, rng: AnyRng) -> Perturbed:
        return self.search(InputSpace(model), inputs, labels, rng)


@dataclass(frozen=True)
class AtCut:
    """An attack as a training search: where the network is cut, in eval mode, everything as before afterwards."""

    attack: Perturbation

    def __call__(self, model: Network, inputs: Points, labels: Labels, rng: AnyRng) -> Perturbed:
        if model.replicas != 1:
            raise ValueError(f"an attack is on one network, got {model.replicas} replicas: perturb them by a Search")
        with frozen(model):
            with torch.no_grad():
                center = model.encode(inputs)
            return self.attack(_Head(model), center, labels, rng)


class _Head(Network):
    """What comes after the cut."""

    replicas = 1

    def __init__(self, network: Network) -> None:
        super().__init__()
        # Not registered: its parameters are the network's.
        self.networks = (network,)

    def encode(self, inputs: Points) -> Encoded:
        return inputs

    def logits(self, encoded: Encoded) -> Tensor:
        return self.networks[0].logits(encoded)

    def penalty(self) -> Tensor:
        return self.networks[0].penalty()


def check_counts(attack: object, **counts: int) -> None:
    for name, count in counts.items():
        if not isinstance(count, int) or count < 1:
            raise ValueError(f"{type(attack).__name__}.{name} must be a whole number of at least 1, got {count}")
