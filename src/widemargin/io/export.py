"""Export of trained networks as .safetensors, .pt2 and .onnx."""

from __future__ import annotations

import io
import json
import logging
import warnings
from collections import OrderedDict
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import save
from torch import Tensor, nn

from widemargin.data.local import TableData
from widemargin.data.optional import import_optional
from widemargin.data.schema import Schema
from widemargin.files import Damaged, read_note, write_whole
from widemargin.io.scaling import run_scaling
from widemargin.runs.folder import RunFolder, best_again
from widemargin.runs.run import Run
from widemargin.runs.run_yaml import read_description, read_run
from widemargin.training.checkpoint import load_weights
from widemargin.uncertainty.estimators import SingleSpec
from widemargin.uncertainty.exportable import plain
from widemargin.uncertainty.network import Network
from widemargin.uncertainty.scaling import Scaled
from widemargin.uncertainty.single import Single


def trained(folder: RunFolder, weights: str) -> tuple[Run, nn.Module]:
    """A run's network in eval mode, with its best or last weights.

    A single network is a plain module that returns logits; several members return the log of their mean probability.
    """
    run = read_run(folder.description)
    if run.estimator != SingleSpec():
        # As plain in memory as one network that is exported.
        network = run.estimator.network(run.build, run.place, None)
        _fill(folder, weights, network)
        return run, network.eval()
    module = run.build()
    _fill(folder, weights, Single(run.place.cut(module)))
    return run, module.eval()


def _fill(folder: RunFolder, weights: str, network: Network) -> None:
    """Load the best or the last weights of a run."""
    path = weights_of(folder, weights)
    try:
        load_weights(path, network)
    except Damaged as problem:
        again = best_again(folder) if path == folder.best else f"`widemargin resume {folder.path}` writes it again"
        raise Damaged(f"{problem}: {again}") from None


def weights_of(folder: RunFolder, weights: str) -> Path:
    """The file; a run without validation has only last weights."""
    if weights == "last" or folder.best.exists():
        path = folder.last if weights == "last" else folder.best
    elif folder.last.exists() and "clean" in read_note(folder.last):
        raise Damaged(f"{folder.best} is missing: {best_again(folder)}")
    else:
        path = folder.last
    if not path.exists():
        raise ValueError(f"{path} is not there (yet): `widemargin resume {folder.path}` continues, and writes it")
    return path


def export(folder: RunFolder, to: Path, weights: str = "best") -> None:
    """Weights under the network's own names (.safetensors), or the whole network: logits of a batch of any size.

    Of a run on a table the whole network takes raw rows; the weights have the encoding of rows beside them, in the
    metadata.  If a scaling was fitted to these weights, it stands in the metadata, and the whole network's logits are
    scaled.
    """
    _check_suffix(to)
    run, module = trained(folder, weights)
    description, schema = read_description(folder.description), schema_of(folder, run)
    names, scaling = dict(description.get("names") or {}), run_scaling(folder, weights_of(folder, weights))
    if scaling is not None:
        names["scaling"] = scaling.to_dict()
        module = module if to.suffix == ".safetensors" else Scaled(plain(module), scaling)
    if schema is None:
        write_network(module, description["data"]["shape"], to, names)
    elif to.suffix == ".safetensors":
        write_network(module, description["data"]["shape"], to, names | {"schema": schema.to_dict()})
    else:
        described = {"columns": list(schema.names), **names, "schema": schema.to_dict()}
        write_network(on_raw_rows(schema, module), (len(schema.columns),), to, described)


def schema_of(folder: RunFolder, run: Run) -> Schema | None:
    """Of the run's table; it must be there if the run is on one."""
    schema = folder.read_schema()
    if schema is None and isinstance(run.data, TableData):
        raise Damaged(f"{folder.schema} is missing: `widemargin resume {folder.path}` writes it again")
    return schema


def on_raw_rows(schema: Schema, network: nn.Module) -> nn.Module:
    """The encoding of rows and then the network."""
    return nn.Sequential(OrderedDict(encoder=schema.encoder(), network=network)).eval()


def write_network(
    network: nn.Module, shape: Sequence[int], to: Path, described: Mapping[str, Any] | None = None
) -> None:
    """A network in eval mode that takes points of this shape; random draws become constants.

    What is described, such as the names of classes, goes along as metadata: JSON by name.
    """
    _check_suffix(to)
    metadata = {name: json.dumps(value) for name, value in (described or {}).items()}
    # Neither 0 nor 1 examples: a tracer takes these for constants.
    inputs = torch.full((3, *shape), 0.5)
    with torch.no_grad():
        # Draws of the first call must not be made by a tracer.
        network(inputs)
    _WRITERS[to.suffix](network, inputs, to, metadata)


def _check_suffix(to: Path) -> None:
    if to.suffix not in _WRITERS:
        raise ValueError(f"--to must end in {', '.join(_WRITERS)}, got {to}")


def _write_weights(module: nn.Module, inputs: Tensor, to: Path, metadata: dict[str, str]) -> None:
    weights = {name: value.detach().contiguous().clone() for name, value in module.state_dict().items()}
    write_whole(to, save(weights, {"format": "pt", **metadata}))


def _write_program(module: nn.Module, inputs: Tensor, to: Path, metadata: dict[str, str]) -> None:
    try:
        program = torch.export.export(plain(module), (inputs,), dynamic_shapes=({0: torch.export.Dim("batch")},))
    except Exception as problem:
        # A tracer may raise anything on a user's network.
        reason = str(problem).strip().partition("\n")[0] or type(problem).__name__
        raise ValueError(
            f"this network cannot be written as {to.suffix} for batches of any size ({reason}): flatten with "
            "x.flatten(1), leave out what depends on values, or export its weights to a .safetensors file"
        ) from problem
    content = io.BytesIO()
    torch.export.save(program, content, extra_files={f"{name}.json": text for name, text in metadata.items()})
    write_whole(to, content.getvalue())


def _write_onnx(module: nn.Module, inputs: Tensor, to: Path, metadata: dict[str, str]) -> None:
    for package in ("onnx", "onnxscript"):
        import_optional(package, "'widemargin[onnx]'", "an .onnx file")
    logger = logging.getLogger("torch.onnx")
    before = logger.level
    with warnings.catch_warnings():
        # The exporter warns of itself and of packages that are not needed.
        warnings.simplefilter("ignore")
        logger.setLevel(logging.ERROR)
        program = torch.onnx.export(
            plain(module),
            (inputs,),
            dynamo=True,
            verbose=False,
            input_names=["points"],
            output_names=["logits"],
            dynamic_shapes=({0: torch.export.Dim("batch")},),
        )
        logger.setLevel(before)
    assert program is not None
    proto = program.model_proto
    for name, text in metadata.items():
        proto.metadata_props.add(key=name, value=text)
    write_whole(to, proto.SerializeToString())


_WRITERS = {".safetensors": _write_weights, ".onnx": _write_onnx, ".pt2": _write_program}
