"""The operators that are run from .onnx files, each by torch, so that gradients reach the inputs."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

_MOST_AXES = 64
DTYPES = {
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
    "Cast": lambda node, x: x.to(DTYPES[node.get("to")]),
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
"""By name; all others are refused."""
TAKE_SIZES = {
    **dict.fromkeys(("Expand", "Reshape", "Squeeze", "Unsqueeze"), 1),
    **dict.fromkeys((name for name in OPERATORS if name.startswith("Reduce")), 1),
}
"""From which of its inputs on an operator takes sizes or axes."""
