"""What of an answer stays the same while a window of the images changes?  All of the first layers but a window."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass

import torch.nn.functional as F
from torch import Tensor, nn

from widemargin.fast.blocks import HeldBlocks, fits
from widemargin.perturb.attack import Classifier
from widemargin.shapes import Points
from widemargin.uncertainty.cuts import is_chain
from widemargin.uncertainty.single import Single


@dataclass(frozen=True)
class Window:
    """Rows and columns of images, or of what layers make of them."""

    rows: slice
    columns: slice

    def of(self, places: Tensor) -> Tensor:
        return places[..., self.rows, self.columns]

    def common(self, other: Window) -> Window:
        return Window(_overlap(self.rows, other.rows), _overlap(self.columns, other.columns))


@dataclass(frozen=True, eq=False)
class FirstLayers:
    """A convolution, a 2 x 2 pooling and a rectifier: half the work of a small network."""

    conv: nn.Conv2d
    quick: HeldBlocks | None
    """The same on blocks, where these are faster."""

    def features(self, images: Points) -> Tensor:
        """[B C H W] -> [B filters H/2 W/2]"""
        return self._made(images, self._padding)

    def reach(self, window: Window, images: Points) -> Window:
        """Which features a window of the images has a part in."""
        rows, columns = (
            self._reached(side, size)
            for side, size in zip((window.rows, window.columns), images.shape[2:], strict=True)
        )
        return Window(rows, columns)

    def patch(self, images: Points, reach: Window) -> Tensor:
        """These features alone."""
        (top, rows, bottom), (left, columns, right) = (
            self._needed(side, size) for side, size in zip((reach.rows, reach.columns), images.shape[2:], strict=True)
        )
        return self._made(F.pad(images[..., rows, columns], (left, right, top, bottom)), 0)

    def _made(self, images: Tensor, padding: int) -> Tensor:
        if self.quick is not None:
            return self.quick(images, padding)
        return F.max_pool2d(F.conv2d(images, self.conv.weight, self.conv.bias, padding=padding), 2).relu_()

    @property
    def _padding(self) -> int:
        assert isinstance(self.conv.padding[0], int)
        return self.conv.padding[0]

    def _reached(self, side: slice, size: int) -> slice:
        """Along one side of the images."""
        before = self.conv.kernel_size[0] - 1 - self._padding
        outputs = size - before + self._padding
        return slice(max(side.start - before, 0) // 2, (min(side.stop + self._padding, outputs) + 1) // 2)

    def _needed(self, side: slice, size: int) -> tuple[int, slice, int]:
        """Of the images, and how many zeros there are on both sides of it."""
        start = 2 * side.start - self._padding
        stop = 2 * side.stop - self._padding + self.conv.kernel_size[0] - 1
        return max(-start, 0), slice(max(start, 0), min(stop, size)), max(stop - size, 0)


@contextmanager
def cut_open(classify: Classifier, images: Points) -> Iterator[FirstLayers | None]:
    """For this time, a network that begins with such layers is asked for what follows them: `classify(features)`.

    None if it begins otherwise, if somebody looks between its layers, or if it is no network of ours at all.
    """
    leaves = _leaves(classify.head) if isinstance(classify, Single) and _is_nothing(classify.encoder) else []
    first = _first_layers(leaves[:3], images)
    if first is None:
        yield None
        return
    assert isinstance(classify, Single)
    whole = classify.head
    classify.head = nn.Sequential(*leaves[3:]).train(whole.training)
    try:
        yield first
    finally:
        classify.head = whole


def _first_layers(layers: list[nn.Module], images: Points) -> FirstLayers | None:
    if len(layers) < 3 or not isinstance(conv := layers[0], nn.Conv2d) or images.ndim != 4:
        return None
    pools = [layer for layer in layers[1:] if isinstance(layer, nn.MaxPool2d)]
    rectifiers = [layer for layer in layers[1:] if isinstance(layer, nn.ReLU)]
    watched = any(layer._forward_hooks or layer._forward_pre_hooks for layer in layers)
    if len(pools) != 1 or len(rectifiers) != 1 or watched:
        return None
    if not _is_plain(conv, pools[0], images):
        return None
    return FirstLayers(conv, HeldBlocks(conv) if fits(conv, pools[0], images) else None)


def _is_plain(conv: nn.Conv2d, pool: nn.MaxPool2d, images: Points) -> bool:
    if not isinstance(conv.padding, tuple) or conv.padding_mode != "zeros" or conv.bias is None:
        return False
    outputs = [size + 2 * conv.padding[0] - conv.kernel_size[0] + 1 for size in images.shape[2:]]
    return (
        conv.stride == conv.dilation == (1, 1)
        and conv.groups == 1
        and conv.kernel_size[0] == conv.kernel_size[1] > conv.padding[0] == conv.padding[1]
        and (pool.kernel_size, pool.stride, pool.padding, pool.dilation, pool.ceil_mode) == (2, 2, 0, 1, False)
        # Of an odd number the pooling leaves out the last.
        and all(size % 2 == 0 for size in outputs)
    )


def _leaves(module: nn.Module) -> list[nn.Module]:
    """Layers, one after the other."""
    if not is_chain(module):
        return [module]
    return [leaf for child in module._modules.values() if child is not None for leaf in _leaves(child)]


def _is_nothing(module: nn.Module) -> bool:
    return type(module) is nn.Identity


def _overlap(one: slice, two: slice) -> slice:
    start = max(one.start, two.start)
    return slice(start, max(start, min(one.stop, two.stop)))
