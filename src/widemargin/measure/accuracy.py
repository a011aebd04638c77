"""How often is a network right?"""

from __future__ import annotations

from collections.abc import Iterator

import torch
from jaxtyping import Bool
from torch import Tensor

from widemargin.data.dataset import Examples
from widemargin.uncertainty.network import Network, in_eval_mode
from widemargin.uncertainty.predictive import is_correct

Mask = Bool[Tensor, " B"]
BATCH_SIZE = 500


def correct(network: Network, examples: Examples, batch_size: int = BATCH_SIZE) -> Mask:
    """For every example, whether the class with the highest mean probability is its own.  The network stays as it is.

    An answer that is not a number is wrong.
    """
    with torch.no_grad(), in_eval_mode(network):
        return torch.cat(
            [is_correct(network(inputs), labels) for _, inputs, labels in iter_batches(examples, batch_size)]
        )


def accuracy(network: Network, examples: Examples, batch_size: int = BATCH_SIZE) -> float:
    """The share of examples that are classified right."""
    return fraction(correct(network, examples, batch_size))


def fraction(flags: Mask) -> float:
    return int(flags.sum()) / len(flags)


def iter_batches(examples: Examples, batch_size: int) -> Iterator[tuple[Tensor, Tensor, Tensor]]:
    """Row numbers, inputs and labels, in order and in bounded memory."""
    if examples.has_unlabelled:
        raise ValueError("to measure, every row must have a label, got some without (-1): take dataset.labelled()")
    for rows in torch.arange(len(examples)).split(batch_size):
        inputs, labels = examples[rows]
        yield rows, inputs, labels
