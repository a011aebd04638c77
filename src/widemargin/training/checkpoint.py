"""Checkpoints: the state of a training in one file, written atomically; reading it executes no code."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn
from torch.optim import Optimizer

from widemargin.files import Note, read_tensors, write_tensors
from widemargin.training.loop import Training


def save_training(path: Path, training: Training, key: str, more: Mapping[str, Any]) -> None:
    """Everything that `continue_training` needs, and `more` of the caller: tensors, or what a note can hold."""
    tensors = _under("network", training.network.state_dict())
    if training.average is not None:
        tensors |= _under("average", training.average.state_dict())
    values: dict[str, Any] = {}
    for number, state in training.optimizer.state_dict()["state"].items():
        for name, value in state.items():
            place = f"optimizer/{number}/{name}"
            if isinstance(value, Tensor):
                tensors[place] = value
            else:
                values[place] = value
    tensors |= _under("more", {name: value for name, value in more.items() if isinstance(value, Tensor)})
    noted = {name: value for name, value in more.items() if not isinstance(value, Tensor)}
    write_tensors(path, tensors, {"key": key, "update": training.update, "optimizer": values, "more": noted})


def load_training(path: Path, training: Training, key: str) -> Note:
    """Restore a training, and return `more`; if the file does not fit, the training is unchanged."""
    tensors, note = read_tensors(path)
    if note.get("key") != key:
        raise ValueError(f"{path} must be of run {key}, got {note.get('key')}: choose another folder")
    try:
        _check_fits(tensors, "network", training.network)
        if training.average is not None:
            _check_fits(tensors, "average", training.average)
        state = _optimizer_state(tensors, note["optimizer"], training.optimizer)
        update, more = int(note["update"]), {**note["more"], **_of(tensors, "more")}
    except (KeyError, TypeError, ValueError) as problem:
        raise ValueError(f"{path} does not fit this training ({problem}): delete it to start over") from None
    training.network.load_state_dict(_of(tensors, "network"))
    if training.average is not None:
        training.average.load_state_dict(_of(tensors, "average"))
    training.optimizer.load_state_dict(
        {"state": state, "param_groups": training.optimizer.state_dict()["param_groups"]}
    )
    training.update = update
    return more


def save_weights(path: Path, network: nn.Module, note: Mapping[str, Any]) -> None:
    write_tensors(path, network.state_dict(), note)


def load_weights(path: Path, network: nn.Module) -> Note:
    """Load the weights into the network, and return the note."""
    tensors, note = read_tensors(path)
    try:
        _check_fits(_under("network", tensors), "network", network)
    except ValueError as problem:
        raise ValueError(
            f"{path} does not fit this network ({problem}): name the run that it belongs to, or train again if an "
            "older version wrote it"
        ) from None
    network.load_state_dict(tensors)
    return note


def _under(folder: str, tensors: Mapping[str, Tensor]) -> dict[str, Tensor]:
    return {f"{folder}/{name}": value for name, value in tensors.items()}


def _of(tensors: Mapping[str, Tensor], folder: str) -> dict[str, Tensor]:
    return {name.removeprefix(f"{folder}/"): value for name, value in tensors.items() if name.startswith(f"{folder}/")}


def _check_fits(tensors: Mapping[str, Tensor], folder: str, module: nn.Module) -> None:
    stored = {name: (list(value.shape), value.dtype) for name, value in _of(tensors, folder).items()}
    wanted = {name: (list(value.shape), value.dtype) for name, value in module.state_dict().items()}
    for name in sorted(stored.keys() | wanted.keys()):
        if stored.get(name) != wanted.get(name):
            raise ValueError(f"its {folder} {name!r} must be {wanted.get(name)}, got {stored.get(name)}")


def _optimizer_state(
    tensors: Mapping[str, Tensor], values: Mapping[str, Any], optimizer: Optimizer
) -> dict[int, dict[str, Any]]:
    parameters = [parameter for group in optimizer.param_groups for parameter in group["params"]]
    state: dict[int, dict[str, Any]] = {}
    for place, value in {**_of(tensors, "optimizer"), **_of(values, "optimizer")}.items():
        number, name = place.split("/", 1)
        parameter = parameters[int(number)]
        if isinstance(value, Tensor) and value.ndim and value.shape != parameter.shape:
            raise ValueError(f"its optimizer's {place!r} must be {list(parameter.shape)}, got {list(value.shape)}")
        # In the parameter's own memory layout, which the optimiser relies on.
        like = isinstance(value, Tensor) and value.shape == parameter.shape
        state.setdefault(int(number), {})[name] = torch.empty_like(parameter).copy_(value).detach() if like else value
    return state
