"""AutoAttack: how often a network stays right under several attacks in turn, point by point."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

import torch
from jaxtyping import Bool, Int
from torch import Tensor

from widemargin.data.dataset import Examples, row_numbers
from widemargin.fast.accelerate import accelerated
from widemargin.measure.accuracy import BATCH_SIZE, fraction
from widemargin.measure.eot import Draws, eot
from widemargin.perturb.attack import Attack, Within
from widemargin.perturb.balls import Ball
from widemargin.perturb.categories import FromChangedCategories
from widemargin.perturb.frozen import frozen
from widemargin.perturb.suites import standard
from widemargin.rng import RowRng
from widemargin.shapes import Labels, Points
from widemargin.uncertainty.network import Network, check_alone
from widemargin.uncertainty.predictive import is_correct

ROBUST, CLEAN = -1, 0
"""In `Attacked.broken_by`: nothing broke it; it was wrong before any attack.  The k-th attack is k."""


@dataclass(frozen=True, eq=False)
class Attacked:
    """What became of each point."""

    attacks: tuple[str, ...]
    """Their names, in order."""
    rows: Int[Tensor, " B"]
    """Which examples these are."""
    broken_by: Int[Tensor, " B"]
    points: Points
    """Where the network was found wrong; the example itself where it was not."""
    draws: Draws | None = None
    """How many decide and how many were attacked, if answers are drawn."""

    @property
    def standing(self) -> Bool[Tensor, " B"]:
        return self.broken_by == ROBUST

    @property
    def accuracy(self) -> float:
        """Before any attack."""
        return fraction(self.broken_by != CLEAN)

    @property
    def robust_accuracy(self) -> float:
        """After all of them."""
        return fraction(self.standing)

    @property
    def counts(self) -> dict[str, int]:
        """How many points were wrong as they were ("clean"), and how many each attack broke."""
        names = ("clean", *self.attacks)
        return {name: int((self.broken_by == number).sum()) for number, name in enumerate(names)}

    @staticmethod
    def joined(parts: Sequence[Attacked]) -> Attacked:
        """One value of several batches."""
        if len(parts) == 0:
            raise ValueError("there must be at least one batch to join, got none")
        if len({part.attacks for part in parts}) > 1:
            raise ValueError("batches can only be joined if the same attacks were made, got different ones")
        rows, broken_by, points = (
            torch.cat([getattr(part, name) for part in parts]) for name in ("rows", "broken_by", "points")
        )
        return Attacked(parts[0].attacks, rows, broken_by, points, parts[0].draws)


def autoattack(
    network: Network,
    examples: Examples,
    ball: Ball,
    attacks: Sequence[Attack] | None = None,
    seed: int = 0,
    rows: Tensor | None = None,
) -> Attacked:
    """All attacks in turn (by default the standard's, for as many classes as the network has) on all examples.

    Inputs are attacked, also of a network that is cut elsewhere.  What is drawn for an example follows from the seed
    and its row in the whole data, also of a selection.  `rows` selects examples: all by default.  A place outside of
    the ball or the box breaks nothing, whoever found it.

    If answers are drawn, attacks climb the mean of a few draws and the mean of many others decides: see `eot`.
    """
    return Attacked.joined(list(autoattack_batches(network, examples, ball, attacks, seed, rows)))


def autoattack_batches(
    network: Network,
    examples: Examples,
    ball: Ball,
    attacks: Sequence[Attack] | None = None,
    seed: int = 0,
    rows: Tensor | None = None,
    rows_at_once: int = BATCH_SIZE,
) -> Iterator[Attacked]:
    """The same, batch by batch as they are finished: who saves each can go on with the missing rows."""
    check_alone(network)
    chosen = torch.arange(len(examples)) if rows is None else rows
    if len(chosen) == 0:
        raise ValueError("there must be at least one example to attack, got none")
    judges = eot(network, examples)
    if judges.problem:
        raise ValueError(f"the network's answers are random, and nothing can be said of it, since {judges.problem}")
    rows_at_once = min(rows_at_once, judges.rows_at_once)
    quick = accelerated(judges.network, examples[chosen[:rows_at_once]][0])
    for batch in chosen.split(rows_at_once):
        inputs, labels = examples[batch]
        ball.box.check(inputs)
        with frozen(judges.network):
            classes = _classes(judges.network, inputs)
            chosen_attacks = standard(ball, classes, rows_at_once) if attacks is None else attacks
            made = judges.within([_within(attack, ball) for attack in chosen_attacks], ball)
            rng = RowRng(seed, row_numbers(examples, batch).to(inputs.device))
            yield replace(_attacked(judges.network, quick, made, inputs, labels, rng, batch), draws=judges.draws)


def _within(attack: Attack, ball: Ball) -> Attack:
    """If categories may change, the ball is around what a row becomes."""
    if isinstance(attack, FromChangedCategories):
        return replace(attack, attack=_within(attack.attack, ball))
    return Within(attack, ball)


def _classes(network: Network, inputs: Points) -> int:
    with torch.no_grad():
        return int(network(inputs[:1]).shape[-1])


def _attacked(
    network: Network,
    quick: Network,
    attacks: tuple[Attack, ...],
    inputs: Points,
    labels: Labels,
    rng: RowRng,
    rows: Tensor,
) -> Attacked:
    """Attacks see the accelerated copy; the network itself decides what they broke."""
    points = inputs.clone()
    with torch.no_grad():
        broken_by = torch.where(is_correct(network(inputs), labels), ROBUST, CLEAN)
    for number, attack in enumerate(attacks, start=1):
        left = (broken_by == ROBUST).nonzero()[:, 0]
        if len(left) == 0:
            break
        moved = attack(quick, inputs[left], labels[left], rng.at(left)).points.detach()
        with torch.no_grad():
            broken = ~is_correct(network(moved), labels[left])
        broken_by[left[broken]] = number
        points[left[broken]] = moved[broken]
    return Attacked(tuple(attack.name for attack in attacks), rows.cpu(), broken_by.cpu(), points)
