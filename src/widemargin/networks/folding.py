"""How does a normalisation cost less once it is fixed?  As a factor and a shift per channel, most of it in weights."""

import torch
from torch import Tensor, nn
from torch.nn.functional import conv2d

# Below it, or negative, a factor cannot be drawn out of a rectifier without loss.
_LEAST_FACTOR = 1e-6


def is_fixed(block: nn.Module, images: object) -> bool:
    """Whether a block's normalisations no longer change and nobody looks at them: in eval mode, nothing trained in it.

    A tracer, whose images are none, wants the layers themselves, and so does whoever exports the network or hangs a
    hook on one of them.  On processors only, where it was measured.
    """
    return (
        not block.training
        and type(images) is Tensor
        and images.device.type == "cpu"
        and not torch.compiler.is_compiling()
        and not (torch.is_grad_enabled() and any(parameter.requires_grad for parameter in block.parameters()))
        and all(_is_plain(part, images.dtype) for part in block.modules())
    )


def rectified(norm: nn.BatchNorm2d, images: Tensor) -> tuple[Tensor, Tensor]:
    """`norm(images).relu()` in eval mode, as a product of what is returned: the second, per channel, is for weights.

    Backwards no product and no sum is left of the normalisation.
    """
    factor, shift = _as_factor_and_shift(norm)
    if bool((factor > _LEAST_FACTOR).all()):
        return torch.add(images, (shift / factor).view(-1, 1, 1)).relu_(), factor
    return torch.addcmul(shift.view(-1, 1, 1), images, factor.view(-1, 1, 1)).relu_(), torch.ones_like(factor)


def convolved(conv: nn.Conv2d, images: Tensor, scale: Tensor) -> Tensor:
    """`conv(images * scale)` for a convolution without bias."""
    return _with_weight(conv, images, conv.weight * scale.view(-1, 1, 1))


def normalised(conv: nn.Conv2d, norm: nn.BatchNorm2d, images: Tensor, scale: Tensor | None = None) -> Tensor:
    """`norm(conv(images * scale))` in eval mode for a convolution without bias, up to rounding: one convolution."""
    factor, shift = _as_factor_and_shift(norm)
    weight = conv.weight * factor.view(-1, 1, 1, 1)
    return _with_weight(conv, images, weight if scale is None else weight * scale.view(-1, 1, 1), shift)


def _with_weight(conv: nn.Conv2d, images: Tensor, weight: Tensor, bias: Tensor | None = None) -> Tensor:
    return conv2d(images, weight, bias, conv.stride, conv.padding, conv.dilation, conv.groups)


def _is_plain(part: nn.Module, dtype: torch.dtype) -> bool:
    if part._forward_hooks or part._forward_pre_hooks:
        return False
    # Neither spread over processes nor, in mixed precision, of another precision than the images.
    norm = isinstance(part, nn.modules.batchnorm._BatchNorm)
    return not norm or (type(part) is nn.BatchNorm2d and part.weight.dtype == dtype)


def _as_factor_and_shift(norm: nn.BatchNorm2d) -> tuple[Tensor, Tensor]:
    assert norm.running_mean is not None
    assert norm.running_var is not None
    factor = norm.weight * torch.rsqrt(norm.running_var + norm.eps)
    return factor, norm.bias - norm.running_mean * factor
