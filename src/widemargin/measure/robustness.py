"""Robust accuracy under a search: how often a network stays right wherever the search moves a point."""

from __future__ import annotations

import torch

from widemargin.data.dataset import Examples, row_numbers
from widemargin.fast.accelerate import accelerated
from widemargin.measure.accuracy import BATCH_SIZE, Mask, fraction, iter_batches
from widemargin.perturb.categories import WithCategoryChanges
from widemargin.perturb.frozen import frozen
from widemargin.perturb.objectives import (
    Objective,
    clean_entropy,
    clean_loss,
    perturbed_entropy,
    perturbed_expected_entropy,
    perturbed_gap,
    perturbed_log_entropy,
    perturbed_log_expected_entropy,
    perturbed_log_mutual_information,
    perturbed_log_variation_ratio,
    perturbed_mutual_information,
    perturbed_variation_ratio,
)
from widemargin.perturb.search import Search
from widemargin.rng import RowRng
from widemargin.uncertainty.input_space import InputSpace
from widemargin.uncertainty.network import Network
from widemargin.uncertainty.predictive import is_correct

_NO_ATTACK: tuple[Objective, ...] = (
    clean_loss,
    clean_entropy,
    perturbed_entropy,
    perturbed_log_entropy,
    perturbed_mutual_information,
    perturbed_log_mutual_information,
    perturbed_expected_entropy,
    perturbed_log_expected_entropy,
    perturbed_variation_ratio,
    perturbed_log_variation_ratio,
    perturbed_gap,
    -perturbed_gap,
)


def robust(
    network: Network,
    examples: Examples,
    attack: Search | WithCategoryChanges,
    seed: int = 0,
    restarts: int = 1,
    rows: int = BATCH_SIZE,
) -> Mask:
    """For every example, whether it is right where it is and wherever the attack takes it, in all restarts.

    Inputs are attacked, also of a network that is cut elsewhere.  What is drawn for an example follows from the seed,
    the restart and its number, so the answer does not depend on how many `rows` are computed at once.
    """
    search = attack.walk if isinstance(attack, WithCategoryChanges) else attack
    check_climbs_loss(search)
    _check_restarts(search, restarts)
    whole = InputSpace(network)
    batches = []
    with frozen(network):
        quick = InputSpace(accelerated(network, examples[torch.arange(min(rows, len(examples)))][0]))
        for numbers, inputs, labels in iter_batches(examples, rows):
            with torch.no_grad():
                standing = is_correct(whole(inputs), labels)
            for restart in range(restarts):
                left = standing.nonzero()[:, 0]
                if len(left) == 0:
                    break
                rows_left = row_numbers(examples, numbers[left.cpu()]).to(inputs.device)
                moved = attack(quick, inputs[left], labels[left], RowRng(seed, rows_left, str(restart)))
                with torch.no_grad():
                    standing[left] = is_correct(whole(moved.points), labels[left])
            batches.append(standing)
    return torch.cat(batches)


def robust_accuracy(
    network: Network, examples: Examples, attack: Search | WithCategoryChanges, seed: int = 0, restarts: int = 1
) -> float:
    """The share of examples that stay right."""
    return fraction(robust(network, examples, attack, seed, restarts))


def check_climbs_loss(attack: Search) -> None:
    weak = {term for objective in _NO_ATTACK for _, term in objective.terms}
    climbed = [term for _, term in attack.objective.terms if term not in weak]
    if not climbed:
        raise ValueError(
            f"robust accuracy must be measured by a search that climbs the loss, got one that climbs "
            f"{attack.objective}: uncertainty is highest at the boundary, so such a search stops there by design"
        )


def _check_restarts(attack: Search, restarts: int) -> None:
    if restarts < 1:
        raise ValueError(f"restarts must be a whole number of at least 1, got {restarts}")
    if restarts > 1 and attack.ascent.start.at_center:
        raise ValueError(f"{restarts} restarts from the clean point all go the same way: start the attack InBall()")
