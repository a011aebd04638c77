"""How does a trained network leave this library?"""

from __future__ import annotations

import logging
import warnings
from collections.abc import Sequence
from pathlib import Path

import torch
from safetensors.torch import save
from torch import Tensor, nn

from widemargin.conduct.description import read_description, read_trial
from widemargin.conduct.folder import RunFolder
from widemargin.data.extras import needed
from widemargin.files import write_whole
from widemargin.run import OneNetwork, Trial
from widemargin.train.checkpoint import load_weights
from widemargin.uncertainty.plain import plain
from widemargin.uncertainty.single import Single


def trained(folder: RunFolder, weights: str) -> tuple[Trial, nn.Module]:
    """A run's network in eval mode, with its best or last weights.

    One network is plain torch again and returns logits; of several members it is the log of their mean probability.
    """
    trial = read_trial(folder.description)
    path = folder.best if weights == "best" and folder.best.exists() else folder.last
    if not path.exists():
        raise ValueError(f"{folder.path} has no weights yet: let it train for an epoch, `widemargin resume` goes on")
    if trial.members != OneNetwork():
        # As plain in memory as one network that is exported.
        network = trial.members.network(trial.build, trial.place, None)
        load_weights(path, network)
        return trial, network.eval()
    module = trial.build()
    load_weights(path, Single(trial.place.cut(module)))
    return trial, module.eval()


def export(folder: RunFolder, to: Path, weights: str = "best") -> None:
    """Weights under the network's own names (.safetensors), or the whole network: logits of a batch of any size."""
    _check_suffix(to)
    _, module = trained(folder, weights)
    write_network(module, read_description(folder.description)["data"]["shape"], to)


def write_network(network: nn.Module, shape: Sequence[int], to: Path) -> None:
    """A network in eval mode that takes points of this shape; draws are written as they are fixed."""
    _check_suffix(to)
    # Neither 0 nor 1 examples: a tracer takes these for constants.
    inputs = torch.full((3, *shape), 0.5)
    with torch.no_grad():
        # What is drawn at the first call must not be drawn by a tracer.
        network(inputs)
    _WRITERS[to.suffix](network, inputs, to)


def _check_suffix(to: Path) -> None:
    if to.suffix not in _WRITERS:
        raise ValueError(f"--to must end in {', '.join(_WRITERS)}, got {to}")


def _write_weights(module: nn.Module, inputs: Tensor, to: Path) -> None:
    weights = {name: value.detach().contiguous().clone() for name, value in module.state_dict().items()}
    write_whole(to, save(weights, {"format": "pt"}))


def _write_program(module: nn.Module, inputs: Tensor, to: Path) -> None:
    program = torch.export.export(plain(module), (inputs,), dynamic_shapes=({0: torch.export.Dim("batch")},))
    partial = to.with_name(f".partial-{to.name}")
    torch.export.save(program, partial)
    partial.replace(to)


def _write_onnx(module: nn.Module, inputs: Tensor, to: Path) -> None:
    for package in ("onnx", "onnxscript"):
        needed(package, "'widemargin[onnx]'", "an .onnx file")
    chatter = logging.getLogger("torch.onnx")
    before = chatter.level
    with warnings.catch_warnings():
        # What the exporter says of itself and of packages that are not needed.
        warnings.simplefilter("ignore")
        chatter.setLevel(logging.ERROR)
        program = torch.onnx.export(
            plain(module),
            (inputs,),
            dynamo=True,
            verbose=False,
            input_names=["points"],
            output_names=["logits"],
            dynamic_shapes=({0: torch.export.Dim("batch")},),
        )
        chatter.setLevel(before)
    assert program is not None
    partial = to.with_name(f".partial-{to.name}")
    program.save(partial)
    partial.replace(to)


_WRITERS = {".safetensors": _write_weights, ".onnx": _write_onnx, ".pt2": _write_program}
