"""The first layers of an accelerated network, of which a change in a window of the images changes only a window.

A convolution's output at a place depends on a few pixels.  Where images change in a small square, most of what the
first layers made of them before still holds: they are computed anew for the square and its surroundings alone.
"""

from __future__ import annotations

import copy
import math
import operator
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import reduce
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, fx, nn

from widemargin.fast.blocks import HeldBlocks, PooledConvolution, fits
from widemargin.fast.folding import Shift
from widemargin.fast.pooling import Halving, halved
from widemargin.fast.rewriting import Rewritten, is_a, is_relu, is_sum, layer_of
from widemargin.fast.winograd import WinogradConvolution
from widemargin.shapes import Points
from widemargin.uncertainty.as_logits import AsLogits
from widemargin.uncertainty.single import Single

# Layers are computed in windows as long as a small square reaches at most so much of what they return.
_SMALL_SQUARE, _MOST_REACHED = 0.1, 0.8
# So many numbers may be held at once.
_MOST_HELD = 2**26

_SCALINGS = (operator.sub, operator.mul, operator.truediv, torch.sub, torch.mul, torch.div)

Features = tuple[Tensor, ...]
"""What the first layers made of the images, one tensor for each step; the last is what follows them is given."""


@dataclass(frozen=True)
class Window:
    """Rows and columns of images, or of what layers make of them."""

    rows: slice
    columns: slice

    def of(self, places: Tensor) -> Tensor:
        return places[..., self.rows, self.columns]

    def common(self, other: Window) -> Window:
        return Window(_overlap(self.rows, other.rows), _overlap(self.columns, other.columns))

    def around(self, other: Window) -> Window:
        if self.area == 0 or other.area == 0:
            return other if self.area == 0 else self
        return Window(_hull(self.rows, other.rows), _hull(self.columns, other.columns))

    @property
    def area(self) -> int:
        return int((self.rows.stop - self.rows.start) * (self.columns.stop - self.columns.start))


@dataclass(frozen=True, eq=False)
class Local:
    """A layer whose output at a place depends on a square of `kernel` pixels of its input; zeros around the image."""

    source: int
    kernel: int
    stride: int
    padding: int
    compute: Callable[[Tensor], Tensor]
    """Without padding."""

    def reach(self, window: Window, size: tuple[int, int]) -> Window:
        """Which outputs, of so many, a window of the input has a part in: none, if a stride passes over it."""
        if window.area == 0:
            return window
        rows, columns = (self._reached(side, of) for side, of in zip((window.rows, window.columns), size, strict=True))
        return Window(rows, columns)

    def _reached(self, side: slice, size: int) -> slice:
        start = min(max((side.start + self.padding - self.kernel) // self.stride + 1, 0), size)
        return slice(start, max(start, min((side.stop - 1 + self.padding) // self.stride + 1, size)))

    def patch(self, values: Callable[[Window], Tensor], reach: Window, size: tuple[int, int]) -> Tensor:
        """These outputs, of an input of this size."""
        (top, rows, bottom), (left, columns, right) = (
            self._needed(side, of) for side, of in zip((reach.rows, reach.columns), size, strict=True)
        )
        return self.compute(F.pad(values(Window(rows, columns)), (left, right, top, bottom)))

    def _needed(self, side: slice, size: int) -> tuple[int, slice, int]:
        """Of the input, and how many zeros there are on both sides of it."""
        start = side.start * self.stride - self.padding
        stop = (side.stop - 1) * self.stride - self.padding + self.kernel
        return max(-start, 0), slice(max(start, 0), min(stop, size)), max(stop - size, 0)


@dataclass(frozen=True, eq=False)
class Pointwise:
    """An output that depends on its inputs at the same place alone: rectifiers, sums, shifts."""

    sources: tuple[int, ...]
    compute: Callable[..., Tensor]


Step = Local | Pointwise


@dataclass(frozen=True, eq=False)
class FirstLayers:
    """Values are numbered: 0 the images, then one for each step."""

    steps: tuple[Step, ...]
    sizes: tuple[tuple[int, int], ...]
    """Height and width of each value."""
    held: tuple[int, ...]
    """Which values are kept for all images, since a later step looks around; the last is what the rest is given."""
    rest: Single
    """The network behind the first layers."""

    def features(self, images: Points) -> Features:
        values = _values(self.steps, images)
        return tuple(values[number] for number in self.held)

    def rewrite(self, images: Points, features: Features, windows: Sequence[Window]) -> list[tuple[Tensor, Tensor]]:
        """Bring the features up to date with images that changed in windows: the places, and what was there before."""
        reached = [_reached(window, self.steps, self.sizes) for window in windows]
        values = dict(zip(self.held, features, strict=True)) | {0: images}
        changes = []
        for number, feature in zip(self.held, features, strict=True):
            parts = [reach[number] for reach in reached if reach[number].area > 0]
            # Windows may overlap: what was there before is copied before any is written.
            changes += [(part.of(feature), part.of(feature).clone()) for part in parts]
            for part in parts:
                part.of(feature).copy_(self._patch(number, part, values, anew=True))
        return changes

    def _patch(self, number: int, window: Window, values: dict[int, Tensor], anew: bool = False) -> Tensor:
        if number in values and not anew:
            return window.of(values[number])
        step = self.steps[number - 1]
        if isinstance(step, Pointwise):
            return step.compute(*(self._patch(source, window, values) for source in step.sources))
        return step.patch(lambda part: self._patch(step.source, part, values), window, self.sizes[step.source])


def first_layers(classify: Callable[[Points], Tensor], images: Points) -> FirstLayers | None:
    """Of a network that `accelerated` returned; None if it does not begin with layers that look at few pixels."""
    if not isinstance(classify, Single) or type(classify.encoder) is not nn.Identity or images.ndim != 4:
        return None
    head = classify.head.network if isinstance(classify.head, AsLogits) else classify.head
    if not isinstance(head, Rewritten):
        return None
    graph = head.graph
    steps, nodes = _read(graph, images)
    shapes = _shapes(steps, images)
    depth = _depth(graph, steps, nodes, shapes, images)
    if depth == 0:
        return None
    steps, sizes = steps[:depth], [shape[1:] for shape in shapes[: depth + 1]]
    return FirstLayers(tuple(steps), tuple(sizes), _held(steps), _rest(classify, graph, nodes[depth]))


def _read(graph: fx.GraphModule, images: Points) -> tuple[list[Step], list[fx.Node]]:
    """Steps up to the first that is none of these, and the node of each value."""
    placeholder, *others = graph.graph.nodes
    numbers: dict[fx.Node, int] = {placeholder: 0}
    steps: list[Step] = []
    for node in others:
        if node.op == "get_attr":
            continue
        step = _step(graph, node, numbers, images)
        if step is None:
            break
        numbers[node] = len(numbers)
        steps.append(step)
    return steps, list(numbers)


def _step(graph: fx.GraphModule, node: fx.Node, numbers: dict[fx.Node, int], images: Points) -> Step | None:
    if node.target in _SCALINGS and not node.kwargs:
        return _scaling(graph, node, numbers)
    if not node.args or not all(isinstance(value, fx.Node) and value in numbers for value in node.args):
        return None
    sources = tuple(numbers[value] for value in node.args if isinstance(value, fx.Node))
    layer = layer_of(graph, node)
    # Windows are small: a tile would reach far over them.
    layer = layer.conv if isinstance(layer, WinogradConvolution) else layer
    if is_relu(graph, node) or is_sum(node):
        # What overwrites a value that others read, too, is not understood.
        overwritten = node.args[0]
        if isinstance(overwritten, fx.Node) and len(overwritten.users) > 1 and not _is_pure(graph, node):
            return None
        return Pointwise(sources, torch.relu if is_relu(graph, node) else torch.add)
    if is_a(layer, Shift):
        return Pointwise(sources, layer)
    if is_a(layer, Halving):
        return Local(sources[0], 2, 2, 0, halved)
    if isinstance(layer, PooledConvolution) and _is_square(layer.conv):
        conv = layer.conv
        quick = HeldBlocks(conv) if sources == (0,) and fits(conv, layer.pool, images) else None
        compute = (
            (lambda padded: quick(padded, 0)) if quick else (lambda padded: halved(_convolved(conv, padded)).relu())
        )
        return Local(sources[0], conv.kernel_size[0] + 1, 2, int(conv.padding[0]), compute)
    if is_a(layer, nn.Conv2d) and _is_square(layer):
        return Local(
            sources[0],
            layer.kernel_size[0],
            layer.stride[0],
            int(layer.padding[0]),
            lambda padded: _convolved(layer, padded),
        )
    return None


def _scaling(graph: fx.GraphModule, node: fx.Node, numbers: dict[fx.Node, int]) -> Step | None:
    """A difference, product or quotient with numbers that are the same at all places, as a normalisation of inputs."""
    value, *others = node.args
    constants = [_constant(graph, other) for other in others]
    if not isinstance(value, fx.Node) or value not in numbers or len(others) != 1 or constants[0] is None:
        return None
    return Pointwise((numbers[value],), lambda values: node.target(values, constants[0]))  # type: ignore[operator]


def _constant(graph: fx.GraphModule, value: Any) -> Tensor | float | None:
    if isinstance(value, int | float):
        return value
    if not isinstance(value, fx.Node) or value.op != "get_attr":
        return None
    stored = reduce(getattr, str(value.target).split("."), graph)
    fits_anywhere = isinstance(stored, Tensor) and (stored.ndim == 0 or tuple(stored.shape[-2:]) == (1, 1))
    return stored if fits_anywhere else None  # type: ignore[return-value]


def _is_pure(graph: fx.GraphModule, node: fx.Node) -> bool:
    layer = layer_of(graph, node)
    if layer is not None:
        return not getattr(layer, "inplace", False)
    name = node.target if isinstance(node.target, str) else getattr(node.target, "__name__", "_")
    return not name.endswith("_") and name != "iadd" and not node.kwargs.get("inplace")


def _is_square(conv: nn.Conv2d) -> bool:
    return (
        isinstance(conv.padding, tuple)
        and conv.padding_mode == "zeros"
        and conv.dilation == (1, 1)
        and conv.kernel_size[0] == conv.kernel_size[1] > conv.padding[0] == conv.padding[1]
        and conv.stride[0] == conv.stride[1]
    )


def _convolved(conv: nn.Conv2d, padded: Tensor) -> Tensor:
    return F.conv2d(padded, conv.weight, conv.bias, conv.stride, groups=conv.groups)


def _values(steps: Sequence[Step], images: Points) -> list[Tensor]:
    values = [images]
    for step in steps:
        if isinstance(step, Pointwise):
            values.append(step.compute(*(values[source] for source in step.sources)))
        else:
            values.append(step.compute(F.pad(values[step.source], [step.padding] * 4)))
    return values


def _shapes(steps: Sequence[Step], images: Points) -> list[tuple[int, int, int]]:
    """Channels, height and width of each value."""
    with torch.inference_mode():
        return [(value.shape[1], value.shape[2], value.shape[3]) for value in _values(steps, images[:1])]


def _depth(
    graph: fx.GraphModule, steps: list[Step], nodes: list[fx.Node], shapes: list[tuple[int, int, int]], images: Points
) -> int:
    """How many steps are worth it: what follows them needs the last value alone."""
    height, width = images.shape[2:]
    side = max(round(_SMALL_SQUARE * min(height, width)), 1)
    top, left = (height - side) // 2, (width - side) // 2
    square = Window(slice(top, top + side), slice(left, left + side))
    reached = _reached(square, steps, [shape[1:] for shape in shapes])
    order = {node: number for number, node in enumerate(graph.graph.nodes)}
    depth = 0
    for number in range(1, len(steps) + 1):
        held = sum(math.prod(shapes[one]) for one in _held(steps[:number]))
        if reached[number].area > _MOST_REACHED * math.prod(shapes[number][1:]) or held * len(images) > _MOST_HELD:
            break
        here = order[nodes[number]]
        alone = all(order[user] <= here for node in nodes[:number] for user in node.users)
        if alone and any(isinstance(step, Local) for step in steps[:number]):
            depth = number
    return depth


def _reached(window: Window, steps: Sequence[Step], sizes: Sequence[tuple[int, int]]) -> list[Window]:
    """Of each value, what may change with the images in this window."""
    windows = [window]
    for step, size in zip(steps, sizes[1:], strict=True):
        if isinstance(step, Local):
            windows.append(step.reach(windows[step.source], size))
        else:
            windows.append(reduce(Window.around, (windows[source] for source in step.sources)))
    return windows


def _held(steps: Sequence[Step]) -> tuple[int, ...]:
    """What a kernel looks around in, what is read twice, and the last: all else is computed where it is new."""
    around = {step.source for step in steps if isinstance(step, Local) and step.kernel > step.stride}
    read = [source for step in steps for source in (step.sources if isinstance(step, Pointwise) else (step.source,))]
    twice = {source for source in read if read.count(source) > 1}
    return tuple(sorted((around | twice | {len(steps)}) - {0}))


def _rest(classify: Single, whole: fx.GraphModule, cut: fx.Node) -> Single:
    """The same network, with its own hooks, from this node on."""
    graph = fx.Graph()
    copied = {cut: graph.placeholder("features")}
    behind = False
    for node in whole.graph.nodes:
        if behind or node.op == "get_attr":
            copied[node] = graph.node_copy(node, copied.__getitem__)
        behind = behind or node is cut
    rest = copy.copy(classify)
    rest._modules = dict(classify._modules)
    rest.head = Rewritten(fx.GraphModule(whole, graph))
    return rest


def _overlap(one: slice, two: slice) -> slice:
    start = max(one.start, two.start)
    return slice(start, max(start, min(one.stop, two.stop)))


def _hull(one: slice, two: slice) -> slice:
    return slice(min(one.start, two.start), max(one.stop, two.stop))
