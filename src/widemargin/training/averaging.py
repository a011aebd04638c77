"""Weight averages: the network to evaluate, with batch-norm statistics recomputed where the average needs that."""

from __future__ import annotations

from collections.abc import Iterator

import torch
from torch import Tensor
from torch.optim.swa_utils import update_bn

from widemargin.data.dataset import Examples
from widemargin.rng import Rng
from widemargin.training.loop import Training
from widemargin.training.plan import Plan
from widemargin.uncertainty.network import Network

_BATCH_SIZE = 256


def averaged_network(training: Training, examples: Examples, plan: Plan) -> Network:
    """The network to evaluate and save: the average as soon as there is one, with its own batch-norm statistics."""
    if training.average is None or int(training.average.n_averaged) == 0:
        return training.network
    network = training.average.module
    assert isinstance(network, Network)
    if plan.average.recounts:
        # Train mode draws dropout from the global generator: lend it one that depends on nothing.
        with Rng.seeded(0, purpose="batch-norm of an average").as_global():
            update_bn(_inputs(examples, plan.batch or _BATCH_SIZE), network)
    return network


def _inputs(examples: Examples, size: int) -> Iterator[Tensor]:
    for rows in torch.arange(len(examples)).split(size):
        yield examples[rows][0]
