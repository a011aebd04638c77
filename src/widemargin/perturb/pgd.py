"""Projected gradient descent from the clean point: as a search of the loss, and as an attack on the margin."""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial

import torch

from widemargin.perturb.ascent import Ascent, Fixed, Steepest
from widemargin.perturb.attack import Classifier, Perturbed, check_counts, perturbed
from widemargin.perturb.balls import Ball
from widemargin.perturb.gradient import slope_or_flat
from widemargin.perturb.losses import likeliest_others
from widemargin.perturb.objectives import Objective, height, margin_loss, perturbed_loss, target_margin
from widemargin.perturb.search import Search
from widemargin.rng import AnyRng
from widemargin.shapes import Encoded, Labels, PerSample, Points
from widemargin.uncertainty.predictive import is_correct


def pgd_search(ball: Ball, alpha: float, steps: int) -> Search:
    """As published (Madry et al. 2018): steps of length alpha on the loss, of which the last place counts.

    What training climbs and validation measures by.  `PGD` is for finding a wrong class: decision 25 says what differs.
    """
    return Search(perturbed_loss, ball, Ascent(Fixed(steps), Steepest(alpha)))


@dataclass(frozen=True)
class PGD:
    """As an attack: steps of 2.5 radii in all on the margin of the answer, of which the highest place counts.

    With `targets`, towards each of so many of the likeliest other classes in turn instead of the best at each step.
    """

    ball: Ball
    steps: int
    targets: int = 0
    loss: Objective = margin_loss
    """What is climbed without targets."""

    def __post_init__(self) -> None:
        check_counts(self, steps=self.steps)

    @property
    def name(self) -> str:
        return f"pgd-{self.steps}" + (f" ({self.targets} targets)" if self.targets else "")

    def __call__(self, model: Classifier, inputs: Points, labels: Labels, rng: AnyRng) -> Perturbed:
        points = self._untargeted(model, inputs, labels) if self.targets == 0 else self._targeted(model, inputs, labels)
        return perturbed(self.ball, inputs, points)

    def _untargeted(self, model: Classifier, inputs: Points, labels: Labels) -> Points:
        return self._climbed(model, inputs, labels, self.loss)

    def _targeted(self, model: Classifier, inputs: Points, labels: Labels) -> Points:
        with torch.no_grad():
            answers = model(inputs)
        points, left = inputs.clone(), is_correct(answers, labels)
        for targets in likeliest_others(answers, labels, min(self.targets, answers.shape[1] - 1)).unbind(1):
            rows = left.nonzero()[:, 0]
            if len(rows) == 0:
                break
            points[rows] = self._climbed(model, inputs[rows], labels[rows], target_margin, targets[rows])
            with torch.no_grad():
                left[rows] = is_correct(model(points[rows]), labels[rows])
        return points

    def _climbed(
        self, model: Classifier, inputs: Points, labels: Labels, loss: Objective, targets: Labels | None = None
    ) -> Points:
        best, here = torch.full((len(inputs),), -torch.inf, device=inputs.device), inputs
        points = inputs.clone()
        climbed = partial(height, loss, labels=labels, targets=targets)
        for _ in range(self.steps):
            value, uphill = slope_or_flat(model, here, climbed)
            best = _keep_better(points, best, here, value)
            here = stepped(self.ball, inputs, here, uphill, 2.5 * self.ball.radius / self.steps)
        # Of the last place only the height counts.
        with torch.no_grad():
            _keep_better(points, best, here, climbed(model(here)))
        return points


def _keep_better(points: Points, best: PerSample, here: Points, value: PerSample) -> PerSample:
    """Write higher places into the points; the heights of the points then."""
    # Logits that are no numbers are a wrong class, so no place is better.
    value = value.nan_to_num(torch.inf).to(best)
    better = value > best
    points[better] = here[better]
    return torch.maximum(best, value)


def stepped(ball: Ball, inputs: Points, points: Points, uphill: Encoded, length: float) -> Points:
    """One steepest step within ball and box."""
    step = length * ball.steepest(ball.box.inward(uphill, points))
    return inputs + ball.project(points + step - inputs, inputs)
