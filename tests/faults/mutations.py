"""Damage by chance: of bytes, and of what a file says.  The same number, the same damage."""

from __future__ import annotations

import copy
import io
import json
import random
import zipfile
from collections.abc import Callable
from typing import Any

from widemargin.io.aten import OPERATORS as ATEN
from widemargin.io.aten import OVERWRITING
from widemargin.io.onnx_operators import OPERATORS as ONNX

_ODD: list[Any] = [
    -1,
    0,
    1,
    2,
    7,
    2**31,
    2**63,
    10**30,
    -(2**63),
    0.5,
    None,
    True,
    "",
    "eval",
    "__class__",
    [],
    {},
    [[]],
]
_TARGETS = [*ATEN, *OVERWRITING]
Mutation = Callable[[bytes, random.Random], bytes]


def of_bytes(content: bytes, chance: random.Random) -> bytes:
    """Bits flipped, ends cut off, ranges emptied, doubled or drawn anew."""
    changed, place = bytearray(content), chance.randrange(len(content))
    end = min(len(content), place + chance.choice((1, 8, 64, 1024)))
    match chance.randrange(5):
        case 0:
            for _ in range(chance.choice((1, 8, 64))):
                changed[chance.randrange(len(changed))] ^= 1 << chance.randrange(8)
        case 1:
            del changed[place:]
        case 2:
            changed[place:end] = bytes(end - place)
        case 3:
            changed[place:place] = changed[place:end]
        case 4:
            changed[place:end] = chance.randbytes(end - place)
    return bytes(changed)


def of_program(content: bytes, chance: random.Random) -> bytes:
    """One to three places in the JSON of a torch.export archive."""
    with zipfile.ZipFile(io.BytesIO(content)) as archive:
        parts = {name: archive.read(name) for name in archive.namelist()}
    ending = chance.choice(("models/model.json", "weights_config.json"))
    (name,) = [name for name in parts if name.endswith(ending)]
    program = json.loads(parts[name])
    root = program["graph_module"] if "graph_module" in program else program["config"]
    for _ in range(chance.randint(1, 3)):
        _change(root, chance)
    parts[name] = json.dumps(program).encode()
    changed = io.BytesIO()
    with zipfile.ZipFile(changed, "w") as archive:
        for part, held in parts.items():
            archive.writestr(part, held)
    return changed.getvalue()


def _change(root: Any, chance: random.Random) -> None:
    graph = root.get("graph")
    nodes = graph.get("nodes") if isinstance(graph, dict) else None
    if isinstance(nodes, list) and nodes and chance.random() < 0.3:
        step = chance.choice(nodes)
        if isinstance(step, dict):
            step["target"] = chance.choice(_TARGETS)
        return
    places = _places(root)
    if not places:
        return
    holder, key = chance.choice(places)
    match chance.randrange(4):
        case 0:
            holder[key] = chance.choice(_ODD)
        case 1:
            other, name = chance.choice(places)
            holder[key] = copy.deepcopy(other[name])
        case 2:
            del holder[key]
        case 3 if isinstance(holder, list):
            holder.insert(key, copy.deepcopy(holder[key]))
        case _ if type(holder[key]) is int:
            holder[key] += chance.choice((-1, 1, 5, 1000))


def _places(value: Any) -> list[tuple[Any, Any]]:
    """Every holder and key."""
    if isinstance(value, dict):
        pairs = list(value.items())
    else:
        pairs = list(enumerate(value)) if isinstance(value, list) else []
    return [(value, key) for key, _ in pairs] + [place for _, inner in pairs for place in _places(inner)]


def of_onnx(content: bytes, chance: random.Random) -> bytes:
    """One to three places in the graph."""
    import onnx

    model = onnx.load_from_string(content)
    for _ in range(chance.randint(1, 3)):
        node, tensor = chance.choice(model.graph.node), chance.choice(model.graph.initializer)
        names = [
            *(name for one in model.graph.node for name in one.output),
            *(t.name for t in model.graph.initializer),
            "",
        ]
        match chance.randrange(6):
            case 0:
                node.op_type = chance.choice([*ONNX, "Constant", "Loop"])
            case 1 if node.input:
                node.input[chance.randrange(len(node.input))] = chance.choice(names)
            case 2 if tensor.dims:
                tensor.dims[chance.randrange(len(tensor.dims))] = chance.choice((-1, 0, 1, 5, 2**31, 2**62))
            case 3:
                tensor.data_type = chance.randrange(25)
            case 4 if node.attribute:
                entry = chance.choice(node.attribute)
                entry.CopyFrom(
                    onnx.helper.make_attribute(entry.name, chance.choice((0, -1, 2**40, 0.5, "x", [2**20] * 4)))
                )
            case _:
                size = chance.choice(model.graph.input[0].type.tensor_type.shape.dim)
                size.dim_value = chance.choice((-1, 0, 1, 3, 8, 2**40))
    return bytes(model.SerializeToString())


MUTATIONS: dict[str, tuple[Mutation, ...]] = {
    ".pt2": (of_bytes, of_program, of_program),
    ".onnx": (of_bytes, of_onnx, of_onnx),
    ".safetensors": (of_bytes,),
}
