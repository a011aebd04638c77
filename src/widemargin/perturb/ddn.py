"""DDN: minimum-norm attack in l2, on spheres that shrink inside the wrong class and grow outside it."""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial

import torch
from torch import Tensor

from widemargin.perturb.attack import Classifier, Perturbed, perturbed
from widemargin.perturb.balls import L2, OPEN, UNIT, Box
from widemargin.perturb.gradient import slope
from widemargin.perturb.line_search import Nearest, fade, farthest
from widemargin.perturb.rows import per_row, wrong
from widemargin.rng import AnyRng, RowRng
from widemargin.shapes import Labels, Points

# Lengths whose squares a float of 32 bits holds with all of its digits.
_SMALL, _LARGE = 1e-15, 1e15


@dataclass(frozen=True)
class DDN:
    """Decoupled direction and norm (Rony et al. 2019, Alg. 1).

    Two departures make it free of the scale of inputs and logits.  The first radius is that of the linear model at the
    point, not 1, and steps are shares of the radius.  It climbs the log-odds of a wrong class: the direction is that of
    the cross-entropy, but it does not vanish where the classifier is sure.
    """

    box: Box = UNIT
    steps: int = 100
    gamma: float = 0.05
    """By which share the radius shrinks or grows."""

    name = "DDN"

    def __post_init__(self) -> None:
        check_steps(self.name, self.steps, self.gamma)

    def __call__(self, model: Classifier, inputs: Points, labels: Labels, rng: AnyRng) -> Perturbed:
        ball, sphere, rows = L2(0.0, self.box), L2(1.0, OPEN), rng.by_row(len(inputs))
        seen, most = Nearest(ball, inputs), farthest(ball, inputs)
        delta, radius = torch.zeros_like(inputs), torch.zeros_like(most)
        for step in range(self.steps):
            answers, height, gradient = slope(model, inputs + delta, partial(_log_odds, labels=labels))
            gradient, across = self.box.free(gradient), wrong(answers, labels)
            seen.see(inputs + delta, across)
            if step == 0:
                radius = first_radius(height, ball.dual_norm(gradient), most)
            else:
                radius = (radius * torch.where(across, 1 - self.gamma, 1 + self.gamma)).minimum(most)
            uphill = self.box.free(direction(self.box.inward(gradient, inputs + delta), rows, step))
            delta = delta + per_row(radius, delta) * fade(1.0, 0.01, step / self.steps) * uphill
            delta = self.box.clamp(sphere.steepest(delta) * per_row(radius, delta), inputs)
        return perturbed(ball, inputs, seen.places)


def direction(gradient: Tensor, rng: RowRng, step: int) -> Tensor:
    """The gradient with l2 length 1; where there is none, any direction."""
    length = L2(1.0, OPEN).norm(gradient)
    unit = gradient / per_row(length.clamp_min(_SMALL), gradient)
    odd = ~((length > _SMALL) & (length < _LARGE))
    if bool(odd.any()):
        unit[odd] = _scaled_direction(gradient[odd], rng.at(odd), step)
    return unit


def _scaled_direction(gradient: Tensor, rng: RowRng, step: int) -> Tensor:
    """Of few rows: of a tiny or a huge gradient, or of none."""
    flat = (gradient == 0).flatten(1).all(1)
    if bool(flat.any()):
        drawn = rng.of("where it is flat").at(flat).normal(gradient[0].numel(), draw=step).to(gradient)
        gradient[flat] = drawn.view_as(gradient[flat])
    return L2(1.0, OPEN).steepest(gradient)


def first_radius(height: Tensor, climb: Tensor, most: Tensor) -> Tensor:
    """Where the boundary would be if the classifier were linear; 1 if that says nothing."""
    radius = height.abs() / climb
    return torch.where(radius.isfinite() & (radius > 0), radius, 1.0).minimum(most)


def check_steps(name: str, steps: int, gamma: float) -> None:
    if steps < 1:
        raise ValueError(f"{name}.steps must be a whole number of at least 1, got {steps}")
    if not 0 < gamma < 1:
        raise ValueError(f"{name}.gamma must be in (0, 1), got {gamma}")


def _log_odds(answers: Tensor, labels: Tensor) -> Tensor:
    column = labels[:, None]
    return answers.scatter(1, column, -torch.inf).logsumexp(1) - answers.gather(1, column)[:, 0]
