"""Which points an attack breaks, as diagnoses ask for it."""

from __future__ import annotations

from collections.abc import Iterator

import torch
from jaxtyping import Bool
from torch import Tensor

from widemargin.data.dataset import Examples, row_numbers
from widemargin.fast.accelerate import accelerated
from widemargin.measure.accuracy import BATCH_SIZE, iter_batches
from widemargin.measure.diagnostics.observe import observed
from widemargin.perturb.attack import Attack
from widemargin.perturb.balls import Ball
from widemargin.rng import Rng, RowRng
from widemargin.shapes import Points
from widemargin.uncertainty.network import Network
from widemargin.uncertainty.predictive import is_correct

Broken = Bool[Tensor, " B"]
"""Which points are right where they are and wrong where an attack took them."""
MANY_STEPS = 100
DRAWS = 20


def broken_by(network: Network, examples: Examples, attack: Attack, seed: int = 0) -> Broken:
    """Which points the attack breaks; those that were wrong before do not count."""
    return broken_at(network, examples, places_of(network, examples, attack, seed))


def places_of(network: Network, examples: Examples, attack: Attack, seed: int = 0) -> Iterator[Points]:
    with observed(network):
        quick = accelerated(network, examples[torch.arange(min(BATCH_SIZE, len(examples)))][0])
        made = [
            attack(quick, inputs, labels, RowRng(seed, row_numbers(examples, rows).to(inputs.device))).points.detach()
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
        corner = ball.radius * ball.steepest(ball.box.free(rng.normal(inputs)))
        delta = ball.project(corner, inputs) if draw % 2 else ball.sample(inputs, rng)
        yield inputs + delta
