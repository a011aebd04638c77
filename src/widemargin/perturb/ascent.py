"""How an objective is climbed: number and length of steps, start, early stop, and the fraction that is kept."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Protocol

import torch

from widemargin.parts import part
from widemargin.perturb.balls import Ball, check_python_number
from widemargin.rng import Rng
from widemargin.shapes import Encoded, Labels, MemberLogits, PerSample, StepCounts


class Steps(Protocol):
    @property
    def most(self) -> int: ...
    def draw(self, rows: int, rng: Rng) -> StepCounts: ...


@part
@dataclass(frozen=True)
class Fixed:
    """As many steps for every sample."""

    most: int

    def __post_init__(self) -> None:
        _check_steps("Fixed.most", self.most)

    def draw(self, rows: int, rng: Rng) -> StepCounts:
        return torch.full((rows,), self.most, device=rng.generators[0].device)


@part
@dataclass(frozen=True)
class Uniform:
    """A number of steps drawn for every sample, both ends included: Alg. 1, "sample k"."""

    least: int
    most: int

    def __post_init__(self) -> None:
        _check_steps("Uniform.least", self.least)
        _check_steps("Uniform.most", self.most)
        if self.most < self.least:
            raise ValueError(f"Uniform.most must be at least Uniform.least = {self.least}, got {self.most}")

    def draw(self, rows: int, rng: Rng) -> StepCounts:
        return rng.integers(self.least, self.most, rows)


@dataclass(frozen=True)
class Progress:
    """Where a step stands: what the objective and its gradient are here, and how many steps were taken."""

    delta: Encoded
    value: PerSample
    gradient: Encoded
    taken: int
    most: int


class Step(Protocol):
    def __call__(self, ball: Ball, at: Progress) -> Encoded:
        """The next delta, before projection."""
        ...


@part
@dataclass(frozen=True)
class Steepest:
    """A step of fixed length in the ball's steepest direction."""

    size: float

    def __post_init__(self) -> None:
        _check_size("Steepest.size", self.size)

    def __call__(self, ball: Ball, at: Progress) -> Encoded:
        return at.delta + self.size * ball.steepest(at.gradient)


@part
@dataclass(frozen=True)
class LinearDecay:
    """Steepest steps whose length goes from first to last in a straight line over the steps."""

    first: float
    last: float

    def __post_init__(self) -> None:
        _check_size("LinearDecay.first", self.first)
        _check_size("LinearDecay.last", self.last)

    def __call__(self, ball: Ball, at: Progress) -> Encoded:
        gone = at.taken / max(at.most - 1, 1)
        size = self.first + (self.last - self.first) * gone
        return at.delta + size * ball.steepest(at.gradient)


@part
@dataclass(frozen=True)
class ProjectToBoundary:
    """The shortest delta at which the objective, made linear here, is 0: a projection onto the boundary.

    For objectives that are 0 at their peak, such as `-perturbed_gap`: the peak is the boundary.  DeepFool adds such a
    step to the last one; here delta starts anew from the centre, which finds nearer places of a curved boundary.
    Features without a gradient, at the edge of the box among them, stay where they are.  With many classes the
    runner-up may change from step to step, and a little of the gap remains.
    """

    longest: float
    """No delta longer than this: where the network is nearly flat, its linear form puts the boundary far away."""

    def __post_init__(self) -> None:
        _check_size("ProjectToBoundary.longest", self.longest)

    def __call__(self, ball: Ball, at: Progress) -> Encoded:
        steepness = ball.dual_norm(at.gradient)
        intercept = at.value - (at.gradient * at.delta).flatten(1).sum(1)
        length = -intercept / steepness.clamp_min(torch.finfo(steepness.dtype).tiny)
        length = length.clamp(-self.longest, self.longest)
        projected = ball.steepest(at.gradient) * length.view(-1, *[1] * (at.delta.ndim - 1))
        return torch.where(at.gradient == 0, at.delta, projected)


class Start(Protocol):
    @property
    def at_center(self) -> bool: ...
    def __call__(self, ball: Ball, center: Encoded, rng: Rng) -> Encoded: ...


@part
@dataclass(frozen=True)
class AtCenter:
    at_center = True

    def __call__(self, ball: Ball, center: Encoded, rng: Rng) -> Encoded:
        return torch.zeros_like(center)


@part
@dataclass(frozen=True)
class InBall:
    """Uniform in the ball: R-FGSM."""

    at_center = False

    def __call__(self, ball: Ball, center: Encoded, rng: Rng) -> Encoded:
        return ball.sample(center, rng)


@part
@dataclass(frozen=True)
class Gaussian:
    """A small nudge off the centre: TRADES."""

    scale: float = 1e-3
    at_center = False

    def __post_init__(self) -> None:
        _check_size("Gaussian.scale", self.scale)

    def __call__(self, ball: Ball, center: Encoded, rng: Rng) -> Encoded:
        return self.scale * rng.normal(center)


class Until(Protocol):
    def __call__(self, left: StepCounts, logits: MemberLogits, labels: Labels) -> StepCounts:
        """How many steps are left to each sample, given what the network says where it is now."""
        ...


@part
@dataclass(frozen=True)
class Never:
    def __call__(self, left: StepCounts, logits: MemberLogits, labels: Labels) -> StepCounts:
        return left


@part
@dataclass(frozen=True)
class Misclassified:
    """A sample that has crossed the boundary takes `patience` more steps and freezes: friendly training."""

    patience: int = 0

    def __post_init__(self) -> None:
        if self.patience < 0:
            raise ValueError(f"Misclassified.patience must be at least 0, got {self.patience}")

    def __call__(self, left: StepCounts, logits: MemberLogits, labels: Labels) -> StepCounts:
        wrong = logits.softmax(-1).mean(0).argmax(-1) != labels
        return torch.where(wrong, left.clamp_max(self.patience), left)


class Fraction(Protocol):
    def __call__(self, delta: Encoded, rng: Rng) -> Encoded: ...


@part
@dataclass(frozen=True)
class FullStep:
    """Keep all of it."""

    def __call__(self, delta: Encoded, rng: Rng) -> Encoded:
        return delta


@part
@dataclass(frozen=True)
class RandomFraction:
    """Keep a fraction, drawn uniformly for every sample: the theorem's (UDP-x) has RandomFraction(0, 1)."""

    least: float
    most: float

    def __post_init__(self) -> None:
        if not 0 <= self.least < self.most <= 1:
            raise ValueError(f"RandomFraction needs 0 <= least < most <= 1, got {self.least} and {self.most}")

    def __call__(self, delta: Encoded, rng: Rng) -> Encoded:
        fraction = self.least + (self.most - self.least) * rng.uniform(delta.flatten(1)[:, 0])
        return delta * fraction.view(-1, *[1] * (delta.ndim - 1))


@part
@dataclass(frozen=True)
class Ascent:
    steps: Steps
    step: Step
    start: Start = AtCenter()
    until: Until = Never()
    fraction: Fraction = FullStep()


def _check_steps(name: str, steps: int) -> None:
    if not isinstance(steps, int):
        raise ValueError(f"{name} must be a Python whole number, got {steps!r}: call int()")
    if steps < 1:
        raise ValueError(f"{name} must be a whole number of at least 1 step, got {steps}")


def _check_size(name: str, size: float) -> None:
    check_python_number(name, size)
    if not 0 < size < math.inf:
        raise ValueError(f"{name} must be in (0, inf), got {size}")
