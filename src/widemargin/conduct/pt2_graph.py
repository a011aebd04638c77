"""How is a torch.export archive read without trusting it?  Its JSON and raw bytes only: docs/decisions/0008."""

from __future__ import annotations

import io
import json
import operator
import re
import zipfile
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import Tensor
from torch._ops import OpOverload

from widemargin.conduct.graph import Graph, Step

_DTYPES = {
    1: torch.uint8,
    2: torch.int8,
    3: torch.int16,
    4: torch.int32,
    5: torch.int64,
    6: torch.float16,
    7: torch.float32,
    8: torch.float64,
    12: torch.bool,
    13: torch.bfloat16,
}
_FORMATS = {
    1: torch.contiguous_format,
    2: torch.channels_last,
    3: torch.channels_last_3d,
    4: torch.preserve_format,
}
_ARITHMETIC = ["add", "sub", "mul", "floordiv", "mod", "truediv", "neg", "eq", "ne", "lt", "le", "gt", "ge", "getitem"]
_OPERATORS: dict[str, Callable[..., Any]] = {f"_operator.{name}": getattr(operator, name) for name in _ARITHMETIC}
# Of aten's private operators, those that exports contain; others may not check what they are given.
_PRIVATE = {
    "_softmax",
    "_log_softmax",
    "_native_batch_norm_legit_no_training",
    "_to_copy",
    "_unsafe_view",
    "_adaptive_avg_pool2d",
    "_adaptive_avg_pool3d",
}
# What export checks while tracing: dtypes, devices and sizes of the day.
_ASSERTIONS = ("_assert_", "sym_constrain_range")
_LEGACY = {"weights": "serialized_state_dict.pt", "constants": "serialized_constants.pt"}


@dataclass(frozen=True)
class _Name:
    """Of a value; or of its device, so that a network can be moved."""

    name: str
    device: bool = False


@dataclass(frozen=True)
class _Call:
    target: Callable[..., Any]
    positional: tuple[Any, ...]
    named: Mapping[str, Any]
    names: tuple[str, ...]

    def __call__(self, *values: Any) -> Sequence[Any]:
        known = dict(zip(self.names, values, strict=True))
        positional = [_filled(value, known) for value in self.positional]
        return _flat(self.target(*positional, **{key: _filled(value, known) for key, value in self.named.items()}))


def read_pt2(path: Path) -> tuple[Graph, tuple[str, ...]]:
    """ValueError in one sentence if it is none, or would have to run more than aten's operators."""
    try:
        with zipfile.ZipFile(path) as archive:
            return _read(archive)
    except ValueError as problem:
        raise ValueError(f"{path} cannot be audited: {_line(problem)}") from None
    except (OSError, zipfile.BadZipFile, EOFError, KeyError, TypeError, IndexError, AttributeError) as problem:
        raise ValueError(f"{path} must be a whole file of torch.export.save, got {_line(repr(problem))}") from None
    except RuntimeError as problem:
        raise ValueError(f"{path} is damaged: {_line(problem)}") from None


def _line(problem: object) -> str:
    return str(problem).splitlines()[0] if str(problem) else type(problem).__name__


def _read(archive: zipfile.ZipFile) -> tuple[Graph, tuple[str, ...]]:
    names = archive.namelist()
    if any("data/aotinductor/" in name for name in names):
        raise ValueError("it holds compiled code: export the network with torch.export.save alone")
    programs = [name for name in names if re.search(r"(^|/)(models/[^/]+|serialized_exported_program)\.json$", name)]
    if len(programs) != 1:
        raise ValueError(f"it must hold one exported program, got {len(programs)}: it may be cut short")
    program = json.loads(archive.read(programs[0]))
    module = program["graph_module"]
    stored, given = _inputs(archive, programs[0], module["signature"]["input_specs"])
    answer = _answer(module["signature"]["output_specs"])
    steps = [step for node in module["graph"]["nodes"] if (step := _step(node, given)) is not None]
    steps, answer, notes = _without_softmax(steps, answer)
    rows = module["graph"]["tensor_values"][given]["sizes"][0]
    if "as_int" in rows:
        notes += (f"it was exported for batches of exactly {rows['as_int']} points",)
    return Graph(stored, steps, given, answer), notes


def _inputs(archive: zipfile.ZipFile, program: str, specs: Sequence[Any]) -> tuple[dict[str, Tensor], str]:
    weights, constants = (_tensors(archive, program, kind) for kind in ("weights", "constants"))
    stored, given = {}, []
    for spec in specs:
        ((kind, inner),) = spec.items()
        if kind == "user_input" and "as_tensor" in inner["arg"]:
            given.append(str(inner["arg"]["as_tensor"]["name"]))
        elif kind == "parameter":
            stored[inner["arg"]["name"]] = weights[inner["parameter_name"]]
        elif kind == "buffer":
            stored[inner["arg"]["name"]] = (weights if inner["persistent"] else constants)[inner["buffer_name"]]
        elif kind == "tensor_constant":
            stored[inner["arg"]["name"]] = constants[inner["tensor_constant_name"]]
        elif kind != "constant_input":
            raise ValueError(f"it needs a {kind.replace('_', ' ')} besides tensors, whose reading could run code")
    if len(given) != 1:
        raise ValueError(f"it must take one tensor of points, got {len(given)} inputs")
    return stored, given[0]


def _answer(specs: Sequence[Any]) -> str:
    if any("mutation" in kind for spec in specs for kind in spec):
        raise ValueError("it changes its own buffers: call eval() before exporting")
    if len(specs) != 1 or "as_tensor" not in specs[0].get("user_output", {}).get("arg", {}):
        raise ValueError("it must return logits as one tensor, got something else")
    return str(specs[0]["user_output"]["arg"]["as_tensor"]["name"])


def _tensors(archive: zipfile.ZipFile, program: str, kind: str) -> dict[str, Tensor]:
    if program.endswith("serialized_exported_program.json"):
        return _unpickled(archive.read(program.replace("serialized_exported_program.json", _LEGACY[kind])))
    root, _, model = program.removesuffix(".json").rpartition("models/")
    if f"{root}data/{kind}/{model}.pt" in archive.namelist():
        return _unpickled(archive.read(f"{root}data/{kind}/{model}.pt"))
    config = json.loads(archive.read(f"{root}data/{kind}/{model}_{kind}_config.json"))["config"]
    found = {}
    for name, payload in config.items():
        if payload["tensor_meta"] is None:
            raise ValueError(f"its {name!r} is an object of Python, whose reading could run code")
        content = archive.read(f"{root}data/{kind}/{payload['path_name']}")
        found[name] = _unpickled(content)["tensor"] if payload["use_pickle"] else _raw(content, payload["tensor_meta"])
    return found


def _unpickled(content: bytes) -> dict[str, Tensor]:
    """With torch's reader that knows tensors and containers and nothing else."""
    if not content:
        return {}
    try:
        found = torch.load(io.BytesIO(content), map_location="cpu", weights_only=True)
    except Exception as problem:
        raise ValueError(f"its pickle holds more than tensors, and could run code ({_line(problem)})") from None
    found = {"tensor": found} if isinstance(found, Tensor) else found
    if not isinstance(found, dict) or not all(isinstance(value, Tensor) for value in found.values()):
        raise ValueError("its pickle must hold named tensors, got something else")
    return {str(name): value.detach() for name, value in found.items()}


def _raw(content: bytes, meta: Mapping[str, Any]) -> Tensor:
    sizes, strides = ([size["as_int"] for size in meta[key]] for key in ("sizes", "strides"))
    if not content:
        return torch.zeros(sizes, dtype=_DTYPES[meta["dtype"]])
    flat = torch.frombuffer(bytearray(content), dtype=_DTYPES[meta["dtype"]])
    return flat.as_strided(sizes, strides, meta["storage_offset"]["as_int"]).clone()


def _step(node: Mapping[str, Any], given: str) -> Step | None:
    target = str(node["target"])
    if target.removeprefix("torch.ops.aten.").startswith(_ASSERTIONS):
        return None
    run = _target(target)
    arguments = [(argument["name"], _value(argument["arg"], given)) for argument in node["inputs"]]
    if any(name in ("train", "training") and value is True for name, value in arguments):
        raise ValueError(f"its {target} is in train mode: call eval() before exporting")
    names = tuple(dict.fromkeys(name for _, value in arguments for name in _names(value)))
    first = _positional(run, [name for name, _ in arguments])
    call = _Call(run, tuple(value for _, value in arguments[:first]), dict(arguments[first:]), names)
    return Step(target, call, names, tuple(name for output in node["outputs"] for name in _output_names(output)))


def _positional(run: Callable[..., Any], given: Sequence[str]) -> int:
    """How many of the first arguments go without their names, as whoever traces the network expects them."""
    if not isinstance(run, OpOverload):
        return len(given)
    order = [argument.name for argument in run._schema.arguments if not argument.kwarg_only]
    return next((i for i, (a, b) in enumerate(zip(given, order, strict=False)) if a != b), min(len(given), len(order)))


def _target(target: str) -> Callable[..., Any]:
    if target in _OPERATORS:
        return _OPERATORS[target]
    found = re.fullmatch(r"torch\.ops\.aten\.(\w+)\.(\w+)", target)
    # The one public operator that opens files.
    allowed = found is not None and found[1] != "from_file" and (not found[1].startswith("_") or found[1] in _PRIVATE)
    if found is None or not allowed or not hasattr(torch.ops.aten, found[1]):
        raise ValueError(f"operator {target} is not one that is run from a file")
    return getattr(getattr(torch.ops.aten, found[1]), found[2])  # type: ignore[no-any-return]


def _value(argument: Mapping[str, Any], given: str) -> Any:
    ((kind, value),) = argument.items()
    match kind:
        case "as_none":
            return None
        case "as_tensor":
            return _Name(value["name"])
        case "as_tensors":
            return [_Name(item["name"]) for item in value]
        case "as_sym_int" | "as_sym_float" | "as_sym_bool" | "as_optional_tensor":
            return _Name(value["as_name"]) if "as_name" in value else _value(value, given)
        case "as_sym_ints" | "as_sym_floats" | "as_sym_bools" | "as_optional_tensors":
            return [_Name(item["as_name"]) if "as_name" in item else _value(item, given) for item in value]
        case "as_int" | "as_ints" | "as_bool" | "as_bools" | "as_string" | "as_int_lists":
            return value
        case "as_float":
            # Infinity is written as text.
            return float(value)
        case "as_floats":
            return [float(item) for item in value]
        case "as_scalar_type":
            return _DTYPES[value]
        case "as_memory_format":
            return _FORMATS[value]
        case "as_layout":
            return torch.strided
        case "as_device":
            return _Name(given, device=True)
    raise ValueError(
        f"an operator is given {kind.removeprefix('as_').replace('_', ' ')}, which is not read from a file"
    )


def _names(value: Any) -> list[str]:
    if isinstance(value, list):
        return [name for item in value for name in _names(item)]
    return [value.name] if isinstance(value, _Name) else []


def _output_names(output: Mapping[str, Any]) -> list[str]:
    ((_, value),) = output.items()
    if isinstance(value, list):
        return [str(item["name"]) for item in value]
    return [str(value.get("name") or value.get("as_name") or "")] if isinstance(value, dict) else [""]


def _filled(value: Any, known: Mapping[str, Any]) -> Any:
    if isinstance(value, list):
        return [_filled(item, known) for item in value]
    if isinstance(value, _Name):
        return known[value.name].device if value.device else known[value.name]
    return value


def _flat(result: Any) -> list[Any]:
    if isinstance(result, list | tuple):
        return [item for part in result for item in _flat(part)]
    return [result]


def _without_softmax(steps: list[Step], answer: str) -> tuple[list[Step], str, tuple[str, ...]]:
    last = steps[-1] if steps else None
    if last is None or last.outputs != (answer,) or not isinstance(last.run, _Call):
        return steps, answer, ()
    if not re.match(r"torch\.ops\.aten\._?softmax\.", last.operator) or last.run.positional[1:2] not in ((1,), (-1,)):
        return steps, answer, ()
    return steps[:-1], last.inputs[0], ("its last softmax was left off, so that it returns logits",)
