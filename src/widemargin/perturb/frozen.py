"""The one context in which a network is searched, attacked or measured: nothing of it trains or changes."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from torch import nn

from widemargin.uncertainty.network import in_eval_mode


@contextmanager
def frozen(network: nn.Module) -> Iterator[None]:
    """In eval mode, without gradients of parameters; all is as before afterwards."""
    with in_eval_mode(network), without_parameter_gradients(network):
        yield


@contextmanager
def without_parameter_gradients(network: nn.Module) -> Iterator[None]:
    """Half of it: for a search in the mode in which the network trains."""
    trained = [parameter for parameter in network.parameters() if parameter.requires_grad]
    for parameter in trained:
        parameter.requires_grad_(False)
    try:
        yield
    finally:
        for parameter in trained:
            parameter.requires_grad_(True)
