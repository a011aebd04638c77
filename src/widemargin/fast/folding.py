"""Batch normalisations in eval mode: a factor and a shift per channel, most of it in the weights of convolutions."""

from __future__ import annotations

import torch
from torch import Tensor, nn
from torch.nn.functional import conv2d
from torch.nn.utils.parametrize import type_before_parametrizations

# Below it, or negative, a factor cannot be drawn out of a rectifier without loss.
_LEAST_FACTOR = 1e-6


def factor_and_shift(norm: nn.BatchNorm2d) -> tuple[Tensor, Tensor]:
    assert norm.running_mean is not None
    assert norm.running_var is not None
    factor = torch.rsqrt(norm.running_var + norm.eps)
    if norm.weight is not None:
        factor = norm.weight * factor
    shift = -norm.running_mean * factor
    return factor, shift if norm.bias is None else norm.bias - norm.running_mean * factor


def is_fixed(layer: nn.Module, dtype: torch.dtype) -> bool:
    """A convolution without bias or a normalisation whose numbers do not change while a gradient is taken."""
    if torch.is_grad_enabled() and any(parameter.requires_grad for parameter in layer.parameters()):
        return False
    # A weight may be bounded by a parametrization; any other subclass may compute what it likes.
    kind = type_before_parametrizations(layer)
    if kind is nn.Conv2d:
        return layer.bias is None and layer.padding_mode == "zeros" and layer.weight.dtype == dtype
    # Neither spread over processes nor in train mode on its own.
    return (
        kind is nn.BatchNorm2d
        and not layer.training
        and layer.running_mean is not None
        and isinstance(layer.weight, Tensor)
        and layer.weight.dtype == dtype
    )


def may_fold(images: Tensor, *layers: nn.Module) -> bool:
    """Whether these layers may be computed together.  On processors and in the precisions that were measured."""
    return (
        images.device.type == "cpu"
        and images.dtype in (torch.float32, torch.float64)
        and all(is_fixed(layer, images.dtype) for layer in layers)
    )


def rectified(norm: nn.BatchNorm2d, images: Tensor) -> tuple[Tensor, Tensor]:
    """`norm(images).relu()` in eval mode, as a product of what is returned: the second, per channel, is for weights.

    Backwards no product and no sum is left of the normalisation.
    """
    factor, shift = factor_and_shift(norm)
    if is_positive(factor):
        return torch.add(images, (shift / factor).view(-1, 1, 1)).relu_(), factor
    return torch.addcmul(shift.view(-1, 1, 1), images, factor.view(-1, 1, 1)).relu_(), torch.ones_like(factor)


def is_positive(factor: Tensor) -> bool:
    return bool((factor > _LEAST_FACTOR).all())


def normalised(conv: nn.Conv2d, norm: nn.BatchNorm2d, images: Tensor, scale: Tensor | None = None) -> Tensor:
    """`norm(conv(images * scale))` in eval mode for a convolution without bias, up to rounding: one convolution."""
    factor, shift = factor_and_shift(norm)
    weight = conv.weight * factor.view(-1, 1, 1, 1)
    weight = weight if scale is None else weight * scale.view(-1, 1, 1)
    return conv2d(images, weight, shift, conv.stride, conv.padding, conv.dilation, conv.groups)


class Shift(nn.Module):
    """Something is added to each channel."""

    shift: Tensor

    def __init__(self, shift: Tensor) -> None:
        super().__init__()
        self.register_buffer("shift", shift.view(-1, 1, 1))

    def forward(self, images: Tensor) -> Tensor:
        return images + self.shift


def with_weight(conv: nn.Conv2d, weight: Tensor, bias: Tensor | None) -> nn.Conv2d:
    """A plain convolution of the same geometry with these numbers, which no gradient changes."""
    with torch.device("meta"):
        made = nn.Conv2d(
            conv.in_channels,
            conv.out_channels,
            conv.kernel_size,  # type: ignore[arg-type]
            conv.stride,  # type: ignore[arg-type]
            conv.padding,  # type: ignore[arg-type]
            conv.dilation,  # type: ignore[arg-type]
            conv.groups,
            bias is not None,
            conv.padding_mode,
        )
    made.weight = nn.Parameter(weight.detach(), requires_grad=False)
    if bias is not None:
        made.bias = nn.Parameter(bias.detach(), requires_grad=False)
    return made.eval()


def folded(conv: nn.Conv2d, norm: nn.BatchNorm2d) -> nn.Conv2d:
    """`norm(conv(images))` in eval mode as one convolution."""
    factor, shift = factor_and_shift(norm)
    bias = shift if conv.bias is None else shift + conv.bias * factor
    return with_weight(conv, conv.weight * factor.view(-1, 1, 1, 1), bias)
