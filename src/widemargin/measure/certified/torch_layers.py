"""Modules, functions and operators of torch as layers with known bounds.

What is not among them is a KeyError, what differs from what is known a NotImplementedError that says in what.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional as F
from torch.nn.utils.parametrize import type_before_parametrizations

from widemargin.measure.certified.layers import Add, Average, Conv, Layer, Linear, MaxPool, ReLU, Reshape, Scale
from widemargin.networks.hooks import is_hooked

Size = int | tuple[int, ...] | list[int]


def of_module(module: Any, value: Tensor) -> Layer:
    if is_hooked(module):
        raise NotImplementedError("has hooks")
    # Exactly these: a subclass may compute anything.
    kind = type_before_parametrizations(module)
    if kind is nn.Linear:
        return _linear(value, module.weight, module.bias)
    if kind in (nn.Conv1d, nn.Conv2d):
        if module.padding_mode != "zeros":
            raise NotImplementedError(f"pads by {module.padding_mode}")
        geometry = module.stride, module.padding, module.dilation, module.groups
        return _conv(value, module.weight, module.bias, *geometry)
    if kind in (nn.BatchNorm1d, nn.BatchNorm2d):
        statistics = module.running_mean, module.running_var, module.weight, module.bias
        return _batch_norm(value, *statistics, eps=module.eps)
    if kind is nn.MaxPool2d:
        return _max_pool(
            value,
            module.kernel_size,
            module.stride,
            module.padding,
            module.dilation,
            module.ceil_mode,
            module.return_indices,
        )
    if kind is nn.ReLU:
        return ReLU()
    if kind in (nn.AvgPool1d, nn.AvgPool2d, nn.AdaptiveAvgPool1d, nn.AdaptiveAvgPool2d):
        return Average(module)
    if kind in (nn.Identity, nn.Flatten, nn.Unflatten, nn.Dropout, nn.Dropout1d, nn.Dropout2d):
        return _reshape(value)
    raise KeyError(kind)


def _linear(value: Tensor, weight: Tensor, bias: Tensor | None = None) -> Layer:
    return Linear(*_copied(weight, bias))


def product(value: Tensor, matrix: Tensor, bias: Tensor | None = None) -> Layer:
    if matrix.ndim != 2 or (bias is not None and bias.ndim != 1):
        raise NotImplementedError("is no product with one matrix")
    return _linear(value, matrix.T, bias)


def _conv(
    value: Tensor,
    weight: Tensor,
    bias: Tensor | None = None,
    stride: Size = 1,
    padding: Size | str = 0,
    dilation: Size = 1,
    groups: int = 1,
) -> Layer:
    axes = value.ndim - 2
    dilations = _each(dilation, axes)
    if isinstance(padding, str):
        spans = [step * (size - 1) for step, size in zip(dilations, weight.shape[2:], strict=True)]
        if padding == "same" and any(span % 2 for span in spans):
            raise NotImplementedError("pads one side more than the other")
        padding = tuple(span // 2 if padding == "same" else 0 for span in spans)
    return Conv(*_copied(weight, bias), _each(stride, axes), _each(padding, axes), dilations, groups)


def _batch_norm(
    value: Tensor,
    running_mean: Tensor | None,
    running_var: Tensor | None,
    weight: Tensor | None = None,
    bias: Tensor | None = None,
    training: bool = False,
    momentum: float = 0.1,
    eps: float = 1e-5,
) -> Layer:
    if training or running_mean is None or running_var is None:
        raise NotImplementedError("mixes the points of a batch")
    mean, variance = running_mean.double(), running_var.double()
    factor = (variance + eps).rsqrt() * (1.0 if weight is None else weight.double())
    shift = (0.0 if bias is None else bias.double()) - mean * factor
    return Scale(*(part.view(-1, *[1] * (value.ndim - 2)) for part in (factor, shift)))


def _max_pool(
    value: Tensor,
    kernel_size: Size,
    stride: Size | None = None,
    padding: Size = 0,
    dilation: Size = 1,
    ceil_mode: bool = False,
    return_indices: bool = False,
) -> Layer:
    if ceil_mode or return_indices or _each(dilation, 2) != (1, 1) or value.ndim != 4:
        raise NotImplementedError("is a max-pooling with ceil_mode, dilation or return_indices")
    sizes = (_each(size, 2) for size in (kernel_size, stride or kernel_size, padding))
    kernel, steps, padded = ((height, width) for height, width in sizes)
    if kernel == (1, 1):
        raise NotImplementedError("chooses the highest of one")
    return MaxPool(kernel, steps, padded)


def _dropout(value: Tensor, p: float = 0.5, training: bool = True, inplace: bool = False) -> Layer:
    if training:
        raise NotImplementedError("is random in eval mode, too")
    return _reshape(value)


def _relu(value: Tensor, inplace: bool = False) -> Layer:
    return ReLU()


def _reshape(value: Tensor, *args: Any, **kwargs: Any) -> Layer:
    """Whatever the arguments were: the result has its shape, and its features are in order."""
    return Reshape(tuple(value.shape[1:]))


def _mean(value: Tensor, dim: Size, keepdim: bool = False, **kwargs: Any) -> Layer:
    axes = [dim] if isinstance(dim, int) else list(dim)
    rank = value.ndim + (0 if keepdim else len(axes))
    # In a batch of one its shape would not tell.
    if not axes or any(axis % rank == 0 for axis in axes):
        raise NotImplementedError("mixes the points of a batch")
    return _average(torch.mean, value, dim, keepdim, **kwargs)


def _average(function: Callable[..., Tensor], value: Tensor, *args: Any, **kwargs: Any) -> Layer:
    return Average(lambda values: function(values, *args, **kwargs))


FUNCTIONS: dict[str, Callable[..., Layer]] = {
    **dict.fromkeys(("relu", "relu_"), _relu),
    **dict.fromkeys(("flatten", "view", "reshape", "contiguous", "clone", "squeeze", "unsqueeze"), _reshape),
    **dict.fromkeys(("dropout", "dropout1d", "dropout2d"), _dropout),
    **{
        name: partial(_average, getattr(F, name))
        for name in ("avg_pool1d", "avg_pool2d", "adaptive_avg_pool1d", "adaptive_avg_pool2d")
    },
    "mean": _mean,
    "linear": _linear,
    **dict.fromkeys(("matmul", "mm"), product),
    **dict.fromkeys(("conv1d", "conv2d"), _conv),
    "batch_norm": _batch_norm,
    "max_pool2d": _max_pool,
}


def _batch_norm_of_aten(
    value: Tensor,
    weight: Tensor | None,
    bias: Tensor | None,
    mean: Tensor | None,
    variance: Tensor | None,
    training: bool,
    momentum: float,
    eps: float,
    cudnn_enabled: bool,
) -> Layer:
    return _batch_norm(value, mean, variance, weight, bias, training, momentum, eps)


ATEN_FUNCTIONS = {**FUNCTIONS, "batch_norm": _batch_norm_of_aten}
"""The operators of torch.export, which take their arguments in the same order but for one."""

ARITHMETIC = {
    "add": "+", "iadd": "+", "sub": "-", "isub": "-",
    "mul": "*", "imul": "*", "truediv": "/", "itruediv": "/", "div": "/",
}  # fmt: skip


def arithmetic(sign: str, operands: list[Any], value: Tensor) -> Layer:
    """None is a value that depends on the input, anything else a constant."""
    one, zero = value.new_ones((), dtype=torch.float64), value.new_zeros((), dtype=torch.float64)
    match sign, operands:
        case "+", [None, None]:
            return Add()
        case "-", [None, None]:
            return Add(-1)
        case (("*" | "/"), [None, None]):
            raise NotImplementedError("is no linear function of what it takes")
        case ("+", [None, constant]) | ("+", [constant, None]):
            return Scale(one, _constant(constant, value))
        case "-", [None, constant]:
            return Scale(one, -_constant(constant, value))
        case "-", [constant, None]:
            return Scale(-one, _constant(constant, value))
        case ("*", [None, constant]) | ("*", [constant, None]):
            return Scale(_constant(constant, value), zero)
        case "/", [None, constant]:
            return Scale(1 / _constant(constant, value), zero)
    raise NotImplementedError("is no linear function of what it takes")


def _constant(given: Any, like: Tensor) -> Tensor:
    constant = torch.as_tensor(given, dtype=torch.float64, device=like.device).detach()
    if constant.ndim == like.ndim and len(constant) != 1:
        raise NotImplementedError("adds another constant to every point of a batch")
    return constant


def _copied(weight: Tensor, bias: Tensor | None) -> tuple[Tensor, Tensor | None]:
    return weight.detach().double(), None if bias is None else bias.detach().double()


def _each(size: Size, axes: int) -> tuple[int, ...]:
    return (size,) * axes if isinstance(size, int) else tuple(size) * (axes // len(size))
