"""How is a convolution with a 2 x 2 pooling behind it computed faster?  On blocks of 2 x 2 pixels.

A stride-1 convolution of few channels leaves a processor's vector units half empty.  With each block of 2 x 2 pixels as
4 channels it becomes one of 4 times the channels on a quarter of the places, and the pooling a maximum of 4 channels.
"""

from functools import cache
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.autograd.function import once_differentiable

# Of a batch: with fewer its dozen small steps take longer than they spare.
_ENOUGH_NUMBERS = 16_000


def fits(conv: nn.Conv2d, pool: nn.MaxPool2d, images: Tensor) -> bool:
    """Where it is the same function, and worth it: with many channels torch's own convolution is as fast."""
    padding = conv.padding if isinstance(conv.padding, tuple) else (1, 1)
    return (
        images.device.type == "cpu"
        and images.numel() >= _ENOUGH_NUMBERS
        and conv.kernel_size == (5, 5)
        and conv.stride == conv.dilation == (1, 1)
        and conv.groups == 1
        and conv.bias is not None
        # Without gradients a few channels are enough for torch's own.
        and conv.in_channels <= (8 if images.requires_grad else 3)
        and padding[0] == padding[1]
        and padding[0] % 2 == 0
        and pool.kernel_size == pool.stride == 2
        and images.ndim == 4
        and images.shape[-1] % 2 == images.shape[-2] % 2 == 0
        and min(images.shape[-2:]) + 2 * padding[0] >= 6
    )


def pooled_convolution(conv: nn.Conv2d, images: Tensor) -> Tensor:
    """`relu(pool(conv(images)))`, up to the order in which a convolution adds up."""
    assert conv.bias is not None
    places = _places(conv.out_channels, conv.in_channels)
    # One more weight, which is 0, for all places outside of the kernel.
    weight = F.pad(conv.weight.flatten(), (0, 1))[places].to(memory_format=torch.channels_last)
    padding = conv.padding[0]
    assert isinstance(padding, int)
    blocks = F.conv2d(_in_blocks(images), weight, conv.bias.repeat(4), padding=padding // 2)
    return _LargestOfFour.apply(blocks.unflatten(1, (4, conv.out_channels)))  # type: ignore[no-any-return, no-untyped-call]


def _in_blocks(images: Tensor) -> Tensor:
    """[B C H W] -> [B 4C H/2 W/2] as `F.pixel_unshuffle`, but a pixel's channels stay together.

    Channels last in memory, which makes the convolution three times as fast; and two pixels are copied at once.
    """
    count, channels, height, width = images.shape
    last = images.permute(0, 2, 3, 1).contiguous()
    pairs = last.view(count, height // 2, 2, width // 2, channels, 2)
    blocks = torch.view_as_real(torch.view_as_complex(pairs).transpose(2, 3).contiguous())
    return blocks.view(count, height // 2, width // 2, 4 * channels).permute(0, 3, 1, 2)


@cache
def _places(filters: int, channels: int) -> Tensor:
    """[4 filters, 4 channels, 3, 3]: which weight of a 5 x 5 kernel acts between two blocks."""
    # Whoever asks first may be in inference mode, and what is made there is of no use to a gradient later.
    with torch.inference_mode(False):
        return _computed_places(filters, channels)


def _computed_places(filters: int, channels: int) -> Tensor:
    outside = filters * channels * 25
    kernel = torch.arange(outside).view(filters, channels, 5, 5)
    # Output pixel (y, x) of a block sees the kernel (y, x) further on in the 6 x 6 pixels of 3 x 3 blocks.
    shifted = [F.pad(kernel, (x, 1 - x, y, 1 - y), value=outside) for y in (0, 1) for x in (0, 1)]
    by_block = [pixels.view(filters, channels, 3, 2, 3, 2).permute(0, 3, 5, 1, 2, 4) for pixels in shifted]
    return torch.stack(by_block).reshape(4 * filters, 4 * channels, 3, 3)


class _LargestOfFour(torch.autograd.Function):
    """[B 4 C H W] -> [B C H W], at least 0.  Of equals the first gets the gradient, as in torch's pooling."""

    @staticmethod
    def forward(ctx: Any, blocks: Tensor) -> Tensor:
        a, b, c, d = blocks.unbind(1)
        upper, lower = a.maximum(b), c.maximum(d)
        if not ctx.needs_input_grad[0]:
            return upper.maximum(lower).relu_()
        # As numbers, not as truths, which would have to be converted before each product.
        firsts = [torch.ge(*pair, out=torch.empty_like(upper)) for pair in ((a, b), (c, d), (upper, lower))]
        largest = torch.maximum(upper, lower, out=upper).relu_()
        ctx.save_for_backward(*firsts, largest)
        return largest

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, gradient: Tensor) -> Tensor:
        left_above, left_below, above, largest = ctx.saved_tensors
        count, filters, height, width = gradient.shape
        # Channels last, as the convolution before it wants them.
        blocks = gradient.new_empty(count, height, width, 4, filters).permute(0, 3, 4, 1, 2)
        a, b, c, d = blocks.unbind(1)
        gradient = torch.ops.aten.threshold_backward(gradient, largest, 0)
        upper = gradient * above
        lower = gradient.sub_(upper)
        torch.mul(upper, left_above, out=a)
        torch.sub(upper, a, out=b)
        torch.mul(lower, left_below, out=c)
        torch.sub(lower, c, out=d)
        return blocks
