"""A 5 x 5 convolution with a 2 x 2 pooling behind it, computed on blocks of 2 x 2 pixels.

A stride-1 convolution of few channels leaves a processor's vector units half empty.  With each block of 2 x 2 pixels as
4 channels it becomes one of 4 times the channels on a quarter of the places, and the pooling a maximum of 4 channels.
"""

from functools import cache
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.autograd.function import once_differentiable

from widemargin.fast.pooling import halved

# Of a batch: with fewer its dozen small steps take longer than they spare.
_ENOUGH_NUMBERS = 16_000
# Up to so many channels blocks are faster on the way to the answer, and on the way back to the images.
_FEW_CHANNELS, _FEW_CHANNELS_BACK = 3, 8


class PooledConvolution(nn.Module):
    """`relu(pool(conv(images)))`, with the layers it was given: on blocks where that is faster, else one by one."""

    def __init__(self, conv: nn.Conv2d, pool: nn.MaxPool2d) -> None:
        super().__init__()
        self.conv, self.pool = conv, pool

    def forward(self, images: Tensor) -> Tensor:
        if fits(self.conv, self.pool, images):
            return pooled_convolution(self.conv, images)
        return halved(self.conv(images)).relu()


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
        and conv.padding_mode == "zeros"
        and conv.in_channels <= (_FEW_CHANNELS_BACK if images.requires_grad else _FEW_CHANNELS)
        and padding[0] == padding[1]
        and padding[0] in (0, 2, 4)
        and pool.kernel_size == pool.stride == 2
        and images.ndim == 4
        and images.shape[-1] % 2 == images.shape[-2] % 2 == 0
        and min(images.shape[-2:]) + 2 * padding[0] >= 6
    )


def pooled_convolution(conv: nn.Conv2d, images: Tensor) -> Tensor:
    """`relu(pool(conv(images)))`, up to the order in which a convolution adds up."""
    weight, bias, padding = conv.weight, conv.bias, conv.padding[0]
    assert bias is not None
    assert isinstance(padding, int)
    if images.requires_grad and not (weight.requires_grad or bias.requires_grad):
        return _PooledConvolution.apply(images, weight, bias, padding)  # type: ignore[no-any-return, no-untyped-call]
    return _LargestOfFour.apply(_blocks(images, weight, bias, padding))  # type: ignore[no-any-return, no-untyped-call]


def _blocks(images: Tensor, weight: Tensor, bias: Tensor, padding: int) -> Tensor:
    """[B 4 filters H/2 W/2]: the convolution, pixel by pixel of each block, column by column."""
    # Strides, which a single row needs, are slow on the way back to the weights; both rows need a copy.
    rows = 2 if weight.requires_grad and torch.is_grad_enabled() else 1
    stride, margins = (2 // rows, 1), (padding // rows, padding // 2)
    blocks = F.conv2d(_in_blocks(images, rows), *_by_block(weight, bias, rows), stride, margins)
    return blocks.unflatten(1, (4, len(weight)))  # type: ignore[no-any-return]


def _by_block(weight: Tensor, bias: Tensor, rows: int) -> tuple[Tensor, Tensor]:
    # One more weight, which is 0, for all places outside of the kernel.
    padded = F.pad(weight.flatten(), (0, 1))
    return padded[_places(*weight.shape[:2], rows)].to(memory_format=torch.channels_last), bias.repeat(4)


class HeldBlocks:
    """A pooled convolution whose weights stay as they are, so that they are arranged once."""

    def __init__(self, conv: nn.Conv2d) -> None:
        assert conv.bias is not None
        self._weight, self._bias = _by_block(conv.weight.detach(), conv.bias.detach(), rows=1)

    def __call__(self, images: Tensor, padding: int) -> Tensor:
        blocks = F.conv2d(_in_blocks(images, 1), self._weight, self._bias, (2, 1), (padding, padding // 2))
        return _largest_alone(blocks.unflatten(1, (4, -1)))


def _in_blocks(images: Tensor, rows: int) -> Tensor:
    """[B C H W] -> [B 2 rows C, H/rows, W/2]: blocks of one or two rows and two columns, a pixel's channels together.

    Channels last in memory, which makes the convolution three times as fast; and two pixels are copied at once, if any.
    """
    count, channels, height, width = images.shape
    blocks = images.permute(0, 2, 3, 1).contiguous()
    if rows == 2:
        pairs = blocks.view(count, height // 2, 2, width // 2, channels, 2)
        blocks = torch.view_as_real(torch.view_as_complex(pairs).transpose(2, 3).contiguous())
    return blocks.view(count, height // rows, width // 2, 2 * rows * channels).permute(0, 3, 1, 2)


@cache
def _places(filters: int, channels: int, rows: int) -> Tensor:
    """[4 filters, 2 rows channels, 6 / rows, 3]: which of 5 x 5 weights leads from inputs to outputs."""
    # The first call may be in inference mode, and what is made there is of no use to a gradient later.
    with torch.inference_mode(False):
        outside = filters * channels * 25
        kernel = torch.arange(outside).view(filters, channels, 5, 5)
        # Output pixel (y, x) of a block sees the kernel (y, x) further on in the 6 x 6 pixels that a block sees.
        shifted = [F.pad(kernel, (x, 1 - x, y, 1 - y), value=outside) for x in (0, 1) for y in (0, 1)]
        by_block = [
            pixels.view(filters, channels, 6 // rows, rows, 3, 2).permute(0, 3, 5, 1, 2, 4) for pixels in shifted
        ]
        return torch.stack(by_block).reshape(4 * filters, 2 * rows * channels, 6 // rows, 3)


@cache
def _places_back(filters: int, channels: int, across: int) -> Tensor:
    """[2 across channels, 4 filters, 3, 2 + across / 2]: which weight leads from outputs back to inputs.

    Outputs are in blocks of 2 x 2 pixels, inputs in blocks of 2 x `across`, whose pixels in a row stay together.
    """
    outside = filters * channels * 25
    kernel = F.pad(torch.arange(outside).view(filters, channels, 5, 5), (3, 3, 3, 3), value=outside)
    down, right = (_meeting(pixels) + 3 for pixels in (2, across))
    places = kernel[:, :, down[:, None, :, None, :, None], right[None, :, None, :, None, :]]
    return places.permute(2, 3, 1, 7, 6, 0, 4, 5).reshape(2 * across * channels, 4 * filters, 3, 2 + across // 2)


def _meeting(pixels: int) -> Tensor:
    """[pixels, 2 + pixels / 2, 2]: the weight (of 0 to 4) between inputs of a block and outputs near it, in a row."""
    near = 2 * torch.arange(2 + pixels // 2)[:, None] + torch.arange(2)
    return torch.arange(pixels)[:, None, None] + 4 - near


def _back_to_images(blocks: Tensor, weight: Tensor, padding: int, shape: torch.Size) -> Tensor:
    """The gradient of a convolution's images [B C H W], from that of its outputs in blocks [B 4 filters H/2 W/2]."""
    count, channels, height, width = shape
    # Twice as wide where only then a vector unit is full.
    across = 4 if channels == 1 and width % 4 == 0 else 2
    places = _places_back(len(weight), channels, across)
    by_block = F.pad(weight.flatten(), (0, 1))[places].to(memory_format=torch.channels_last)
    gradient = F.conv2d(blocks.flatten(1, 2), by_block, stride=(1, across // 2), padding=2 - padding // 2)
    last = gradient.permute(0, 2, 3, 1).contiguous()
    pairs = torch.view_as_complex(last.view(count, height // 2, width // across, 2, across * channels // 2, 2))
    images = torch.view_as_real(pairs.transpose(2, 3).contiguous())
    return images.view(count, height, width, channels).permute(0, 3, 1, 2)


class _PooledConvolution(torch.autograd.Function):
    """With weights that stay as they are: there and back each in the way that is faster."""

    @staticmethod
    def forward(ctx: Any, images: Tensor, weight: Tensor, bias: Tensor, padding: int) -> Tensor:
        if images.shape[1] <= _FEW_CHANNELS:
            blocks = _blocks(images, weight, bias, padding)
            left, right = blocks[:, :2], blocks[:, 2:]
        else:
            rows = F.conv2d(images, weight, bias, padding=padding).unflatten(2, (-1, 2)).movedim(3, 1)
            left, right = rows[..., ::2], rows[..., 1::2]
        largest, *firsts = _largest_of_four(left, right)
        ctx.save_for_backward(weight, largest, *firsts)
        ctx.padding, ctx.shape = padding, images.shape
        return largest

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor, None, None, None]:
        weight, largest, *firsts = ctx.saved_tensors
        return (
            _back_to_images(_to_the_largest(gradient, largest, *firsts), weight, ctx.padding, ctx.shape),
            None,
            None,
            None,
        )


class _LargestOfFour(torch.autograd.Function):
    """[B 4 C H W] -> [B C H W], at least 0."""

    @staticmethod
    def forward(ctx: Any, blocks: Tensor) -> Tensor:
        if not ctx.needs_input_grad[0]:
            return _largest_alone(blocks)
        largest, *firsts = _largest_of_four(blocks[:, :2], blocks[:, 2:])
        ctx.save_for_backward(largest, *firsts)
        return largest

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, gradient: Tensor) -> Tensor:
        return _to_the_largest(gradient, *ctx.saved_tensors)


def _largest_alone(blocks: Tensor) -> Tensor:
    """[B 4 C H W] -> [B C H W], at least 0, without a gradient."""
    upper, lower = blocks[:, :2].maximum(blocks[:, 2:]).unbind(1)
    return upper.maximum(lower).relu_()


# Of equals the first gets the gradient, as in torch's pooling: a row's left pixel, the upper row.


def _largest_of_four(left: Tensor, right: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """Of 2 x 2 pixels [B 2 C H W], at least 0; whether it is on the left, in each row; whether the upper row has it."""
    rows = left.maximum(right)
    upper, lower = rows.unbind(1)
    # As numbers, not as truths, which would have to be converted before each product.
    on_left = torch.ge(left, right, out=torch.empty_like(rows))
    above = torch.ge(upper, lower, out=torch.empty_like(upper))
    return upper.maximum(lower).relu_(), on_left, above


def _to_the_largest(gradient: Tensor, largest: Tensor, on_left: Tensor, above: Tensor) -> Tensor:
    """[B C H W] -> [B 4 C H W]"""
    count, filters, height, width = gradient.shape
    # Channels last, as the convolution before it wants them.
    blocks = gradient.new_empty(count, height, width, 4, filters).permute(0, 3, 4, 1, 2)
    gradient = torch.ops.aten.threshold_backward(gradient, largest, 0)
    upper = gradient * above
    rows = torch.stack([upper, gradient.sub_(upper)], 1)
    left, right = blocks[:, :2], blocks[:, 2:]
    torch.mul(rows, on_left, out=left)
    torch.sub(rows, left, out=right)
    return blocks
