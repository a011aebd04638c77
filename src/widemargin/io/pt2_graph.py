"""Reader of untrusted .pt2 files (torch.export): only their JSON and raw bytes are used, see docs/decisions/0008."""

from __future__ import annotations

import io
import math
import re
import zipfile
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from widemargin.io.archive import LARGEST_JSON, Archive, named_tensors, unpickled
from widemargin.io.aten import FRESH, OPERATORS, OVERWRITING, positional
from widemargin.io.graph import Graph, GraphFile, Step, batch_note, check_count, sentence

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
# What export checks while tracing: dtypes, devices and sizes of the day.
_ASSERTIONS = ("_assert_", "sym_constrain_range")
_WHILE_TRAINING = ("train", "training", "dropout_p")
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


def read_pt2(path: Path) -> GraphFile:
    """ValueError in one sentence if it is none, or would have to run more than the operators of `aten.py`."""
    try:
        with zipfile.ZipFile(path) as archive:
            return _read(Archive(archive, path.stat().st_size))
    except ValueError as problem:
        raise ValueError(f"{path} cannot be audited: {sentence(problem)}") from None
    except RuntimeError as problem:
        raise ValueError(f"{path} is damaged: {sentence(problem)}") from None
    except Exception as problem:
        # Whatever a reader raises of a file that anybody may have written.
        raise ValueError(f"{path} must be a whole file of torch.export.save, got {sentence(repr(problem))}") from None


def _read(archive: Archive) -> GraphFile:
    names = archive.names
    if any("data/aotinductor/" in name for name in names):
        raise ValueError("it holds compiled code: export the network with torch.export.save alone")
    programs = [name for name in names if re.search(r"(^|/)(models/[^/]+|serialized_exported_program)\.json$", name)]
    if len(programs) != 1:
        raise ValueError(f"it must hold one exported program, got {len(programs)}: it may be cut short")
    module = archive.json(programs[0])["graph_module"]
    check_count(len(module["graph"]["nodes"]))
    stored, given = _inputs(archive, programs[0], module["signature"]["input_specs"])
    answer = _answer(module["signature"]["output_specs"])
    steps = [step for node in module["graph"]["nodes"] if (step := _step(node, given)) is not None]
    _check_overwriting(steps, answer)
    steps, answer, notes = _without_softmax(steps, answer)
    sizes = [_size(size) if "as_int" in size else None for size in module["graph"]["tensor_values"][given]["sizes"]]
    return GraphFile(Graph(stored, steps, given, answer, sizes), (*notes, *batch_note(sizes)), _metadata(archive))


def _metadata(archive: Archive) -> dict[str, str]:
    """What describes a model of a table, for which there are both files; one alone is not ours, and may be anything."""
    named = ((re.search(r"(?:^|/)extra(?:_files)?/(schema|classes)\.json$", name), name) for name in archive.names)
    places = {described[1]: name for described, name in named if described is not None}
    if places.keys() != {"schema", "classes"}:
        return {}
    return {kind: archive.read(name, LARGEST_JSON).decode() for kind, name in places.items()}


def _size(argument: Mapping[str, Any]) -> int:
    size = argument["as_int"]
    if type(size) is not int or not 0 <= size < 2**63:
        raise ValueError(f"a size must be a whole number from 0 on, got {size!r}")
    return size


def _check_overwriting(steps: Sequence[Step], answer: str) -> None:
    """In-place operators are replaced by out-of-place ones: the same, if nothing else reads the value."""
    makers = {name: step.operator for step in steps for name in step.outputs}
    reads = Counter([*(name for step in steps for name in step.inputs), answer])
    for step in steps:
        if step.operator in OVERWRITING and (reads[step.inputs[0]] > 1 or makers.get(step.inputs[0]) not in FRESH):
            raise ValueError(
                f"its {step.operator} overwrites a value that may be read elsewhere: call run_decompositions() on the "
                "exported program before saving it"
            )


def _inputs(archive: Archive, program: str, specs: Sequence[Any]) -> tuple[dict[str, Tensor], str]:
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


def _tensors(archive: Archive, program: str, kind: str) -> dict[str, Tensor]:
    if program.endswith("serialized_exported_program.json"):
        return _unpickled(archive.read(program.replace("serialized_exported_program.json", _LEGACY[kind])))
    root, _, model = program.removesuffix(".json").rpartition("models/")
    if f"{root}data/{kind}/{model}.pt" in archive.names:
        return _unpickled(archive.read(f"{root}data/{kind}/{model}.pt"))
    config = archive.json(f"{root}data/{kind}/{model}_{kind}_config.json")["config"]
    tensors = {}
    for name, payload in config.items():
        if payload["tensor_meta"] is None:
            raise ValueError(f"its {name!r} is an object of Python, whose reading could run code")
        content = archive.read(f"{root}data/{kind}/{payload['path_name']}")
        raw = not payload["use_pickle"]
        tensors[name] = _raw(content, payload["tensor_meta"]) if raw else _unpickled(content)["tensor"]
    return tensors


def _unpickled(content: bytes) -> dict[str, Tensor]:
    if not content:
        return {}
    try:
        tensors = unpickled(io.BytesIO(content), len(content))
    except ValueError as problem:
        raise ValueError(f"its pickle could run code or is damaged ({sentence(problem)})") from None
    return named_tensors({"tensor": tensors} if isinstance(tensors, Tensor) else tensors)


def _raw(content: bytes, meta: Mapping[str, Any]) -> Tensor:
    sizes, strides = ([_size(size) for size in meta[key]] for key in ("sizes", "strides"))
    offset, dtype = _size(meta["storage_offset"]), _DTYPES[meta["dtype"]]
    flat = torch.frombuffer(bytearray(content), dtype=dtype) if content else torch.zeros(0, dtype=dtype)
    if len(sizes) != len(strides):
        raise ValueError(f"a tensor must have as many strides as sizes, got {len(strides)} and {len(sizes)}")
    numbers = math.prod(sizes)
    end = offset + sum((size - 1) * stride for size, stride in zip(sizes, strides, strict=True)) + 1 if numbers else 0
    # A tensor that repeats its numbers would be larger than the file.
    if max(numbers, end) > len(flat):
        raise ValueError(f"a tensor of {sizes} must lie within its {len(flat)} stored numbers, got more")
    return flat.as_strided(sizes, strides, offset if numbers else 0).clone()


def _step(node: Mapping[str, Any], given: str) -> Step | None:
    target = str(node["target"])
    if target.removeprefix("torch.ops.aten.").startswith(_ASSERTIONS):
        return None
    run = OVERWRITING[target] if target in OVERWRITING else OPERATORS.get(target)
    if run is None:
        raise ValueError(f"operator {target} is not one that is run from a file")
    arguments = [(argument["name"], _value(argument["arg"], given)) for argument in node["inputs"]]
    if any(name in _WHILE_TRAINING and value not in (False, 0.0) for name, value in arguments):
        raise ValueError(f"its {target} is in train mode: call eval() before exporting")
    names = tuple(dict.fromkeys(name for _, value in arguments for name in _names(value)))
    first = positional(run, [name for name, _ in arguments])
    call = _Call(run, tuple(value for _, value in arguments[:first]), dict(arguments[first:]), names)
    return Step(target, call, names, tuple(name for output in node["outputs"] for name in _output_names(output)))


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
        case "as_int" | "as_bool" | "as_string":
            return _plain(value, {"as_int": int, "as_bool": bool, "as_string": str}[kind])
        case "as_ints" | "as_bools":
            return [_plain(item, int if kind == "as_ints" else bool) for item in value]
        case "as_int_lists":
            return [[_plain(item, int) for item in items] for items in value]
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


def _plain(value: Any, kind: type) -> Any:
    if type(value) is not kind or (isinstance(value, int) and abs(value) >= 2**63):
        raise ValueError(f"an operator must be given plain numbers or text, got {value!r}")
    return value


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
