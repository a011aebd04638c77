"""How often is a network right?"""

from __future__ import annotations

from collections.abc import Iterator

import torch
from jaxtyping import Bool
from torch import Tensor

from widemargin.data.examples import Examples
from widemargin.uncertainty.network import Network, in_eval_mode

Right = Bool[Tensor, " B"]
ROWS_AT_ONCE = 500


def right(network: Network, examples: Examples, rows_at_once: int = ROWS_AT_ONCE) -> Right:
    """For every example, whether the class with the highest mean probability is its own.  The network stays as it is.

    An answer that is not a number is wrong.
    """
    with torch.no_grad(), in_eval_mode(network):
        return torch.cat([named_right(network(inputs), labels) for _, inputs, labels in slices(examples, rows_at_once)])


def accuracy(network: Network, examples: Examples, rows_at_once: int = ROWS_AT_ONCE) -> float:
    """The share of examples that are classified right."""
    return share(right(network, examples, rows_at_once))


def share(flags: Right) -> float:
    return int(flags.sum()) / len(flags)


def named_right(answers: Tensor, labels: Tensor) -> Tensor:
    return (answers.argmax(-1) == labels) & answers.isfinite().any(-1) & ~answers.isnan().any(-1)


def slices(examples: Examples, rows_at_once: int) -> Iterator[tuple[Tensor, Tensor, Tensor]]:
    """Row numbers, inputs and labels, in order and in bounded memory."""
    for rows in torch.arange(len(examples)).split(rows_at_once):
        inputs, labels = examples.batch(rows)
        yield rows, inputs, labels
