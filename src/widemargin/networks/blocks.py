"""How is a convolution with a 2 x 2 pooling behind it computed faster?  On blocks of 2 x 2 pixels.

A stride-1 convolution of few channels leaves a processor's vector units half empty.  With each block of 2 x 2 pixels as
4 channels it becomes one of 4 times the channels on a quarter of the places, and the pooling a maximum of 4 channels.
"""

from functools import cache
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn


def fits(conv: nn.Conv2d, pool: nn.MaxPool2d, images: Tensor) -> bool:
    """Where it is the same function, and worth it: with many channels torch's own convolution is as fast."""
    padding = conv.padding if isinstance(conv.padding, tuple) else (1, 1)
    return (
        images.device.type == "cpu"
        and conv.kernel_size == (5, 5)
        and conv.stride == conv.dilation == (1, 1)
        and conv.groups == 1
        and conv.bias is not None
        and conv.in_channels <= 8
        and padding[0] == padding[1]
        and padding[0] % 2 == 0
        and pool.kernel_size == pool.stride == 2
        and images.ndim == 4
        and images.shape[-1] % 2 == images.shape[-2] % 2 == 0
        and min(images.shape[-2:]) + 2 * padding[0] >= 6
    )


def pooled_convolution(conv: nn.Conv2d, images: Tensor) -> Tensor:
    """`pool(conv(images))`, up to the order in which a convolution adds up."""
    assert conv.bias is not None
    places = _places(conv.out_channels, conv.in_channels)
    # One more weight, which is 0, for all places outside of the kernel.
    weight = F.pad(conv.weight.flatten(), (0, 1))[places]
    padding = conv.padding[0]
    assert isinstance(padding, int)
    blocks = F.conv2d(_in_blocks(images), weight, conv.bias.repeat(4), padding=padding // 2)
    return _LargestOfFour.apply(blocks.unflatten(1, (4, conv.out_channels)))  # type: ignore[no-any-return, no-untyped-call]


def _in_blocks(images: Tensor) -> Tensor:
    """[B C H W] -> [B 4C H/2 W/2] as `F.pixel_unshuffle` in another order: pixel by pixel, each with all its channels.

    Channels last in memory, that copies whole pairs of pixels, and is faster where these are more than two numbers.
    """
    if images.shape[1] == 1:
        return F.pixel_unshuffle(images, 2)
    count, channels, height, width = images.shape
    pairs = images.permute(0, 2, 3, 1).reshape(count, height // 2, 2, width // 2, 2 * channels)
    return pairs.transpose(2, 3).reshape(count, height // 2, width // 2, 4 * channels).permute(0, 3, 1, 2)


@cache
def _places(filters: int, channels: int) -> Tensor:
    """[4 filters, 4 channels, 3, 3]: which weight of a 5 x 5 kernel acts between two blocks."""
    outside = filters * channels * 25
    kernel = torch.arange(outside).view(filters, channels, 5, 5)
    # Output pixel (y, x) of a block sees the kernel (y, x) further on in the 6 x 6 pixels of 3 x 3 blocks.
    shifted = [F.pad(kernel, (x, 1 - x, y, 1 - y), value=outside) for y in (0, 1) for x in (0, 1)]
    by_block = [pixels.view(filters, channels, 3, 2, 3, 2).permute(0, 3, 5, 1, 2, 4) for pixels in shifted]
    return torch.stack(by_block).reshape(4 * filters, 4 * channels, 3, 3)


class _LargestOfFour(torch.autograd.Function):
    """[B 4 C H W] -> [B C H W].  Of equals the first gets the gradient, as in torch's pooling."""

    @staticmethod
    def forward(ctx: Any, blocks: Tensor) -> Tensor:
        a, b, c, d = blocks.unbind(1)
        upper, lower = a.maximum(b), c.maximum(d)
        if ctx.needs_input_grad[0]:
            ctx.save_for_backward(a >= b, c >= d, upper >= lower)
        return upper.maximum(lower)

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> Tensor:
        left_above, left_below, above = ctx.saved_tensors
        upper = gradient * above
        lower = gradient - upper
        a, c = upper * left_above, lower * left_below
        return torch.stack((a, upper - a, c, lower - c), 1)
