"""Expectation over transformation: random networks are judged by many fixed draws, attacks climb the mean of a few."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from widemargin.data.dataset import Examples
from widemargin.fast.accelerate import accelerated
from widemargin.measure.accuracy import BATCH_SIZE
from widemargin.perturb.attack import Attack, Classifier, Perturbed, perturbed
from widemargin.perturb.balls import Ball
from widemargin.perturb.rows import per_row
from widemargin.rng import AnyRng, Rng
from widemargin.shapes import Labels, Points
from widemargin.uncertainty.drawn import Drawn, redrawn
from widemargin.uncertainty.network import Network, in_eval_mode
from widemargin.uncertainty.predictive import is_correct
from widemargin.uncertainty.randomised import Randomised

LEAST_DRAWS = 8
"""In an attack; more if the network itself has more."""
TIMES_VERIFIED = 8
"""So many times the draws of the attack judge what it found."""
_TRIED = 20
# By which shares of its way a place may be pushed outward, until many draws call it wrong.
_PUSHES = (0.01, 0.03, 0.1, 0.2, 0.4, 0.7, 1.0)
# Two passes on the same numbers may differ by rounding on some devices.
_ROUNDING = 1e-5


@dataclass(frozen=True)
class Draws:
    """How many."""

    attack: int
    """Whose mean the attacks climb, so that they see the mean of the gradients (expectation over transformations)."""
    verification: int
    """Whose mean decides whether a point is right or wrong; other ones than those of the attack."""


@dataclass(frozen=True, eq=False)
class EOT:
    """Who decides, and what attacks climb: the same network if nothing is drawn."""

    network: Network
    climbed: Network
    draws: Draws | None = None
    problem: str = ""
    """Why the answers stay random, if they do."""

    @property
    def rows_at_once(self) -> int:
        """So that as many answers are computed at once as for a network without draws."""
        return BATCH_SIZE if self.draws is None else max(1, BATCH_SIZE // self.draws.verification)

    def within(self, attacks: Sequence[Attack], ball: Ball) -> tuple[Attack, ...]:
        """Attacks in a ball.  The first comes again, on the mean that judges: a few draws may spare a point, too."""
        if self.draws is None:
            return tuple(attacks)
        last = Named(attacks[0], f"{attacks[0].name} on {self.draws.verification} draws")
        return (*(Verified(attack, self.climbed, ball) for attack in attacks), last)

    def shortest(self, attacks: Sequence[Attack], ball: Ball) -> tuple[Attack, ...]:
        """Attacks without a radius; of the ball, norm and box count."""
        if self.draws is None:
            return tuple(attacks)
        return tuple(Verified(attack, self.climbed, ball, may_leave=True) for attack in attacks)


@dataclass(frozen=True, eq=False)
class Named:
    """The same attack by another name."""

    attack: Attack
    name: str

    def __call__(self, model: Network, inputs: Points, labels: Labels, rng: AnyRng) -> Perturbed:
        return self.attack(model, inputs, labels, rng)


@dataclass(frozen=True, eq=False)
class Verified:
    """An attack that climbs the mean of a few draws, of which counts what the mean of many draws (`model`) confirms.

    A place that only the few call wrong is pushed outward if there is no radius.  A point that is then still broken by
    chance is attacked once more, on the mean of the many.
    """

    attack: Attack
    climbed: Network
    ball: Ball
    may_leave: bool = False
    """Whether the ball gives norm and box alone."""

    @property
    def name(self) -> str:
        return self.attack.name

    def __call__(self, model: Network, inputs: Points, labels: Labels, rng: AnyRng) -> Perturbed:
        rows, points = rng.by_row(len(inputs)), inputs.clone()
        with torch.no_grad():
            fit = is_correct(self.climbed(inputs), labels).nonzero()[:, 0]
        if len(fit):
            points[fit] = self.attack(self.climbed, inputs[fit], labels[fit], rows.at(fit)).points.detach()
        with torch.no_grad():
            # Who is wrong in the mean of the few where it is, was not attacked at all, and is among these.
            doubtful = ~is_correct(self.climbed(points), labels) & is_correct(model(points), labels)
            if self.may_leave:
                doubtful = self._pushed(model, inputs, labels, points, doubtful)
        again = doubtful.nonzero()[:, 0]
        if len(again):
            points[again] = self.attack(model, inputs[again], labels[again], rows.at(again)).points.detach()
        return perturbed(self.ball, inputs, points)

    def _pushed(self, classify: Classifier, inputs: Points, labels: Labels, places: Points, doubtful: Tensor) -> Tensor:
        """Who is doubtful still; the places of the others are moved."""
        for push in _PUSHES:
            rows = doubtful.nonzero()[:, 0]
            if len(rows) == 0:
                break
            start = inputs[rows]
            farther = start + self.ball.box.clamp((1 + push) * (places[rows] - start), start)
            across = ~is_correct(classify(farther), labels[rows])
            places[rows] = torch.where(per_row(across, start), farther, places[rows])
            doubtful = doubtful.index_put((rows,), ~across)
        return doubtful


def eot(network: Network, examples: Examples) -> EOT:
    """By fixed draws if there are any: members that are drawn, or a network that answers otherwise when asked again."""
    inputs, _ = examples[torch.arange(min(_TRIED, len(examples)))]
    varies = _varies(network, inputs)
    counts = [module.draws for module in network.modules() if isinstance(module, Drawn)]
    if not counts and not varies:
        return EOT(network, network)
    few = max(LEAST_DRAWS, *counts) if counts else LEAST_DRAWS
    draws = Draws(few, TIMES_VERIFIED * few)
    drawn = network if counts else Randomised(network, few)
    made = EOT(
        _for_measuring(redrawn(drawn, draws.verification, other=True)),
        accelerated(_for_measuring(redrawn(drawn, few)), inputs),
        draws,
    )
    try:
        still = varies and _varies(made.climbed, inputs)
    except (RuntimeError, ValueError) as problem:
        return EOT(network, network, problem=f"they cannot be fixed ({str(problem).splitlines()[0]})")
    return EOT(network, network, problem="not all of their chance is torch's generator's") if still else made


def _varies(network: Network, inputs: Points) -> bool:
    """Two passes in eval mode; always the same two, so that all processes see the same."""
    with torch.no_grad(), in_eval_mode(network):
        answers = []
        for number in range(2):
            with Rng.seeded(number, purpose="asked again").as_global():
                answers.append(network.logits(network.encode(inputs)).nan_to_num())
    first, second = answers
    return not bool(((first - second).abs() <= _ROUNDING * first.abs().amax(-1, keepdim=True)).all())


def _for_measuring(network: Network) -> Network:
    for parameter in network.parameters():
        parameter.requires_grad_(False)
    return network.eval()
