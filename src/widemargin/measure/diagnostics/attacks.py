"""Which points break when somebody tries?  The plain attacks that diagnoses need."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import torch
from jaxtyping import Bool
from torch import Tensor

from widemargin.data.dataset import Examples, row_numbers
from widemargin.fast import accelerated
from widemargin.measure.accuracy import BATCH_SIZE, iter_batches
from widemargin.measure.diagnostics.observe import observed
from widemargin.perturb.attack import Attack, Classifier, Noise
from widemargin.perturb.balls import Ball
from widemargin.perturb.losses import Loss, Margin, likeliest_others, towards
from widemargin.rng import Rng
from widemargin.shapes import Encoded, Labels, LogProbs, PerSample, Points
from widemargin.uncertainty.network import Network
from widemargin.uncertainty.predictive import is_correct

Broken = Bool[Tensor, " B"]
"""Which points are right where they are and wrong where an attack took them."""
MANY_STEPS = 100


@dataclass(frozen=True)
class PGD:
    """Steepest steps on the margin of the logits from the clean point, 2.5 radii in all: nothing random helps it.

    With `targets`, towards each of so many of the likeliest other classes in turn instead of the best at each step.
    """

    ball: Ball
    steps: int
    targets: int = 0

    @property
    def name(self) -> str:
        return f"pgd-{self.steps}" + (f" ({self.targets} targets)" if self.targets else "")

    def __call__(self, classify: Classifier, inputs: Points, labels: Labels, noise: Noise) -> Points:
        if self.targets == 0:
            return self._climbed(classify, inputs, labels, Margin())
        with torch.no_grad():
            answers = classify(inputs)
        found, left = inputs.clone(), is_correct(answers, labels)
        for targets in likeliest_others(answers, labels, min(self.targets, answers.shape[1] - 1)).unbind(1):
            rows = left.nonzero()[:, 0]
            if len(rows) == 0:
                break
            found[rows] = self._climbed(classify, inputs[rows], labels[rows], _Towards(targets[rows]))
            with torch.no_grad():
                left[rows] = is_correct(classify(found[rows]), labels[rows])
        return found

    def _climbed(self, classify: Classifier, inputs: Points, labels: Labels, loss: Loss) -> Points:
        best, place = torch.full((len(inputs),), -torch.inf, device=inputs.device), inputs
        found = inputs.clone()
        for step in range(self.steps + 1):
            height, slope = slope_of(classify, place, labels, loss)
            # An answer that is not a number is wrong, so no place is better.
            better = (height := height.nan_to_num(torch.inf)) > best
            found[better], best = place[better], torch.maximum(best, height.to(best))
            if step < self.steps:
                place = stepped(self.ball, inputs, place, slope, 2.5 * self.ball.radius / self.steps)
        return found


@dataclass(frozen=True, eq=False)
class _Towards:
    targets: Labels
    name = "towards"

    def __call__(self, logits: LogProbs, labels: Labels) -> PerSample:
        return towards(logits, labels, self.targets)


def broken_by(network: Network, examples: Examples, attack: Attack, seed: int = 0) -> Broken:
    """Which points the attack breaks; those that were wrong before do not count."""
    return broken_at(network, examples, places_of(network, examples, attack, seed))


def places_of(network: Network, examples: Examples, attack: Attack, seed: int = 0) -> Iterator[Points]:
    with observed(network):
        quick = accelerated(network, examples[torch.arange(min(BATCH_SIZE, len(examples)))][0])
        made = [
            attack(quick, inputs, labels, Noise(seed, row_numbers(examples, rows).to(inputs.device))).detach()
            for rows, inputs, labels in iter_batches(examples, BATCH_SIZE)
        ]
    return iter(made)


def broken_at(network: Network, examples: Examples, places: Iterator[Points]) -> Broken:
    with observed(network), torch.no_grad():
        return torch.cat(
            [
                is_correct(network(inputs), labels) & ~is_correct(network(next(places)), labels)
                for _, inputs, labels in iter_batches(examples, BATCH_SIZE)
            ]
        )


def random_places(examples: Examples, ball: Ball, seed: int, draw: int) -> Iterator[Points]:
    for rows, inputs, _ in iter_batches(examples, BATCH_SIZE):
        rng = Rng.seeded(*row_numbers(examples, rows).tolist(), purpose=f"noise {seed} {draw}", device=inputs.device)
        # Uniform and at corners in turn.
        corner = ball.radius * ball.steepest(rng.normal(inputs))
        delta = ball.project(corner, inputs) if draw % 2 else ball.sample(inputs, rng)
        yield inputs + delta


def stepped(ball: Ball, inputs: Points, place: Points, slope: Encoded, length: float) -> Points:
    step = length * ball.steepest(ball.box.inward(slope, place))
    return inputs + ball.project(place + step - inputs, inputs)


def slope_of(classify: Classifier, points: Points, labels: Labels, loss: Loss) -> tuple[PerSample, Encoded]:
    """The loss and its gradient: 0 where there is none, also if the network cut it off."""
    points = points.detach().requires_grad_()
    with torch.enable_grad():
        height = loss(classify(points), labels)
        slope = None
        if height.requires_grad:
            (slope,) = torch.autograd.grad(height.sum(), points, allow_unused=True)
    return height.detach(), torch.zeros_like(points) if slope is None else slope.nan_to_num(0.0, 0.0, 0.0)
