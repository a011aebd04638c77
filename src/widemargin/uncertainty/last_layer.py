"""What does the last linear layer see?"""

from __future__ import annotations

from torch import nn


def pop_last_linear(network: nn.Module) -> nn.Linear:
    """Leave the network without its last linear layer, in place: it returns the features that the layer was given.

    Nothing may follow it but what leaves its answer as it is.
    """
    found = [(name, module) for name, module in network.named_modules() if isinstance(module, nn.Linear) and name]
    if not found:
        raise ValueError(
            f"the network must end in an nn.Linear that is a submodule, got none in a {type(network).__name__}: wrap "
            "it in nn.Sequential"
        )
    name, last = found[-1]
    parent, _, child = name.rpartition(".")
    network.get_submodule(parent)._modules[child] = nn.Identity()
    return last
