"""A context in which a network is observed: frozen, its buffers and torch's generator as before afterwards."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import torch
from torch import Tensor, nn

from widemargin.data.dataset import Examples
from widemargin.measure.accuracy import BATCH_SIZE, iter_batches
from widemargin.perturb.frozen import frozen
from widemargin.shapes import MemberLogits, Points
from widemargin.uncertainty.network import Network

# Two passes on the same numbers may differ by rounding on some devices.
ROUNDING = 1e-5


@contextmanager
def observed(network: nn.Module) -> Iterator[None]:
    """As under attack, and everything is as before afterwards."""
    with state_kept(network), frozen(network):
        yield


@contextmanager
def state_kept(network: nn.Module) -> Iterator[None]:
    """Buffers and torch's global generator: a pass in train mode, or of a network that draws, would move them."""
    kept = [(buffer, buffer.clone()) for buffer in network.buffers()]
    with torch.random.fork_rng():
        try:
            yield
        finally:
            with torch.no_grad():
                for buffer, before in kept:
                    buffer.copy_(before)


def raw_answers(network: Network, inputs: Points) -> MemberLogits:
    return network.logits(network.encode(inputs))


def labels_of(examples: Examples, like: Tensor) -> Tensor:
    return torch.cat([labels for _, _, labels in iter_batches(examples, BATCH_SIZE)]).to(like.device)
