"""Layers: their interval bounds, and the backward step of linear bounds, for one point at a time."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from math import inf
from typing import NamedTuple, Protocol, TypeAlias, final

import torch
from jaxtyping import Float
from torch import Tensor
from torch.nn import functional as F
from torch.nn.grad import conv1d_input, conv2d_input

Window: TypeAlias = tuple[range, ...]
"""Which part of an image (or a sequence): a range of places along each axis; empty for all of it."""
Rows = Float[Tensor, "R *F"]
"""Coefficients of R linear functions of a layer's features."""
Constants = Float[Tensor, " R"]


class Interval(NamedTuple):
    """Of every feature of one point: both [1, *F]."""

    low: Tensor
    high: Tensor

    def cut(self, other: Interval) -> Interval:
        """The intersection.  Rounding may separate two sound intervals slightly: then it is the lower end."""
        low = self.low.maximum(other.low)
        return Interval(low, self.high.minimum(other.high).maximum(low))

    def within(self, window: Window) -> Interval:
        return Interval(*(sliced(end, window) for end in self))


def sliced(values: Tensor, window: Window) -> Tensor:
    for axis, places in enumerate(reversed(window), start=1):
        values = values.narrow(-axis, places.start, len(places))
    return values


Substituted: TypeAlias = tuple[tuple[Tensor, ...], Tensor]


class Layer(Protocol):
    def interval(self, *sources: Interval) -> Interval:
        """Bounds of the outputs if every source may be anywhere in its interval."""
        ...

    def substitute(self, rows: Tensor, *sources: Interval) -> Substituted:
        """Linear functions of the sources that lie nowhere above `rows` of the outputs: coefficients and constants.

        CROWN's backward step (Zhang et al. 2018, eq. 8; Xu et al. 2020, Alg. 1).  The sources are known to lie in
        their intervals.
        """
        ...

    def at(self, window: Window, shape: torch.Size) -> tuple[Substitution, Window] | None:
        """If outputs in the window depend only on a window of a source [1, *shape]: that window, and the step from it.

        None for a layer that takes its whole source.
        """
        ...


class Substitution(Protocol):
    def substitute(self, rows: Tensor, *sources: Interval) -> Substituted: ...


@final
@dataclass(frozen=True, eq=False)
class Linear:
    weight: Tensor
    bias: Tensor | None

    def interval(self, *sources: Interval) -> Interval:
        ((low, high),) = sources
        middle, reach = (
            F.linear((low + high) / 2, self.weight, self.bias),
            F.linear((high - low) / 2, self.weight.abs()),
        )
        return Interval(middle - reach, middle + reach)

    def substitute(self, rows: Tensor, *sources: Interval) -> Substituted:
        # A linear layer may stand behind more axes than one; its bias is the same along them.
        constants = _none(rows) if self.bias is None else (rows @ self.bias).view(len(rows), -1).sum(1)
        return (rows @ self.weight,), constants

    def at(self, window: Window, shape: torch.Size) -> tuple[Substitution, Window] | None:
        return None

    def lengths(self, dual: float, moves: Tensor) -> Tensor:
        """Of the rows, without the features that do not move; where there are several rows of features, with all."""
        weight = self.weight * moves[0] if moves.ndim == 2 else self.weight
        return torch.linalg.vector_norm(weight, dual, dim=1)  # type: ignore[no-any-return]


@final
@dataclass(frozen=True, eq=False)
class Conv:
    weight: Tensor
    bias: Tensor | None
    stride: tuple[int, ...]
    padding: tuple[int, ...]
    dilation: tuple[int, ...]
    groups: int

    def interval(self, *sources: Interval) -> Interval:
        ((low, high),) = sources
        middle = self._apply((low + high) / 2, self.weight, self.bias)
        reach = self._apply((high - low) / 2, self.weight.abs(), None)
        return Interval(middle - reach, middle + reach)

    def substitute(self, rows: Tensor, *sources: Interval) -> Substituted:
        ((low, _),) = sources
        transposed: Callable[..., Tensor] = conv2d_input if low.ndim == 4 else conv1d_input
        shape = [len(rows), *low.shape[1:]]
        back = transposed(shape, self.weight, rows, self.stride, self.padding, self.dilation, self.groups)
        return (back,), self.constants(rows)

    def constants(self, rows: Tensor) -> Tensor:
        return _none(rows) if self.bias is None else rows.flatten(2).sum(2) @ self.bias

    def at(self, window: Window, shape: torch.Size) -> tuple[ConvWindow, Window]:
        taken, cut = [], []
        geometry = zip(window, shape[2:], self.weight.shape[2:], self.stride, self.padding, self.dilation, strict=True)
        for places, size, kernel, stride, padding, dilation in geometry:
            start = places.start * stride - padding
            stop = (places.stop - 1) * stride - padding + (kernel - 1) * dilation + 1
            taken.append(range(max(start, 0), min(stop, size)))
            cut.append(max(start, 0) - start)
        return ConvWindow(self, tuple(cut)), tuple(taken)

    def lengths(self, dual: float, moves: Tensor) -> Tensor:
        """Of a filter that padding does not cut: at the edge it is shorter, so this is sound there too, and where
        features do not move."""
        lengths = torch.linalg.vector_norm(self.weight.flatten(1), dual, dim=1)
        return lengths.view(-1, *[1] * (self.weight.ndim - 2))  # type: ignore[no-any-return]

    def _apply(self, values: Tensor, weight: Tensor, bias: Tensor | None) -> Tensor:
        convolve = F.conv2d if values.ndim == 4 else F.conv1d
        return convolve(values, weight, bias, self.stride, self.padding, self.dilation, self.groups)


@final
@dataclass(frozen=True, eq=False)
class ConvWindow:
    """A convolution from a window of its input to a window of its output: `cut` places before that are padding."""

    conv: Conv
    cut: tuple[int, ...]

    def substitute(self, rows: Tensor, *sources: Interval) -> Substituted:
        ((low, _),) = sources
        conv = self.conv
        transposed: Callable[..., Tensor] = F.conv_transpose2d if low.ndim == 4 else F.conv_transpose1d
        back = transposed(rows, conv.weight, None, conv.stride, 0, 0, conv.groups, conv.dilation)
        taken = tuple(range(cut, cut + size) for cut, size in zip(self.cut, low.shape[2:], strict=True))
        return (sliced(back, taken),), conv.constants(rows)


@final
@dataclass(frozen=True, eq=False)
class Scale:
    """Feature by feature: batch-norm in eval mode, and sums and products with a constant."""

    factor: Tensor
    shift: Tensor

    def interval(self, *sources: Interval) -> Interval:
        ((low, high),) = sources
        ends = low * self.factor + self.shift, high * self.factor + self.shift
        return Interval(torch.minimum(*ends), torch.maximum(*ends))

    def substitute(self, rows: Tensor, *sources: Interval) -> Substituted:
        return (rows * self.factor,), (rows * self.shift).flatten(1).sum(1)

    def at(self, window: Window, shape: torch.Size) -> tuple[Substitution, Window] | None:
        factor, shift = (sliced(part.expand(shape), window) for part in (self.factor, self.shift))
        return Scale(factor, shift), window


@final
@dataclass(frozen=True, eq=False)
class Average:
    """Any linear function without negative coefficients or constants: average pooling, a mean over an image."""

    function: Callable[[Tensor], Tensor]

    def interval(self, *sources: Interval) -> Interval:
        ((low, high),) = sources
        return Interval(self.function(low), self.function(high))

    def substitute(self, rows: Tensor, *sources: Interval) -> Substituted:
        ((low, _),) = sources
        with torch.enable_grad():
            anywhere = low.new_zeros(len(rows), *low.shape[1:]).requires_grad_()
            (back,) = torch.autograd.grad(self.function(anywhere), anywhere, rows)
        return (back,), _none(rows)

    def at(self, window: Window, shape: torch.Size) -> tuple[Substitution, Window] | None:
        return None


@final
@dataclass(frozen=True)
class Reshape:
    """The same features in the same order: flatten, view, and layers that do nothing in eval mode."""

    shape: tuple[int, ...]

    def interval(self, *sources: Interval) -> Interval:
        ((low, high),) = sources
        return Interval(low.reshape(1, *self.shape), high.reshape(1, *self.shape))

    def substitute(self, rows: Tensor, *sources: Interval) -> Substituted:
        ((low, _),) = sources
        return (rows.reshape(len(rows), *low.shape[1:]),), _none(rows)

    def at(self, window: Window, shape: torch.Size) -> tuple[Substitution, Window] | None:
        if self.shape != tuple(shape[1:]):
            return None
        return _SAME, window


@final
class _Same:
    def substitute(self, rows: Tensor, *sources: Interval) -> Substituted:
        return (rows,), _none(rows)


_SAME = _Same()


@final
@dataclass(frozen=True)
class Add:
    """The sum or difference of two sources: skip connections."""

    sign: int = 1

    def interval(self, *sources: Interval) -> Interval:
        (low, high), (other_low, other_high) = sources
        if self.sign < 0:
            return Interval(low - other_high, high - other_low)
        return Interval(low + other_low, high + other_high)

    def substitute(self, rows: Tensor, *sources: Interval) -> Substituted:
        return (rows, rows * self.sign), _none(rows)

    def at(self, window: Window, shape: torch.Size) -> tuple[Substitution, Window] | None:
        return self, window


@final
@dataclass(frozen=True)
class ReLU:
    def interval(self, *sources: Interval) -> Interval:
        ((low, high),) = sources
        return Interval(low.relu(), high.relu())

    def substitute(self, rows: Tensor, *sources: Interval) -> Substituted:
        """Above, the chord; below, 0 or the identity, whichever leaves less area (Zhang et al., Sec. 3.3)."""
        ((low, high),) = sources
        bent = (low < 0) & (high > 0)
        chord = torch.where(bent, high / (high - low), (low >= 0).to(low))
        below = torch.where(bent, (high > -low).to(low), chord)
        constant = torch.where(bent, -low * chord, 0.0)
        falling = rows.clamp_max(0)
        return (falling * chord + (rows - falling) * below,), falling.flatten(1) @ constant.flatten()

    def at(self, window: Window, shape: torch.Size) -> tuple[Substitution, Window] | None:
        return self, window

    def looseness(self, source: Interval, rectified: bool) -> Tensor:
        """The area between the bounds of each feature, 0 where the ReLU is linear."""
        return (-source.low).relu() * source.high.relu()


@final
@dataclass(frozen=True)
class MaxPool:
    kernel: tuple[int, int]
    stride: tuple[int, int]
    padding: tuple[int, int]

    def interval(self, *sources: Interval) -> Interval:
        ((low, high),) = sources
        return Interval(*(F.max_pool2d(end, self.kernel, self.stride, self.padding) for end in (low, high)))

    def substitute(self, rows: Tensor, *sources: Interval) -> Substituted:
        """The window's feature i with the highest end lies below u_i, the others below u_j, the highest end but one.

        Above the maximum lies the line in i alone from u_j (where i is lowest) to u_i; below it lies any feature: the
        one with the highest middle is taken.  Both are the feature itself where it is above all others.
        """
        ((low, high),) = sources
        lows, highs = self._windows(low), self._windows(high)
        (first, second), (leader, _) = (part.unbind(2) for part in highs.topk(2, 2))
        lowest = lows.gather(2, leader[:, :, None]).squeeze(2)
        # Padding, and so a window of one feature, lies below all others: then i is above them, and there is no 0 / 0.
        slope = torch.where(lowest >= second, 1.0, (first - second) / (first - lowest).clamp_min(_tiny(low)))
        constant = torch.where(lowest >= second, 0.0, second - slope * lowest)
        above = torch.zeros_like(lows).scatter(2, leader[:, :, None], slope[:, :, None])
        below = torch.zeros_like(lows).scatter(2, (lows + highs).argmax(2, keepdim=True), 1.0)
        rows = rows.flatten(2)
        falling = rows.clamp_max(0)
        spread = falling[:, :, None] * above + (rows - falling)[:, :, None] * below
        return (self._gathered(spread, low.shape),), falling.flatten(1) @ constant.flatten()

    def at(self, window: Window, shape: torch.Size) -> tuple[Substitution, Window] | None:
        if self.stride != self.kernel or self.padding != (0, 0):
            return None
        sides = zip(window, self.kernel, strict=True)
        return self, tuple(range(places.start * size, places.stop * size) for places, size in sides)

    def looseness(self, source: Interval, rectified: bool) -> Tensor:
        """How wide the features are that may be the highest of a window, 0 for those that cannot or must be.

        Of a window that a ReLU will set to 0 it does not matter which is highest.
        """
        lows, highs = self._windows(source.low), self._windows(source.high)
        may_be = highs > lows.amax(2, keepdim=True).clamp_min(0.0 if rectified else -inf)
        open_widths = (highs - lows) * (may_be & (may_be.sum(2, keepdim=True) > 1))
        return self._gathered(open_widths, source.low.shape)

    def _windows(self, values: Tensor) -> Tensor:
        """[1, channels, places in a window, windows]; what is beyond the edge is below everything."""
        height, width = self.padding
        padded = F.pad(values, (width, width, height, height), value=float(values.min()) - 1)
        windows: Tensor = F.unfold(padded, self.kernel, stride=self.stride)
        return windows.unflatten(1, (values.shape[1], -1))  # type: ignore[no-any-return]

    def _gathered(self, spread: Tensor, shape: torch.Size) -> Tensor:
        """For every place the sum over all windows it is in."""
        (height, width), (top, left) = shape[2:], self.padding
        even = height % self.kernel[0] == 0 and width % self.kernel[1] == 0
        if self.stride == self.kernel and self.padding == (0, 0) and even:
            # Windows side by side: every place has one, and only the order of axes changes.
            tiles = spread.unflatten(3, (-1, width // self.kernel[1])).unflatten(2, self.kernel)
            return torch.reshape(tiles.permute(0, 1, 4, 2, 5, 3), (-1, *shape[1:]))
        padded = (height + 2 * top, width + 2 * left)
        summed: Tensor = F.fold(spread.flatten(1, 2), padded, self.kernel, stride=self.stride)
        return summed[:, :, top : top + height, left : left + width]


def _none(rows: Tensor) -> Tensor:
    return rows.new_zeros(len(rows))


def _tiny(like: Tensor) -> float:
    return torch.finfo(like.dtype).tiny
