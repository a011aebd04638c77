"""Clean accuracy, and batches to measure on."""

from __future__ import annotations

from collections.abc import Iterator

import torch
from jaxtyping import Bool
from torch import Tensor

from widemargin.data.checks import signs_advice
from widemargin.data.dataset import Examples
from widemargin.uncertainty.network import Network, in_eval_mode
from widemargin.uncertainty.predictive import is_correct

Mask = Bool[Tensor, " B"]
BATCH_SIZE = 500


def correct(network: Network, examples: Examples, batch_size: int = BATCH_SIZE) -> Mask:
    """Whether each example is classified correctly, by the highest mean probability.  The network is unchanged.

    NaN logits count as misclassified.
    """
    with torch.no_grad(), in_eval_mode(network):
        return torch.cat(
            [is_correct(network(inputs), labels) for _, inputs, labels in iter_batches(examples, batch_size)]
        )


def accuracy(network: Network, examples: Examples, batch_size: int = BATCH_SIZE) -> float:
    """The fraction of examples that are classified correctly."""
    return fraction(correct(network, examples, batch_size))


def fraction(flags: Mask) -> float:
    return int(flags.sum()) / len(flags)


def check_all_labelled(examples: Examples) -> None:
    if examples.has_unlabelled:
        advice = signs_advice(examples.labels) or ": take dataset.labelled()"
        raise ValueError(f"to measure, every row must have a label, got some without (-1){advice}")


def iter_batches(examples: Examples, batch_size: int) -> Iterator[tuple[Tensor, Tensor, Tensor]]:
    """Row numbers, inputs and labels, in order and in bounded memory."""
    check_all_labelled(examples)
    for rows in torch.arange(len(examples)).split(batch_size):
        inputs, labels = examples[rows]
        yield rows, inputs, labels
