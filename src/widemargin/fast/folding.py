"""How does a normalisation cost less once it is fixed?  As a factor and a shift per channel, most of it in weights."""

import torch
from torch import Tensor, nn
from torch.nn.functional import conv2d
from torch.nn.utils.parametrize import type_before_parametrizations

# Below it, or negative, a factor cannot be drawn out of a rectifier without loss.
_LEAST_FACTOR = 1e-6


def may_fold(images: object, *layers: nn.Module) -> bool:
    """Whether these layers may be computed together: they are what they seem, are fixed, and nobody looks at them.

    Whoever traces, exports or transforms the network wants the layers themselves, and so does whoever hangs a hook on
    one of them.  On processors and in the precisions for which it was measured.
    """
    return (
        type(images) is Tensor
        and images.device.type == "cpu"
        and images.dtype in (torch.float32, torch.float64)
        and not torch.compiler.is_compiling()
        and not torch.jit.is_tracing()  # type: ignore[attr-defined, no-untyped-call]
        and torch._C._functorch.maybe_current_level() is None
        and not nn.modules.module._has_any_global_hook()
        and all(_is_fixed(layer, images.dtype) for layer in layers)
    )


def rectified(norm: nn.BatchNorm2d, images: Tensor) -> tuple[Tensor, Tensor]:
    """`norm(images).relu()` in eval mode, as a product of what is returned: the second, per channel, is for weights.

    Backwards no product and no sum is left of the normalisation.
    """
    factor, shift = _as_factor_and_shift(norm)
    if bool((factor > _LEAST_FACTOR).all()):
        return torch.add(images, (shift / factor).view(-1, 1, 1)).relu_(), factor
    return torch.addcmul(shift.view(-1, 1, 1), images, factor.view(-1, 1, 1)).relu_(), torch.ones_like(factor)


def normalised(conv: nn.Conv2d, norm: nn.BatchNorm2d, images: Tensor, scale: Tensor | None = None) -> Tensor:
    """`norm(conv(images * scale))` in eval mode for a convolution without bias, up to rounding: one convolution."""
    factor, shift = _as_factor_and_shift(norm)
    weight = conv.weight * factor.view(-1, 1, 1, 1)
    return _with_weight(conv, images, weight if scale is None else weight * scale.view(-1, 1, 1), shift)


def _with_weight(conv: nn.Conv2d, images: Tensor, weight: Tensor, bias: Tensor | None = None) -> Tensor:
    return conv2d(images, weight, bias, conv.stride, conv.padding, conv.dilation, conv.groups)


def _is_fixed(layer: nn.Module, dtype: torch.dtype) -> bool:
    if torch.is_grad_enabled() and any(parameter.requires_grad for parameter in layer.parameters()):
        return False
    if layer._forward_hooks or layer._forward_pre_hooks or layer._backward_hooks or layer._backward_pre_hooks:
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


def _as_factor_and_shift(norm: nn.BatchNorm2d) -> tuple[Tensor, Tensor]:
    assert norm.running_mean is not None
    assert norm.running_var is not None
    factor = norm.weight * torch.rsqrt(norm.running_var + norm.eps)
    return factor, norm.bias - norm.running_mean * factor
