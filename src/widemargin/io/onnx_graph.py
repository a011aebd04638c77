"""Reader of .onnx files: every operator is run by torch, so that gradients reach the inputs."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

from widemargin.data.optional import import_optional
from widemargin.io.graph import MOST_STEPS, MOST_STORED, Graph, GraphFile, Step, batch_note, check_count, sentence

_OLDEST = 7
_MOST_AXES = 64
_DEEPEST = 100
"""Functions that call one another."""
_DOMAINS = ("", "ai.onnx")
_DTYPES = {
    1: torch.float32,
    2: torch.uint8,
    3: torch.int8,
    5: torch.int16,
    6: torch.int32,
    7: torch.int64,
    9: torch.bool,
    10: torch.float16,
    11: torch.float64,
    16: torch.bfloat16,
}
_CONV = {1: F.conv1d, 2: F.conv2d, 3: F.conv3d}
_MAX_POOL = {1: F.max_pool1d, 2: F.max_pool2d, 3: F.max_pool3d}
_AVERAGE_POOL = {1: F.avg_pool1d, 2: F.avg_pool2d, 3: F.avg_pool3d}


@dataclass(frozen=True)
class Node:
    """The attributes of an operator."""

    attributes: Mapping[str, Any]
    opset: int

    def get(self, name: str, default: Any = None) -> Any:
        return self.attributes.get(name, default)


Operator = Callable[..., Tensor]


def _plain(function: Callable[..., Tensor]) -> Operator:
    return lambda node, *inputs: function(*inputs)


def _window(node: Node, x: Tensor, kernel: Sequence[int]) -> tuple[list[int], list[int], list[tuple[int, int]]]:
    """Strides, dilations, and what is added before and after each axis."""
    axes = len(kernel)
    strides, dilations = node.get("strides", [1] * axes), node.get("dilations", [1] * axes)
    auto = node.get("auto_pad", b"NOTSET").decode()
    if auto == "NOTSET":
        pads = node.get("pads", [0] * 2 * axes)
        return strides, dilations, list(zip(pads[:axes], pads[axes:], strict=True))
    if auto == "VALID":
        return strides, dilations, [(0, 0)] * axes
    pairs = []
    for size, side, stride, dilation in zip(x.shape[2:], kernel, strides, dilations, strict=True):
        total = max((math.ceil(size / stride) - 1) * stride + dilation * (side - 1) + 1 - size, 0)
        small, large = total // 2, total - total // 2
        pairs.append((small, large) if auto == "SAME_UPPER" else (large, small))
    return strides, dilations, pairs


def _padded(x: Tensor, pads: Sequence[tuple[int, int]], value: float) -> Tensor:
    if not any(map(any, pads)):
        return x
    return F.pad(x, [amount for pair in reversed(pads) for amount in pair], value=value)


def _conv(node: Node, x: Tensor, weight: Tensor, bias: Tensor | None = None) -> Tensor:
    strides, dilations, pads = _window(node, x, weight.shape[2:])
    groups = node.get("group", 1)
    if all(before == after for before, after in pads):
        sides = [before for before, _ in pads]
        return _CONV[x.ndim - 2](x, weight, bias, strides, sides, dilations, groups)
    return _CONV[x.ndim - 2](_padded(x, pads, 0.0), weight, bias, strides, 0, dilations, groups)


def _reach(
    node: Node, x: Tensor, strides: Sequence[int], dilations: Sequence[int], pads: Sequence[tuple[int, int]]
) -> list[tuple[int, int]]:
    """Pads with which rounding down gives the windows of ceil_mode: those that begin before the end pad."""
    if not node.get("ceil_mode", 0):
        return list(pads)
    reach = []
    kernel = node.get("kernel_shape")
    for size, side, stride, dilation, (before, after) in zip(
        x.shape[2:], kernel, strides, dilations, pads, strict=True
    ):
        extent = dilation * (side - 1) + 1
        windows = math.ceil((size + before + after - extent) / stride) + 1
        if (windows - 1) * stride >= size + before:
            windows -= 1
        reach.append((before, (windows - 1) * stride + extent - size - before))
    return reach


def _max_pool(node: Node, x: Tensor) -> Tensor:
    kernel = node.get("kernel_shape")
    strides, dilations, pads = _window(node, x, kernel)
    x = _padded(x, _reach(node, x, strides, dilations, pads), -math.inf)
    return _MAX_POOL[x.ndim - 2](x, kernel, strides, 0, dilations)


def _average_pool(node: Node, x: Tensor) -> Tensor:
    kernel = node.get("kernel_shape")
    strides, dilations, pads = _window(node, x, kernel)
    if any(dilation != 1 for dilation in dilations):
        raise ValueError("AveragePool with dilations is not known here")
    reach, pool = _reach(node, x, strides, dilations, pads), _AVERAGE_POOL[x.ndim - 2]
    if not any(map(any, reach)):
        return pool(x, kernel, strides)
    # Cells that count: the image's, its padding if count_include_pad is set; never those that ceil_mode adds.
    counted = x.new_ones(1, 1, *x.shape[2:])
    if node.get("count_include_pad", 0):
        counted = _padded(counted, pads, 1.0)
        beyond = [(0, end - after) for (_, after), (_, end) in zip(pads, reach, strict=True)]
    else:
        beyond = reach
    return pool(_padded(x, reach, 0.0), kernel, strides) / pool(_padded(counted, beyond, 0.0), kernel, strides)


def _gemm(node: Node, a: Tensor, b: Tensor, c: Tensor | None = None) -> Tensor:
    a, b = (a.mT if node.get("transA", 0) else a), (b.mT if node.get("transB", 0) else b)
    if c is not None and c.ndim == 1 and node.get("alpha", 1.0) == node.get("beta", 1.0) == 1.0:
        return torch.addmm(c, a, b)
    product: Tensor = node.get("alpha", 1.0) * (a @ b)
    return product if c is None else product + node.get("beta", 1.0) * c


def _div(node: Node, a: Tensor, b: Tensor) -> Tensor:
    return a / b if a.is_floating_point() else torch.div(a, b, rounding_mode="trunc")


def _softmax(function: Callable[[Tensor, int], Tensor]) -> Operator:
    def run(node: Node, x: Tensor) -> Tensor:
        if node.opset >= 13:
            return function(x, node.get("axis", -1))
        # Until then all axes from this one on were one.
        axis = node.get("axis", 1) % x.ndim
        return function(x.flatten(axis), -1).reshape(x.shape)

    return run


def _batch_norm(node: Node, x: Tensor, scale: Tensor, bias: Tensor, mean: Tensor, variance: Tensor) -> Tensor:
    if node.get("training_mode", 0):
        raise ValueError("its BatchNormalization is in train mode: call eval() before exporting")
    return F.batch_norm(x, mean, variance, scale, bias, False, 0.0, node.get("epsilon", 1e-5))


def _dropout(node: Node, x: Tensor, ratio: Tensor | None = None, training: Tensor | None = None) -> Tensor:
    if training is not None and bool(training):
        raise ValueError("its Dropout is in train mode: call eval() before exporting")
    return x


def _sizes(sizes: Tensor) -> list[int]:
    """Sizes, axes or positions that an operator takes as a tensor."""
    if sizes.numel() > _MOST_AXES or sizes.is_floating_point():
        raise ValueError(f"sizes must be at most {_MOST_AXES} whole numbers, got {list(sizes.shape)} of {sizes.dtype}")
    return [int(size) for size in sizes.flatten().tolist()]


def _axes(node: Node, axes: Tensor | None) -> list[int] | None:
    listed = node.get("axes") if axes is None else _sizes(axes)
    return None if listed is None else [int(axis) for axis in listed[:_MOST_AXES]]


def _reduced(function: Callable[[Tensor, list[int], bool], Tensor]) -> Operator:
    def run(node: Node, x: Tensor, axes: Tensor | None = None) -> Tensor:
        over = _axes(node, axes)
        if not over:
            if node.get("noop_with_empty_axes", 0):
                return x
            over = list(range(x.ndim))
        return function(x, over, bool(node.get("keepdims", 1)))

    return run


def _flatten(node: Node, x: Tensor) -> Tensor:
    axis = node.get("axis", 1)
    axis = axis + x.ndim if axis < 0 else axis
    return x.reshape(math.prod(x.shape[:axis]), math.prod(x.shape[axis:]))


def _reshape(node: Node, x: Tensor, shape: Tensor) -> Tensor:
    sizes = _sizes(shape)
    if not node.get("allowzero", 0):
        sizes = [x.shape[axis] if size == 0 else size for axis, size in enumerate(sizes)]
    return x.reshape(sizes)


def _squeeze(node: Node, x: Tensor, axes: Tensor | None = None) -> Tensor:
    over = _axes(node, axes)
    return x.squeeze() if over is None else x.squeeze(tuple(over))


def _unsqueeze(node: Node, x: Tensor, axes: Tensor | None = None) -> Tensor:
    new = _axes(node, axes) or []
    rank = x.ndim + len(new)
    for axis in sorted(axis % rank for axis in new):
        x = x.unsqueeze(axis)
    return x


def _gather(node: Node, x: Tensor, positions: Tensor) -> Tensor:
    axis = node.get("axis", 0) % x.ndim
    positive = torch.where(positions < 0, positions + x.shape[axis], positions)
    selected = x.index_select(axis, positive.flatten())
    # In one tuple, which may be empty: a single size has no shape.
    return selected.reshape((*x.shape[:axis], *positions.shape, *x.shape[axis + 1 :]))


def _clip(node: Node, x: Tensor, least: Tensor | None = None, most: Tensor | None = None) -> Tensor:
    low, high = (node.get("min") if least is None else least), (node.get("max") if most is None else most)
    return x if low is None and high is None else torch.clamp(x, low, high)


def _shape(node: Node, x: Tensor) -> Tensor:
    return torch.tensor(x.shape[node.get("start", 0) : node.get("end")], dtype=torch.int64, device=x.device)


def _transpose(node: Node, x: Tensor) -> Tensor:
    return x.permute(node.get("perm", list(range(x.ndim))[::-1]))


def _spatial(x: Tensor) -> tuple[int, ...]:
    return tuple(range(2, x.ndim))


OPERATORS: dict[str, Operator] = {
    "Abs": _plain(torch.abs),
    "Add": _plain(torch.add),
    "AveragePool": _average_pool,
    "BatchNormalization": _batch_norm,
    "Cast": lambda node, x: x.to(_DTYPES[node.get("to")]),
    "Clip": _clip,
    "Concat": lambda node, *parts: torch.cat(parts, node.get("axis")),
    "Conv": _conv,
    "Div": _div,
    "Equal": _plain(torch.eq),
    "Dropout": _dropout,
    "Elu": lambda node, x: F.elu(x, node.get("alpha", 1.0)),
    "Erf": _plain(torch.erf),
    "Exp": _plain(torch.exp),
    "Expand": lambda node, x, shape: x.expand(torch.broadcast_shapes(x.shape, _sizes(shape))),
    "Flatten": _flatten,
    "Gather": _gather,
    "Gemm": _gemm,
    "GlobalAveragePool": lambda node, x: x.mean(_spatial(x), keepdim=True),
    "GlobalMaxPool": lambda node, x: x.amax(_spatial(x), keepdim=True),
    "Identity": lambda node, x: x,
    "IsNaN": _plain(torch.isnan),
    "LeakyRelu": lambda node, x: F.leaky_relu(x, node.get("alpha", 0.01)),
    "Log": _plain(torch.log),
    "LogSoftmax": _softmax(torch.log_softmax),
    "MatMul": _plain(torch.matmul),
    "MaxPool": _max_pool,
    "Mul": _plain(torch.mul),
    "Neg": _plain(torch.neg),
    "Pow": _plain(torch.pow),
    "ReduceLogSumExp": _reduced(torch.logsumexp),
    "ReduceMax": _reduced(torch.amax),
    "ReduceMean": _reduced(torch.mean),
    "ReduceSum": _reduced(torch.sum),
    "Relu": _plain(torch.relu),
    "Reshape": _reshape,
    "Shape": _shape,
    "Sigmoid": _plain(torch.sigmoid),
    "Softmax": _softmax(torch.softmax),
    "Softplus": _plain(F.softplus),
    "Sqrt": _plain(torch.sqrt),
    "Squeeze": _squeeze,
    "Sub": _plain(torch.sub),
    "Tanh": _plain(torch.tanh),
    "Transpose": _transpose,
    "Unsqueeze": _unsqueeze,
    "Where": _plain(torch.where),
}


_TAKE_SIZES = {
    **dict.fromkeys(("Expand", "Reshape", "Squeeze", "Unsqueeze"), 1),
    **dict.fromkeys((name for name in OPERATORS if name.startswith("Reduce")), 1),
}
"""From which of its inputs on an operator takes sizes or axes."""


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
        if step.operator in _TAKE_SIZES and not follow.isdisjoint(step.inputs[_TAKE_SIZES[step.operator] :]):
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
        self.left -= math.prod(tensor.dims) * _DTYPES[tensor.data_type].itemsize
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
        size = math.prod(tensor.dims) * _DTYPES[tensor.data_type].itemsize
        if declared.get("length", size) != size or declared.get("offset", 0) < 0:
            raise ValueError(
                f"its {tensor.name!r} must have {size} bytes in {location!r}, got {declared.get('length')}"
            )
        if declared.get("offset", 0) + size > path.stat().st_size:
            raise ValueError(f"its weights in {location!r} are cut short")
