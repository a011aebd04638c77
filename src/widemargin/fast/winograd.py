"""3 x 3 convolutions in tiles, with a quarter of the products (Winograd; Lavin & Gray 2016).

A row of 6 pixels is taken as a polynomial, which is known by its values at 6 points; so are 3 weights, and of the
products at all points 4 pixels of the convolution are made.  The same is done from top to bottom.
"""

from __future__ import annotations

import math
from functools import cache
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

# By the width of a tile.  Of five sets of 6 points that were tried these lose the fewest digits: the error is 8 times
# that of torch's own convolution, with 4 points twice that.
_POINTS = {4: (0.0, 1.0, -1.0, 0.5, -2.0, math.inf), 2: (0.0, 1.0, -1.0, math.inf)}
_DTYPES = (torch.float32, torch.float64)
# With fewer channels the way to the points and back takes as long as is spared.
_ENOUGH_CHANNELS = 64
# With fewer tiles the weights, of which there are more, take longer to read than their products to compute.
_ENOUGH_TILES = 16
# Tiles may reach over the edge, up to so many pixels for each of the image: 7 pixels are two tiles of 4.  Those of 2
# spare less.
_MOST_PIXELS = {4: 4 / 3, 2: 1.0}
# So many tiles stay in the cache of a thread's core; with many channels more, or weights are read too often.
_TILES_AT_ONCE, _OF_CHANNELS = 128, 0.25


class WinogradConvolution(nn.Module):
    """The convolution that it was given: in tiles where that is faster, else as it is."""

    def __init__(self, conv: nn.Conv2d, tiles_at_once: int | None = None) -> None:
        super().__init__()
        self.conv = conv
        self.tiles_at_once = tiles_at_once
        """None: as many as stay in the caches."""

    def forward(self, images: Tensor) -> Tensor:
        tile = _tile(images) if self._is_exact_enough(images) else None
        if tile is None:
            # Channels last in memory, as tiles leave them, take up to twice as long with few pixels.
            return self.conv(images.contiguous())  # type: ignore[no-any-return]
        return _Winograd.apply(images, self, self.conv.bias, tile, False)  # type: ignore[no-any-return, no-untyped-call]

    def _is_exact_enough(self, images: Tensor) -> bool:
        """Tiles lose a digit, which half precision cannot spare; autocast would compute their products in it."""
        dtype = self.conv.weight.dtype
        return dtype in _DTYPES and images.dtype == dtype and not torch.is_autocast_enabled("cpu")

    def weight(self, tile: int) -> Tensor:
        """Made when it is first needed, and held."""
        name = f"at_points_{tile}"
        if not hasattr(self, name):
            # What is made in inference mode is of no use to a gradient later.
            with torch.inference_mode(False):
                self.register_buffer(name, _at_points(self.conv.weight.detach(), tile), persistent=False)
        return self.get_buffer(name)


def numbers_at_points(conv: nn.Conv2d) -> int:
    """How many may be held for it: tiles of both widths serve batches of different sizes."""
    return conv.in_channels * conv.out_channels * sum(len(points) ** 2 for points in _POINTS.values())


def is_for_winograd(conv: nn.Conv2d) -> bool:
    """On a processor: other devices have convolutions that know all this."""
    return (
        conv.weight.device.type == "cpu"
        and conv.weight.dtype in _DTYPES
        and conv.kernel_size == (3, 3)
        and conv.stride == conv.dilation == conv.padding == (1, 1)
        and conv.groups == 1
        and conv.padding_mode == "zeros"
        and min(conv.in_channels, conv.out_channels) >= _ENOUGH_CHANNELS
    )


def _tile(images: Tensor) -> int | None:
    """How wide tiles are; None if they do not pay."""
    if images.ndim != 4 or images.device.type != "cpu":
        return None
    count, _, height, width = images.shape
    for tile in _POINTS:
        tiles = count * math.prod(_across(images, tile))
        if tiles >= _ENOUGH_TILES and tiles * tile**2 <= _MOST_PIXELS[tile] * count * height * width:
            return tile
    return None


def _across(images: Tensor, tile: int) -> tuple[int, int]:
    """How many tiles there are below each other and side by side."""
    return -(-images.shape[2] // tile), -(-images.shape[3] // tile)


class _Winograd(torch.autograd.Function):
    """Weights stay as they are; the gradient of the images is a convolution with the same weights in reverse.

    Attacks of others may ask for what torch's own convolution gives them: second derivatives, or torch.func.
    """

    @staticmethod
    def forward(images: Tensor, layer: WinogradConvolution, bias: Tensor | None, tile: int, in_reverse: bool) -> Tensor:
        # The layer is asked here, where there are plain tensors: those of torch.func must not be held.
        weight = layer.weight(tile)
        there, back = (_reversed_matrices if in_reverse else _matrices)(tile, images.dtype)
        weight = weight.mT if in_reverse else weight
        return _convolved(images, weight, bias, there, back, layer.tiles_at_once or _in_caches(images.shape[1]))

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Any, ...], output: Tensor) -> None:
        _, ctx.layer, _, ctx.tile, ctx.in_reverse = inputs

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor, None, None, None, None]:
        made = _Winograd.apply(gradient, ctx.layer, None, ctx.tile, not ctx.in_reverse)  # type: ignore[no-untyped-call]
        return made, None, None, None, None

    @staticmethod
    def jvp(ctx: Any, tangent: Tensor, *_: Any) -> Tensor:
        return _Winograd.apply(tangent, ctx.layer, None, ctx.tile, ctx.in_reverse)  # type: ignore[no-any-return, no-untyped-call]

    @staticmethod
    def vmap(info: Any, dims: tuple[int | None, ...], images: Tensor, *others: Any) -> tuple[Tensor, int]:
        of_images, *of_others = dims
        # The weights are the layer's own.
        assert of_images is not None
        assert of_others == [None] * len(others)
        many = images.movedim(of_images, 0)
        return _Winograd.apply(many.flatten(0, 1), *others).unflatten(0, many.shape[:2]), 0  # type: ignore[no-untyped-call]


def _in_caches(channels: int) -> int:
    return torch.get_num_threads() * max(_TILES_AT_ONCE, int(_OF_CHANNELS * channels))


def _convolved(
    images: Tensor, weight: Tensor, bias: Tensor | None, there: Tensor, back: Tensor, at_once: int
) -> Tensor:
    """[B C H W] -> [B filters H W], channels last in memory: what is copied then lies together."""
    (count, channels, height, width), filters = images.shape, weight.shape[2]
    tile, points = back.shape
    down, right = _across(images, tile)
    made = torch.empty(
        (count, filters, height, width), dtype=images.dtype, device=images.device, memory_format=torch.channels_last
    )
    given, answer = (values.permute(0, 2, 3, 1) for values in (images, made))
    # Several small images, or some rows of a large one.
    most, rows = max(at_once // (down * right), 1), max(at_once // right, 1)
    # Zeros around the image, and where tiles reach over it.
    padded = images.new_zeros(min(most, count), down * tile + 2, right * tile + 2, channels)
    of_image, of_row, of_pixel, _ = padded.stride()
    for start in range(0, count, len(padded)):
        part = given[start : start + len(padded)]
        padded[: len(part), 1 : height + 1, 1 : width + 1] = part
        seen = padded.as_strided(
            (points, points, len(part), down, right, channels),
            (of_row, of_pixel, of_image, tile * of_row, tile * of_pixel, 1),
        )
        for top in range(0, down, rows):
            place = answer[start : start + len(part), top * tile : (top + rows) * tile]
            values = _along_both(there, seen[:, :, :, top : top + rows].reshape(points, points, -1))
            products = torch.bmm(values.view(points**2, -1, channels), weight)
            tiles = _along_both(back, products.view(points, points, -1))
            tiles = tiles.view(tile, tile, len(part), -1, right, filters).permute(2, 3, 0, 4, 1, 5)
            if (down * tile, right * tile) != (height, width):
                tiles = tiles.reshape(len(part), -1, right * tile, filters)[:, : place.shape[1], :width]
            place = place.view(tiles.shape)
            place.copy_(tiles) if bias is None else torch.add(tiles, bias, out=place)
    return made


def _along_both(matrix: Tensor, values: Tensor) -> Tensor:
    """[n m], [m m any] -> [n, n any]"""
    return matrix @ torch.matmul(matrix, values).flatten(1)


def _at_points(weight: Tensor, tile: int) -> Tensor:
    """[points ** 2, C, filters]"""
    filters, channels = weight.shape[:2]
    _, along, _ = _toom_cook(_POINTS[tile])
    return _along_both(_tensor(along, weight.dtype), weight.permute(2, 3, 1, 0).reshape(3, 3, -1)).view(
        -1, channels, filters
    )


@cache
def _matrices(tile: int, dtype: torch.dtype) -> tuple[Tensor, Tensor]:
    """From pixels to points, and from the products at all points to the pixels of a tile."""
    there, _, back = _toom_cook(_POINTS[tile])
    return _tensor(there, dtype), _tensor(back, dtype)


@cache
def _reversed_matrices(tile: int, dtype: torch.dtype) -> tuple[Tensor, Tensor]:
    """From pixels to points and back for weights in reverse.

    A polynomial in reverse has at 1 / x what it had at x, but for a factor: with other points the same weights serve.
    """
    _, forwards, _ = _toom_cook(_POINTS[tile])
    inverse = tuple(math.inf if x == 0 else 1 / x for x in _POINTS[tile])
    there, backwards, back = _toom_cook(inverse)
    factors = (backwards[:, ::-1] * forwards).sum(1) / (forwards * forwards).sum(1)
    return _tensor(there, dtype), _tensor(back * factors, dtype)


def _tensor(matrix: np.ndarray, dtype: torch.dtype) -> Tensor:
    # What is made in inference mode is of no use to a gradient later.
    with torch.inference_mode(False):
        return torch.from_numpy(matrix).to(dtype)


def _toom_cook(points: tuple[float, ...]) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """The matrices for these points; at infinity a polynomial has its last coefficient."""
    count = len(points)
    there, weights, back = np.zeros((count, count)), np.zeros((count, 3)), np.zeros((count - 2, count))
    for row, x in enumerate(points):
        others = [other for other in points if other not in (x, math.inf)]
        vanishing = np.poly(others)[::-1]
        there[row, : len(vanishing)] = vanishing
        if x == math.inf:
            weights[row, -1] = back[-1, row] = 1.0
        else:
            weights[row] = x ** np.arange(3) / np.prod(np.subtract(x, others))
            back[:, row] = x ** np.arange(count - 2)
    return there, weights, back
