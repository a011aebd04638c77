"""Reader of .onnx files; `onnx_operators` has what it runs."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from widemargin.data.optional import import_optional
from widemargin.io.graph import MOST_STEPS, MOST_STORED, Graph, GraphFile, Step, batch_note, check_count, sentence
from widemargin.io.onnx_operators import DTYPES, OPERATORS, TAKE_SIZES, Node, Operator

_OLDEST = 7
_DEEPEST = 100
"""Functions that call one another."""
_DOMAINS = ("", "ai.onnx")


@dataclass(frozen=True)
class _Run:
    operator: Operator
    node: Node

    def __call__(self, *inputs: Any) -> Sequence[Tensor]:
        return (self.operator(self.node, *inputs),)


def read_onnx(path: Path) -> GraphFile:
    """ValueError in one sentence if it is none, or has an operator that is not known here."""
    onnx = import_optional("onnx", "'widemargin[onnx]'", "an .onnx file")
    try:
        model = onnx.load(path, load_external_data=False)
        if not model.graph.node:
            raise ValueError("it holds no operators")
    except Exception as problem:
        # protobuf has its own exceptions.
        raise ValueError(f"{path} must be a whole ONNX file, got {sentence(problem)}") from None
    try:
        return _graph(onnx, model, path.parent)
    except Exception as problem:
        # Anything may be raised on a malformed file.
        raise ValueError(f"{path} cannot be audited: {sentence(problem)}") from None


def _graph(onnx: Any, model: Any, folder: Path) -> GraphFile:
    metadata = {entry.key: entry.value for entry in model.metadata_props}
    if model.functions:
        _check_functions(model)
        model = import_optional("onnx.inliner", "'widemargin[onnx]'", "an .onnx file").inline_local_functions(model)
    check_count(len(model.graph.node))
    opset = max((entry.version for entry in model.opset_import if entry.domain in _DOMAINS), default=0)
    if opset < _OLDEST:
        raise ValueError(f"its operators must be of version {_OLDEST} or later, got {opset}: export it again")
    graph = model.graph
    stores = _Stores(onnx, folder)
    stored = {tensor.name: stores.tensor(tensor) for tensor in graph.initializer}
    steps = []
    for node in graph.node:
        attributes = {entry.name: onnx.helper.get_attribute_value(entry) for entry in node.attribute}
        known = node.domain in _DOMAINS
        if known and node.op_type == "Constant":
            stored[node.output[0]] = stores.constant(attributes)
        elif known and node.op_type in OPERATORS:
            run = _Run(OPERATORS[node.op_type], Node(attributes, opset))
            # Second outputs, such as a Dropout's mask, are not computed; a graph that reads one is refused.
            steps.append(Step(node.op_type, run, tuple(node.input), tuple(node.output[:1])))
        else:
            raise ValueError(f"operator {node.domain + '.' if node.domain else ''}{node.op_type} is not known here")
    given = [value for value in graph.input if value.name not in stored]
    if len(given) != 1 or len(graph.output) != 1:
        raise ValueError(f"it must have one input and one output, got {len(given)} and {len(graph.output)}")
    _check_sizes(steps, given[0].name)
    answer, notes = graph.output[0].name, tuple[str, ...]()
    if steps and steps[-1].operator == "Softmax" and steps[-1].outputs == (answer,) and _over_classes(steps[-1]):
        answer, notes = steps.pop().inputs[0], ("its last softmax was left off, so that it returns logits",)
    sizes = _declared(given[0].type.tensor_type)
    return GraphFile(Graph(stored, steps, given[0].name, answer, sizes), (*notes, *batch_note(sizes)), metadata)


def _declared(kind: Any) -> list[int | None] | None:
    """The declared shape of the inputs; sizes without a number may be any."""
    if not kind.HasField("shape"):
        return None
    sizes = [size.dim_value if size.HasField("dim_value") else None for size in kind.shape.dim]
    # Some exporters write an unknown size as 0 or -1.
    return [size if size is not None and size > 0 else None for size in sizes]


def _check_functions(model: Any) -> None:
    """Functions may call functions: their total size is counted before they are inlined."""
    bodies = {(function.domain, function.name): function.node for function in model.functions}
    known: dict[tuple[str, str], tuple[int, int]] = {}

    def size(nodes: Any, within: tuple[tuple[str, str], ...]) -> tuple[int, int]:
        """Operators and bytes."""
        steps, content = 0, 0
        for node in nodes:
            called = (node.domain, node.op_type)
            if called in within or len(within) > _DEEPEST:
                raise ValueError(f"its functions must not call themselves, nor more than {_DEEPEST} deep")
            if called in bodies and called not in known:
                known[called] = size(bodies[called], (*within, called))
            more = known.get(called, (1, node.ByteSize()))
            steps, content = steps + more[0], content + more[1]
            if steps > MOST_STEPS or content > MOST_STORED:
                raise ValueError(f"its functions must come to at most {MOST_STEPS:,} operators, got more")
        return steps, content

    size(model.graph.node, ())
    for function in model.functions:
        size(function.node, ())


def _check_sizes(steps: Sequence[Step], given: str) -> None:
    """No shape may depend on the values of the inputs, so that one dry run is valid for all inputs."""
    follow = {given}
    for step in steps:
        if step.operator in TAKE_SIZES and not follow.isdisjoint(step.inputs[TAKE_SIZES[step.operator] :]):
            raise ValueError(f"the sizes that its {step.operator} takes must not depend on its input's values")
        if step.operator != "Shape" and not follow.isdisjoint(step.inputs):
            follow.update(step.outputs)


def _over_classes(step: Step) -> bool:
    assert isinstance(step.run, _Run)
    return step.run.node.get("axis", -1) in (1, -1)


@dataclass
class _Stores:
    """Reads the tensors of one file, up to a total size."""

    onnx: Any
    folder: Path
    left: int = MOST_STORED

    def constant(self, attributes: Mapping[str, Any]) -> Tensor:
        ((kind, value),) = attributes.items()
        if kind == "value":
            return self.tensor(value)
        if kind in ("value_int", "value_ints", "value_float", "value_floats"):
            return torch.tensor(value, dtype=torch.int64 if "int" in kind else torch.float32)
        raise ValueError(f"a Constant with {kind} is not known here")

    def tensor(self, tensor: Any) -> Tensor:
        if any(size < 0 for size in tensor.dims):
            raise ValueError(f"the sizes of its {tensor.name!r} must be 0 or more, got {list(tensor.dims)}")
        self.left -= math.prod(tensor.dims) * DTYPES[tensor.data_type].itemsize
        if self.left < 0:
            raise ValueError(f"its tensors must have at most {MOST_STORED:,} bytes, got more with {tensor.name!r}")
        if tensor.data_location == self.onnx.TensorProto.EXTERNAL:
            self._check_external(tensor)
        # A copy: the array may be a view of the file's own bytes.
        return torch.from_numpy(self.onnx.numpy_helper.to_array(tensor, str(self.folder)).copy())

    def _check_external(self, tensor: Any) -> None:
        location = next((entry.value for entry in tensor.external_data if entry.key == "location"), "")
        if not location or not (self.folder / location).resolve().is_relative_to(self.folder.resolve()):
            raise ValueError(f"its weights must lie in its own folder, got {location!r}")
        path = self.folder / location
        if not path.is_file():
            raise ValueError(f"its weights are in {location!r}, which is not beside it: copy that file there, too")
        declared = {entry.key: int(entry.value) for entry in tensor.external_data if entry.key in ("offset", "length")}
        size = math.prod(tensor.dims) * DTYPES[tensor.data_type].itemsize
        if declared.get("length", size) != size or declared.get("offset", 0) < 0:
            raise ValueError(
                f"its {tensor.name!r} must have {size} bytes in {location!r}, got {declared.get('length')}"
            )
        if declared.get("offset", 0) + size > path.stat().st_size:
            raise ValueError(f"its weights in {location!r} are cut short")
