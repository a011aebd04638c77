"""Loading of trained models: a run, a network of the zoo, an exported file, or a user's network, as a Network."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

import torch
from safetensors import SafetensorError, safe_open
from safetensors.torch import load_file
from torch import Generator, Tensor, nn

from widemargin.data.checks import ClassName
from widemargin.data.dataset import digest
from widemargin.data.schema import Schema
from widemargin.io.archive import named_tensors, unpickled
from widemargin.io.export import on_raw_rows, schema_of, trained, weights_of
from widemargin.io.graph import GraphFile, sentence
from widemargin.io.onnx_graph import read_onnx
from widemargin.io.pt2_graph import read_pt2
from widemargin.io.scaling import file_digest, run_scaling
from widemargin.io.table_model import on_features, schema_in
from widemargin.io.zoo import PREFIX, ZOO, zoo_run
from widemargin.runs.folder import RunFolder
from widemargin.runs.run import Run
from widemargin.runs.run_yaml import read_description
from widemargin.runs.user_network import UserNetwork
from widemargin.shapes import Points
from widemargin.uncertainty.as_logits import AsLogits
from widemargin.uncertainty.cuts import at_input
from widemargin.uncertainty.estimators import AtInput
from widemargin.uncertainty.input_space import InputSpace
from widemargin.uncertainty.network import Network, in_eval_mode
from widemargin.uncertainty.scaling import Scaled, Scaling
from widemargin.uncertainty.single import Single


@dataclass(frozen=True, eq=False)
class Model:
    """In eval mode, perturbed at its inputs.  `run` is None for models that are not runs."""

    network: Network
    name: str
    digest: str
    """Of the weights, and of the file if the network is the user's own."""
    run: Run | None = None
    notes: tuple[str, ...] = ()
    schema: Schema | None = None
    """Of the table that it was trained on: the network takes rows that this has encoded."""
    classes: tuple[ClassName, ...] = ()
    """What a run, or a file with a schema, calls its classes, if they have names."""


def load_model(
    place: str, weights: Path | None = None, which: Literal["best", "last"] = "best", scaled: bool = True
) -> Model:
    """`runs/<key>`, zoo:<name>, model.pt2, model.onnx, or my_file.py:MyNet, with weights from a file or its own.

    Only my_file.py is executed, also for a run whose network is such a file.  A scaling that was fitted to a run is
    applied, unless the network is wanted as it was trained.
    """
    path = Path(place).expanduser()
    if ".py:" in place:
        return _user_network(place, weights)
    if weights is not None:
        raise ValueError(f"--weights belongs to a network such as my_file.py:MyNet, but {place} has its own")
    if place.startswith(PREFIX):
        return _zoo(place.removeprefix(PREFIX))
    if path.suffix in _READERS:
        return _exported(place, path)
    if path.is_file():
        with_network = f"{_MODELS}, got {place}"
        if path.suffix in _OF_WEIGHTS:
            with_network += f", which has weights alone: name its network, my_file.py:MyNet --weights {place}"
        raise ValueError(with_network)
    if not path.exists() and (ZOO / place).is_dir():
        raise ValueError(f"{_MODELS}, got {place}: did you mean {PREFIX}{place}?")
    return _run(RunFolder(path), which, scaled)


def load(place: str | Path) -> nn.Module:
    """A trained network in eval mode that returns logits: the name of one in the zoo, runs/KEY, .pt2 or .onnx.

    Of a run on a table it takes raw rows, as an exported one does: numbers, categories by their number in schema.json,
    NaN where nothing is known.  Several members return the log of their mean probability.  If a scaling was fitted to
    a run, it is applied.
    """
    named = str(place)
    in_zoo = named.startswith(PREFIX) or (not Path(named).exists() and (ZOO / named).is_dir())
    if in_zoo:
        return trained(zoo_run(named.removeprefix(PREFIX)), "last")[1]
    if Path(named).is_dir():
        folder = RunFolder(Path(named))
        (run, module), scaling = trained(folder, "best"), run_scaling(folder, weights_of(folder, "best"))
        schema, answer = schema_of(folder, run), module if scaling is None else Scaled(module, scaling)
        return answer if schema is None else on_raw_rows(schema, answer)
    path = Path(named).expanduser()
    if path.suffix in _READERS:
        return _read(place, path).graph.eval()
    network = load_model(named).network
    assert isinstance(network, Single)
    return network.head


_MODELS = "a model must be a run's folder, zoo:NAME, a .pt2 or .onnx file, or my_file.py:MyNet with --weights"
_OF_WEIGHTS = (".safetensors", ".pt", ".pth", ".ckpt", ".bin")
_READERS = {".pt2": read_pt2, ".onnx": read_onnx}


def _read(place: str | Path, path: Path) -> GraphFile:
    if not path.is_file():
        raise ValueError(f"{place} does not exist: name a file that does")
    return _READERS[path.suffix](path)


def _exported(place: str, path: Path) -> Model:
    """Of a file that was exported from a run on a table the part behind the encoding of rows, as the run's own."""
    read = _read(place, path)
    graph, schema = read.graph, _schema_in(read.metadata, path)
    if schema is not None:
        try:
            graph = on_features(graph, schema)
        except ValueError as problem:
            raise ValueError(f"{path} cannot be audited: {sentence(problem)}") from None
    classes = () if schema is None else schema.classes
    return Model(Single(at_input(graph)).eval(), place, file_digest(path), None, read.notes, schema, classes)


def _schema_in(metadata: Mapping[str, str], path: Path) -> Schema | None:
    try:
        return schema_in(metadata)
    except ValueError as problem:
        raise ValueError(f"{path} cannot be audited: {sentence(problem)}") from None


def _run(folder: RunFolder, which: Literal["best", "last"], scaled: bool) -> Model:
    run, module = trained(folder, which)
    if folder.read_figures() is None:
        raise ValueError(f"{folder.path} has not finished training: `widemargin resume {folder.path}` finishes it")
    used = folder.best if which == "best" and folder.best.exists() else folder.last
    notes = () if used.stem == which else (f"it has no {which} weights, so its {used.stem} ones are used",)
    description = read_description(folder.description)
    name, names = str(description.get("title") or folder.path.name), description.get("names") or {}
    classes, digest = tuple(names.get("classes", ())), file_digest(used)
    scaling = run_scaling(folder, used) if scaled else None
    if scaling is not None:
        digest = hashlib.sha256(f"{digest} {scaling!r}".encode()).hexdigest()[:16]
        notes = (*notes, f"its logits are scaled ({scaling})")
    return Model(_at_inputs(run, module, scaling), name, digest, run, notes, schema_of(folder, run), classes)


def _zoo(name: str) -> Model:
    folder = zoo_run(name)
    run, module = trained(folder, "last")
    return Model(_at_inputs(run, module), f"{PREFIX}{name}", file_digest(folder.last), run)


def _at_inputs(run: Run, module: nn.Module, scaling: Scaling | None = None) -> Network:
    if not isinstance(module, Network):
        logits = AsLogits(module, run.network.name) if isinstance(run.network, UserNetwork) else module
        return Single(at_input(logits if scaling is None else Scaled(logits, scaling))).eval()
    network = module if run.place == AtInput() else InputSpace(module)
    return (network if scaling is None else Single(at_input(Scaled(network, scaling)))).eval()


def _user_network(place: str, weights: Path | None) -> Model:
    spec = UserNetwork.at(place)
    module = spec.build(Generator().manual_seed(0))
    metadata: Mapping[str, str] = {}
    if weights is None:
        again = spec.build(Generator().manual_seed(1))
        # Weights that do not depend on the seed are not random: the file loads trained ones.
        if digest(*module.state_dict().values()) != digest(*again.state_dict().values()):
            raise ValueError(f"{place} has only random weights: give its trained ones with --weights file.safetensors")
        of_weights = digest(*module.state_dict().values())
    else:
        tensors, metadata = _read_weights(weights)
        _fill(module, tensors, weights)
        of_weights = file_digest(weights)
    # The same weights may give other logits in another class, or once the file has changed.
    whole = hashlib.sha256(f"{spec.digest} {spec.name} {of_weights}".encode()).hexdigest()[:16]
    network = Single(at_input(AsLogits(module, spec.name))).eval()
    if weights is None:
        return Model(network, place, whole)
    schema = _schema_in(metadata, weights)
    notes = (_UNSCALED,) if schema is not None and "scaling" in metadata else ()
    classes = () if schema is None else schema.classes
    return Model(network, f"{place} with {weights}", whole, None, notes, schema, classes)


_UNSCALED = "the scaling in the metadata of its weights is not applied"
# In an exported network it is.


def check_gradients(network: Network, inputs: Points) -> None:
    """Attacks need gradients of the logits with respect to the inputs."""
    points = inputs.clone().requires_grad_()
    with torch.enable_grad(), in_eval_mode(network):
        logits = network(points)
    (gradient,) = torch.autograd.grad(logits.sum(), points, allow_unused=True) if logits.requires_grad else (None,)
    if gradient is None:
        raise ValueError(
            "gradients must reach the network's inputs, but its outputs are cut off from them: remove detach(), "
            "no_grad(), numpy and the like from its forward"
        )


def _read_weights(path: Path) -> tuple[dict[str, Tensor], Mapping[str, str]]:
    """And what describes them."""
    if not path.is_file():
        raise ValueError(f"{path} does not exist: name a file of weights that does")
    if path.suffix == ".safetensors":
        try:
            with safe_open(path, framework="pt") as file:
                return load_file(path), file.metadata() or {}
        except (SafetensorError, OSError) as problem:
            raise ValueError(f"{path} is damaged or no .safetensors file ({problem})") from None
    try:
        with path.open("rb") as file:
            content = unpickled(file, path.stat().st_size)
        if isinstance(content, Mapping) and isinstance(content.get("state_dict"), Mapping):
            content = content["state_dict"]
        return named_tensors(content), {}
    except ValueError as problem:
        raise ValueError(f"{path} is no state dict, {problem}: save network.state_dict()") from None


def _fill(module: nn.Module, tensors: dict[str, Tensor], path: Path) -> None:
    wanted = {name: list(value.shape) for name, value in module.state_dict().items()}
    # Prefixes of a network that training cut at its input, of one in DataParallel, and of a compiled one.
    for prefix in ("head.", "module.", "_orig_mod."):
        if tensors.keys() != wanted.keys() and all(name.startswith(prefix) for name in tensors):
            tensors = {name.removeprefix(prefix): value for name, value in tensors.items()}
    stored = {name: list(value.shape) for name, value in tensors.items()}
    for name in sorted(stored.keys() | wanted.keys()):
        if stored.get(name) != wanted.get(name):
            raise ValueError(
                f"{path} does not fit {type(module).__name__}: its {name!r} must be {wanted.get(name, 'absent')}, "
                f"got {stored.get(name, 'none')}"
            )
    module.load_state_dict(tensors)
