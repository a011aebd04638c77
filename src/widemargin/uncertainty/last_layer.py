"""The last linear layer of a network, and the features it gets."""

from __future__ import annotations

from torch import nn


def pop_last_linear(network: nn.Module) -> nn.Linear:
    """Remove the last linear layer, in place, and return it; the network then returns the features it got.

    Only layers that do not change the logits may follow it.
    """
    layers = [(name, module) for name, module in network.named_modules() if isinstance(module, nn.Linear) and name]
    if not layers:
        raise ValueError(
            f"the network must end in an nn.Linear that is a submodule, got none in a {type(network).__name__}: wrap "
            "it in nn.Sequential"
        )
    name, last = layers[-1]
    parent, _, child = name.rpartition(".")
    network.get_submodule(parent)._modules[child] = nn.Identity()
    return last
