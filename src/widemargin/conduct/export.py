"""How does a trained network leave this library?"""

from __future__ import annotations

import logging
import warnings
from pathlib import Path

import torch
from safetensors.torch import save
from torch import Tensor, nn

from widemargin.conduct.description import read_description, read_trial
from widemargin.conduct.folder import RunFolder
from widemargin.data.extras import needed
from widemargin.run import Trial
from widemargin.train.checkpoint import load_weights, write_whole
from widemargin.uncertainty.single import Single


def trained(folder: RunFolder, weights: str) -> tuple[Trial, nn.Module]:
    """A run's network, as plain torch, in eval mode, with its best or last weights."""
    trial = read_trial(folder.description)
    module = trial.build()
    path = folder.best if weights == "best" and folder.best.exists() else folder.last
    if not path.exists():
        raise ValueError(f"{folder.path} has no weights yet: let it train for an epoch, `widemargin resume` goes on")
    load_weights(path, Single(trial.place.cut(module)))
    return trial, module.eval()


def export(folder: RunFolder, to: Path, weights: str = "best") -> None:
    """Weights under the network's own names (.safetensors), or the whole network: logits of a batch of any size."""
    writers = {".safetensors": _write_weights, ".onnx": _write_onnx, ".pt2": _write_program}
    if to.suffix not in writers:
        raise ValueError(f"--to must end in {', '.join(writers)}, got {to}")
    _, module = trained(folder, weights)
    shape = read_description(folder.description)["data"]["shape"]
    # Neither 0 nor 1 examples: a tracer takes these for constants.
    writers[to.suffix](module, torch.full((3, *shape), 0.5), to)


def _write_weights(module: nn.Module, inputs: Tensor, to: Path) -> None:
    plain = {name: value.detach().contiguous().clone() for name, value in module.state_dict().items()}
    write_whole(to, save(plain, {"format": "pt"}))


def _write_program(module: nn.Module, inputs: Tensor, to: Path) -> None:
    program = torch.export.export(module, (inputs,), dynamic_shapes=({0: torch.export.Dim("batch")},))
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
            module,
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
