"""Where is a network cut in two?  Perturbations are added to what the first half returns."""

from typing import NamedTuple

from torch import nn


class Cut(NamedTuple):
    encoder: nn.Module
    head: nn.Module


def at_input(network: nn.Module) -> Cut:
    """Perturb the inputs themselves."""
    return Cut(nn.Identity(), network)


def after(network: nn.Sequential, layers: int) -> Cut:
    """Perturb what the first `layers` layers of a Sequential return: its latent space."""
    if not 0 < layers < len(network):
        raise ValueError(f"layers must be in 1..{len(network) - 1} for {len(network)} layers, got {layers}")
    return Cut(network[:layers], network[layers:])
