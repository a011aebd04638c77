"""Any torch module as a Network; the user's module is wrapped, never changed."""

from __future__ import annotations

import copy

import torch
from torch import Tensor, nn

from widemargin.uncertainty.as_logits import AsLogits
from widemargin.uncertainty.cuts import at_input
from widemargin.uncertainty.network import Network, check_is_module
from widemargin.uncertainty.single import Single


def as_network(model: nn.Module) -> Network:
    """A Network as it is; any other module as one member that is perturbed at its input.

    The module becomes a part of the wrapper and not the other way round, so its own `state_dict` stays as it is.
    """
    check_is_module(model)
    return model if isinstance(model, Network) else Single(at_input(AsLogits(model, type(model).__name__)))


def on_device(model: nn.Module, device: torch.device | str | None) -> nn.Module:
    """The module itself where it is to be measured; else a copy there, since `.to` would move the user's own."""
    check_is_module(model)
    wanted, here = (None if device is None else checked_device(device)), device_of(model)
    if wanted is None or wanted == here or (wanted.index is None and wanted.type == here.type):
        return model
    return copy.deepcopy(model).to(wanted)


def checked_device(device: torch.device | str, name: str = "device") -> torch.device:
    """One that this computer has."""
    if not isinstance(device, str | torch.device):
        raise ValueError(
            f'{name} must be one such as "cpu" or "cuda", got a {type(device).__name__}: inputs and labels are a pair, '
            "(x, y)"
        )
    try:
        found = torch.device(device)
        # A device without values, such as meta, is none to compute on.
        torch.zeros(1, device=found).item()
    except (RuntimeError, AssertionError, ImportError):
        raise ValueError(f"{name} must be one that this computer has, got {device}: take cpu") from None
    return found


def device_of(model: nn.Module) -> torch.device:
    tensor = _first_tensor(model)
    return torch.device("cpu") if tensor is None else tensor.device


def dtype_of(model: nn.Module) -> torch.dtype:
    """Of the numbers that it computes with."""
    tensor = _first_tensor(model)
    return torch.get_default_dtype() if tensor is None else tensor.dtype


def _first_tensor(model: nn.Module) -> Tensor | None:
    tensors = (tensor for part in (model.parameters(), model.buffers()) for tensor in part)
    return next((tensor for tensor in tensors if tensor.is_floating_point()), None)
