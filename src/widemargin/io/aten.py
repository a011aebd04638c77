"""The operators that are run from .pt2 files, an allowlist; names in a file are looked up nowhere else.

None of them is random, works in place, opens a file, or trusts sizes that it could check.
"""

from __future__ import annotations

import operator
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor
from torch._ops import OpOverload

aten = torch.ops.aten
# fmt: off
_OVERLOADS: tuple[OpOverload, ...] = (
    # Layers.
    aten.linear.default, aten.addmm.default, aten.mm.default, aten.bmm.default, aten.baddbmm.default,
    aten.matmul.default, aten.mv.default, aten.dot.default, aten.einsum.default, aten.bilinear.default,
    aten.conv1d.default, aten.conv1d.padding, aten.conv2d.default, aten.conv2d.padding, aten.conv3d.default,
    aten.conv3d.padding, aten.conv_transpose1d.default, aten.conv_transpose2d.input, aten.conv_transpose3d.input,
    aten.batch_norm.default, aten.layer_norm.default, aten.native_layer_norm.default, aten.group_norm.default,
    aten.rms_norm.default, aten.dropout.default, aten.feature_dropout.default, aten.alpha_dropout.default,
    aten.embedding.default, aten.scaled_dot_product_attention.default,
    # Pooling and resizing.
    aten.avg_pool1d.default, aten.avg_pool2d.default, aten.avg_pool3d.default, aten.max_pool1d.default,
    aten.max_pool2d.default, aten.max_pool3d.default, aten.adaptive_avg_pool1d.default,
    aten.adaptive_avg_pool2d.default, aten.adaptive_avg_pool3d.default, aten.adaptive_max_pool1d.default,
    aten.adaptive_max_pool2d.default, aten.adaptive_max_pool3d.default, aten.upsample_nearest1d.vec,
    aten.upsample_nearest2d.vec, aten.upsample_nearest3d.vec, aten.upsample_linear1d.vec, aten.upsample_bilinear2d.vec,
    aten.upsample_trilinear3d.vec, aten.upsample_bicubic2d.vec, aten.pixel_shuffle.default,
    aten.pixel_unshuffle.default, aten.channel_shuffle.default, aten.pad.default, aten.constant_pad_nd.default,
    aten.reflection_pad1d.default, aten.reflection_pad2d.default, aten.replication_pad1d.default,
    aten.replication_pad2d.default,
    # Activations.
    aten.relu.default, aten.relu6.default, aten.gelu.default, aten.silu.default, aten.mish.default, aten.elu.default,
    aten.selu.default, aten.celu.default, aten.leaky_relu.default, aten.prelu.default, aten.hardtanh.default,
    aten.hardswish.default, aten.hardsigmoid.default, aten.softplus.default, aten.log_sigmoid.default,
    aten.sigmoid.default, aten.tanh.default, aten.glu.default, aten.hardshrink.default, aten.softshrink.default,
    aten.threshold.default, aten.softmax.int, aten.log_softmax.int,
    # Arithmetic.
    aten.add.Tensor, aten.add.Scalar, aten.sub.Tensor, aten.sub.Scalar, aten.rsub.Tensor, aten.rsub.Scalar,
    aten.mul.Tensor, aten.mul.Scalar, aten.div.Tensor, aten.div.Scalar, aten.div.Tensor_mode, aten.div.Scalar_mode,
    aten.true_divide.Tensor, aten.true_divide.Scalar, aten.floor_divide.default, aten.floor_divide.Scalar,
    aten.remainder.Tensor, aten.remainder.Scalar, aten.fmod.Tensor, aten.fmod.Scalar, aten.pow.Tensor_Tensor,
    aten.pow.Tensor_Scalar, aten.pow.Scalar, aten.addcmul.default, aten.lerp.Scalar, aten.lerp.Tensor,
    aten.neg.default, aten.abs.default, aten.sign.default, aten.square.default, aten.sqrt.default, aten.rsqrt.default,
    aten.reciprocal.default, aten.exp.default, aten.exp2.default, aten.expm1.default, aten.log.default,
    aten.log1p.default, aten.log2.default, aten.erf.default, aten.sin.default, aten.cos.default, aten.tan.default,
    aten.sinh.default, aten.cosh.default, aten.atan.default, aten.asinh.default, aten.floor.default, aten.ceil.default,
    aten.round.default, aten.trunc.default, aten.frac.default, aten.clamp.default, aten.clamp.Tensor,
    aten.clamp_min.default, aten.clamp_min.Tensor, aten.clamp_max.default, aten.clamp_max.Tensor,
    aten.maximum.default, aten.minimum.default, aten.max.other, aten.min.other, aten.where.self,
    aten.where.ScalarOther, aten.where.ScalarSelf, aten.where.Scalar, aten.masked_fill.Scalar,
    aten.masked_fill.Tensor, aten.tril.default, aten.triu.default,
    aten.eq.Tensor, aten.eq.Scalar, aten.ne.Tensor, aten.ne.Scalar, aten.lt.Tensor, aten.lt.Scalar, aten.le.Tensor,
    aten.le.Scalar, aten.gt.Tensor, aten.gt.Scalar, aten.ge.Tensor, aten.ge.Scalar, aten.isnan.default,
    aten.any.default, aten.any.dim, aten.any.dims, aten.all.default, aten.all.dim, aten.all.dims,
    aten.logical_and.default, aten.logical_or.default, aten.logical_not.default, aten.bitwise_and.Tensor,
    aten.bitwise_or.Tensor, aten.bitwise_not.default,
    # Sums and the like.
    aten.mean.default, aten.mean.dim, aten.sum.default, aten.sum.dim_IntList, aten.prod.default, aten.prod.dim_int,
    aten.amax.default, aten.amin.default, aten.max.default, aten.max.dim, aten.min.default, aten.min.dim,
    aten.var.default, aten.var.dim, aten.var.correction, aten.var_mean.correction, aten.std.default, aten.std.dim,
    aten.std.correction, aten.logsumexp.default, aten.cumsum.default, aten.argmax.default, aten.norm.Scalar,
    aten.norm.ScalarOpt_dim, aten.linalg_vector_norm.default, aten.cosine_similarity.default, aten.cdist.default,
    # Shapes.
    aten.view.default, aten.view_as.default, aten.reshape.default, aten.reshape_as.default, aten.flatten.using_ints,
    aten.unflatten.int, aten.squeeze.default, aten.squeeze.dim, aten.squeeze.dims, aten.unsqueeze.default,
    aten.permute.default, aten.transpose.int, aten.t.default, aten.mT.default, aten.numpy_T.default, aten.movedim.int,
    aten.movedim.intlist, aten.swapaxes.default, aten.swapdims.default, aten.expand.default, aten.expand_as.default,
    aten.broadcast_to.default, aten.repeat.default, aten.tile.default, aten.repeat_interleave.self_int,
    aten.slice.Tensor, aten.select.int, aten.narrow.default, aten.split.Tensor, aten.split.sizes,
    aten.split_with_sizes.default, aten.chunk.default, aten.unbind.int, aten.cat.default, aten.concat.default,
    aten.stack.default, aten.hstack.default, aten.vstack.default, aten.index_select.default, aten.index.Tensor,
    aten.gather.default, aten.flip.default, aten.roll.default, aten.unfold.default, aten.im2col.default,
    aten.sym_size.int,
    # Copies and constants.
    aten.clone.default, aten.contiguous.default, aten.alias.default, aten.detach.default, aten.lift_fresh_copy.default,
    aten._to_copy.default, aten.to.dtype, aten.to.dtype_layout, aten.to.device, aten.to.other, aten.type_as.default,
    aten.full.default, aten.ones.default, aten.zeros.default, aten.arange.default, aten.arange.start,
    aten.arange.start_step, aten.full_like.default, aten.ones_like.default, aten.zeros_like.default,
    aten.new_full.default, aten.new_ones.default, aten.new_zeros.default, aten.scalar_tensor.default,
)
_OVERWRITING: dict[OpOverload, OpOverload] = {
    aten.relu_.default: aten.relu.default, aten.relu6_.default: aten.relu6.default,
    aten.silu_.default: aten.silu.default, aten.mish_.default: aten.mish.default, aten.elu_.default: aten.elu.default,
    aten.selu_.default: aten.selu.default, aten.celu_.default: aten.celu.default,
    aten.leaky_relu_.default: aten.leaky_relu.default, aten.hardtanh_.default: aten.hardtanh.default,
    aten.hardswish_.default: aten.hardswish.default, aten.hardsigmoid_.default: aten.hardsigmoid.default,
    aten.sigmoid_.default: aten.sigmoid.default, aten.tanh_.default: aten.tanh.default,
    aten.dropout_.default: aten.dropout.default, aten.clamp_.default: aten.clamp.default,
    aten.add_.Tensor: aten.add.Tensor, aten.sub_.Tensor: aten.sub.Tensor, aten.mul_.Tensor: aten.mul.Tensor,
    aten.div_.Tensor: aten.div.Tensor,
}
_FRESH: tuple[OpOverload, ...] = (
    aten.linear.default, aten.addmm.default, aten.mm.default, aten.bmm.default, aten.conv1d.default,
    aten.conv1d.padding, aten.conv2d.default, aten.conv2d.padding, aten.conv3d.default, aten.conv3d.padding,
    aten.batch_norm.default, aten.layer_norm.default, aten.group_norm.default, aten.add.Tensor, aten.sub.Tensor,
    aten.mul.Tensor, aten.div.Tensor, aten.cat.default, aten.max_pool2d.default, aten.avg_pool2d.default,
    aten.relu.default, aten.relu6.default, aten.gelu.default, aten.silu.default, aten.mish.default, aten.elu.default,
    aten.leaky_relu.default, aten.hardtanh.default, aten.hardswish.default, aten.hardsigmoid.default,
    aten.sigmoid.default, aten.tanh.default,
)
# fmt: on


def _softmax(self: Tensor, dim: int, half_to_float: bool) -> Tensor:
    return torch.softmax(self, dim)


def _log_softmax(self: Tensor, dim: int, half_to_float: bool) -> Tensor:
    return torch.log_softmax(self, dim)


def _batch_norm(
    input: Tensor,
    weight: Tensor | None,
    bias: Tensor | None,
    running_mean: Tensor,
    running_var: Tensor,
    momentum: float,
    eps: float,
) -> tuple[Tensor, None, None]:
    return F.batch_norm(input, running_mean, running_var, weight, bias, False, momentum, eps), None, None


def _group_norm(
    input: Tensor, weight: Tensor | None, bias: Tensor | None, N: int, C: int, HxW: int, group: int, eps: float
) -> tuple[Tensor, None, None]:
    # The aten operator trusts N, C and HxW.
    return F.group_norm(input, group, weight, bias, eps), None, None


def _instance_norm(
    input: Tensor,
    weight: Tensor | None,
    bias: Tensor | None,
    running_mean: None,
    running_var: None,
    use_input_stats: bool,
    momentum: float,
    eps: float,
    cudnn_enabled: bool,
) -> Tensor:
    if running_mean is not None or running_var is not None:
        raise ValueError("statistics that it keeps could change")
    return F.instance_norm(input, None, None, weight, bias, True, momentum, eps)


def _dropout(input: Tensor, p: float, train: bool) -> tuple[Tensor, None]:
    return input, None


def _attention(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    dropout_p: float = 0.0,
    is_causal: bool = False,
    attn_mask: Tensor | None = None,
    scale: float | None = None,
) -> tuple[Tensor, None]:
    return F.scaled_dot_product_attention(query, key, value, attn_mask, 0.0, is_causal, scale=scale), None


def _convolution(
    input: Tensor,
    weight: Tensor,
    bias: Tensor | None,
    stride: list[int],
    padding: list[int],
    dilation: list[int],
    transposed: bool,
    output_padding: list[int],
    groups: int,
) -> Tensor:
    if transposed:
        return torch.convolution(input, weight, bias, stride, padding, dilation, True, output_padding, groups)
    conv = {3: F.conv1d, 4: F.conv2d, 5: F.conv3d}[weight.ndim]
    return conv(input, weight, bias, stride, padding, dilation, groups)


def _max_pool(pool: Callable[..., Tensor]) -> Callable[..., tuple[Tensor, None]]:
    def run(
        self: Tensor,
        kernel_size: Sequence[int],
        stride: Sequence[int] = (),
        padding: Sequence[int] | int = 0,
        dilation: Sequence[int] | int = 1,
        ceil_mode: bool = False,
    ) -> tuple[Tensor, None]:
        return pool(self, kernel_size, stride or None, padding, dilation, ceil_mode), None

    return run


def _sizes_of_pool(pool: Callable[..., Tensor]) -> Callable[[Tensor, list[int]], Tensor]:
    def run(self: Tensor, output_size: list[int]) -> Tensor:
        return pool(self, output_size)

    return run


def _reshape(self: Tensor, size: list[int]) -> Tensor:
    return self.reshape(size)


@dataclass(frozen=True)
class _OfNumbers:
    """Arithmetic of sizes: numbers only, of at most 64 bits."""

    function: Callable[..., Any]

    def __call__(self, *numbers: Any) -> Any:
        if any(isinstance(number, Tensor | list | tuple | str | None) for number in numbers):
            raise TypeError("it is for numbers alone")
        result = self.function(*numbers)
        if isinstance(result, int) and abs(result) >= 2**63:
            raise OverflowError("its result has more than 64 bits")
        return result


# fmt: off
_FUNCTIONS: dict[str, Callable[..., Any]] = {
    "torch.ops.aten._softmax.default": _softmax,
    "torch.ops.aten._log_softmax.default": _log_softmax,
    "torch.ops.aten._native_batch_norm_legit_no_training.default": _batch_norm,
    "torch.ops.aten.native_group_norm.default": _group_norm,
    "torch.ops.aten.instance_norm.default": _instance_norm,
    "torch.ops.aten.native_dropout.default": _dropout,
    "torch.ops.aten._scaled_dot_product_flash_attention_for_cpu.default": _attention,
    "torch.ops.aten.convolution.default": _convolution,
    "torch.ops.aten.max_pool2d_with_indices.default": _max_pool(F.max_pool2d),
    "torch.ops.aten.max_pool3d_with_indices.default": _max_pool(F.max_pool3d),
    "torch.ops.aten._adaptive_avg_pool2d.default": _sizes_of_pool(F.adaptive_avg_pool2d),
    "torch.ops.aten._adaptive_avg_pool3d.default": _sizes_of_pool(F.adaptive_avg_pool3d),
    "torch.ops.aten._unsafe_view.default": _reshape,
    "_operator.add": _OfNumbers(operator.add), "_operator.sub": _OfNumbers(operator.sub),
    "_operator.mul": _OfNumbers(operator.mul), "_operator.floordiv": _OfNumbers(operator.floordiv),
    "_operator.mod": _OfNumbers(operator.mod), "_operator.truediv": _OfNumbers(operator.truediv),
    "_operator.neg": _OfNumbers(operator.neg), "_operator.eq": _OfNumbers(operator.eq),
    "_operator.ne": _OfNumbers(operator.ne), "_operator.lt": _OfNumbers(operator.lt),
    "_operator.le": _OfNumbers(operator.le), "_operator.gt": _OfNumbers(operator.gt),
    "_operator.ge": _OfNumbers(operator.ge),
}
# fmt: on
OPERATORS: dict[str, Callable[..., Any]] = {f"torch.ops.{one}": one for one in _OVERLOADS} | _FUNCTIONS
OVERWRITING: dict[str, Callable[..., Any]] = {f"torch.ops.{one}": plain for one, plain in _OVERWRITING.items()}
"""In-place operators and their replacements: the same, where nothing else reads the overwritten value."""
FRESH = {f"torch.ops.{one}" for one in (*_FRESH, *_OVERWRITING)} | {"torch.ops.aten.convolution.default"}
"""Operators whose results share no memory with other values."""


def positional(run: Callable[..., Any], given: Sequence[str]) -> int:
    """How many of the first arguments are passed by position, as torch.fx expects them."""
    if not isinstance(run, OpOverload):
        # Our own functions are called by name; numbers have none.
        return len(given) if isinstance(run, _OfNumbers) else 0
    order = [argument.name for argument in run._schema.arguments if not argument.kwarg_only]
    return next((i for i, (a, b) in enumerate(zip(given, order, strict=False)) if a != b), min(len(given), len(order)))
