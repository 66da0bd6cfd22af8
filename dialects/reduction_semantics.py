"""Scalar semantics of casts and reductions: sums, norms, products, softmax."""

# ruff: noqa: D103 (a function here is its own sentence)

from __future__ import annotations

from math import inf, prod
from typing import Any

from xdsl.dialects.builtin import DenseArrayBase
from xdsl.ir import Attribute, Operation

import stepwell.dialects.aten.families  # noqa: F401  # pyright: ignore[reportUnusedImport]
from stepwell.dialects.quant.types import Quantization, quantization
from stepwell.dialects.scalar_semantics import Limit, limited, times
from stepwell.ir.axes.maps import axis_map
from stepwell.ir.declared.families import ops_of
from stepwell.ir.declared.scalar_semantics import (
    NotSaid,
    Scalar,
    Term,
    absolute,
    average,
    cast_to,
    counts,
    equal,
    exp,
    greatest,
    log,
    means,
    ranges,
    reciprocal,
    round_,
    rsqrt,
    some,
    total,
    where,
)
from stepwell.ir.dtypes import f32, f64, i1
from stepwell.ir.types import dims, element

# -- casts ---------------------------------------------------------------------------------------


@means("quantized_decomposed.quantize_per_tensor.default")
def quantize(
    x: Term,
    scale: Scalar,
    zero_point: Scalar,
    quant_min: Scalar,
    quant_max: Scalar,
    *,
    op: Operation,
) -> Term:
    rounded = round_(x * reciprocal(scale)) + zero_point
    return cast_to(limited(rounded, quant_min, quant_max), element(op.results[0].type))


@means("quantized_decomposed.dequantize_per_tensor.default")
def dequantize(x: Term, scale: Scalar, zero_point: Scalar) -> Term:
    return (x - zero_point) * scale


@means("quant.qcast")
def qcast(x: Term, *, op: Operation) -> Term:
    held = _of_one_scale(op.results[0].type)
    (scale,), (zero,) = held.scales, held.zero_points
    return quantize(x, scale, zero, held.low, held.high, op=op)


@means("quant.dcast")
def dcast(x: Term, *, op: Operation) -> Term:
    scale = _of_one_scale(op.operands[0].type)
    return dequantize(x, scale.scales[0], scale.zero_points[0])


def _of_one_scale(type_: Attribute) -> Quantization:
    scale = quantization(type_)
    if scale is None or not scale.is_per_tensor:
        raise NotSaid
    return scale


@means(*ops_of("cast", "aten"), "tosa.cast", "xnnpack.convert")
def cast(x: Term, *, op: Operation) -> Term:
    return cast_to(x, element(op.results[0].type))


@means("aten.copy.default")
def copied(x: Term, source: Term, *, op: Operation) -> Term:
    return cast_to(source, element(op.results[0].type))


@means("quant.scast")
def stored(x: Term) -> Term:
    return x


# -- reductions ------------------------------------------------------------------------------


@means("aten.sum.dim_IntList", "aten.sum.default", "tosa.reduce_sum")
def sum_(x: Term) -> Term:
    return total(x)


@means("aten.mean.dim", "aten.mean.default")
def mean(x: Term) -> Term:
    return average(x)


@means("aten.any.dim")
def any_(x: Term, *, op: Operation) -> Term:
    if element(op.operands[0].type) != i1:
        raise NotSaid
    return greatest(x)


@means("aten.topk.default", "aten.sort.default", "aten.max.dim", "aten.min.dim")
def picks(x: Term) -> Term:
    return some(x)


@ranges("tosa.argmax")
def _places(op: Any) -> tuple[int, int]:
    size = dims(op.operands[0].type)[op.axis.value.data]
    return 0, (size if isinstance(size, int) else 1 << 31) - 1


@means("aten.max_pool2d.default", "tosa.max_pool2d", "xnnpack.max_pooling_2d")
def max_pool(x: Term, *, output_min: Limit, output_max: Limit, dilation: Any) -> Term:
    steps = dilation.get_values() if isinstance(dilation, DenseArrayBase) else dilation
    if any(step != 1 for step in (steps if isinstance(steps, list | tuple) else [steps or 1])):
        raise NotSaid  # All pixels of a window may be padding, which is −∞.
    return limited(greatest(x), output_min, output_max)


@means("xnnpack.global_average_pooling_2d")
def global_average_pool(x: Term, *, output_min: Limit, output_max: Limit) -> Term:
    return limited(average(x), output_min, output_max)


@means("aten.softmax.int", "aten._softmax.default", "xnnpack.softmax")
def softmax(x: Term, *, dtype: Attribute | None = None) -> Term:
    x = x if dtype is None else cast_to(x, dtype)
    exponentials = exp(x - greatest(x))
    return exponentials / total(exponentials)


@means("aten._safe_softmax.default")
def safe_softmax(x: Term) -> Term:
    return where(equal(greatest(x), -inf), 0.0, softmax(x))


@means("aten.log_softmax.int", "aten._log_softmax.default")
def log_softmax(x: Term, *, dtype: Attribute | None = None) -> Term:
    x = x if dtype is None else cast_to(x, dtype)
    less = x - greatest(x)
    return less - log(total(exp(less)))


@means("aten.logsumexp.default")
def logsumexp(x: Term) -> Term:
    high = greatest(x)
    high = where(equal(absolute(high), inf), 0.0, high)
    return log(total(exp(x - high))) + high


@means("aten.layer_norm.default", "aten.native_layer_norm.default")
def layer_norm(x: Term, *, weight: Limit, bias: Limit, eps: Scalar) -> Term:
    centered = x - average(x)
    return _scaled(centered * rsqrt(average(centered * centered) + eps), weight, bias)


@means("aten.group_norm.default")
def group_norm(x: Term, *, weight: Limit, bias: Limit, eps: Scalar) -> Term:
    return layer_norm(x, weight=weight, bias=bias, eps=eps)


@counts("aten.group_norm.default")
def _of_group(op: Any) -> int | None:
    sizes = dims(op.operands[0].type)[1:]
    whole = [size for size in sizes if isinstance(size, int)]
    return prod(whole) // op.arg("num_groups") if len(whole) == len(sizes) else None


@means("aten.batch_norm.default", "aten._native_batch_norm_legit_no_training.default",
       "aten.native_batch_norm.default", "aten._batch_norm_no_update.default",
       "aten.instance_norm.default")  # fmt: skip
def batch_norm(
    x: Term, weight: Limit, bias: Limit, mean: Limit, var: Limit, *, eps: Scalar, op: Operation
) -> Term:
    if mean is None or var is None or axis_map(op) is None:
        raise NotSaid
    return _scaled((x - mean) * rsqrt(var + eps), weight, bias)


@means("aten.rms_norm.default", "aten._fused_rms_norm.default")
def rms_norm(x: Term, *, weight: Limit, eps: Scalar | None, op: Operation) -> Term:
    if eps is None:
        eps = _EPSILON.get(element(op.operands[0].type))
    if eps is None:
        raise NotSaid
    return _scaled(x * rsqrt(average(x * x) + eps), weight, None)


_EPSILON: dict[Attribute, float] = {f32: 2.0**-23, f64: 2.0**-52}


def _scaled(x: Term, scale: Limit, shift: Limit) -> Term:
    x = x if scale is None else x * scale
    return x if shift is None else x + shift


@means("aten.linear.default", "aten.mm.default", "aten.bmm.default", "aten.matmul.default",
       "xnnpack.fully_connected", "xnnpack.batch_matrix_multiply", "xnnpack.convolution_2d",
       "xnnpack.depthwise_convolution_2d", "aten.conv1d.default",
       "aten.conv2d.default", "aten.conv3d.default")  # fmt: skip
def product(x: Term, y: Term, bias: Limit = None, *, output_min: Limit, output_max: Limit) -> Term:
    found = total(x * y)
    return limited(found if bias is None else found + bias, output_min, output_max)


@means("aten.convolution.default")
def convolution(x: Term, y: Term, bias: Limit, *, transposed: bool) -> Term:
    if transposed:
        raise NotSaid
    return product(x, y, bias, output_min=None, output_max=None)


@means("aten.addmm.default")
def addmm(bias: Term, x: Term, y: Term, *, beta: Scalar, alpha: Scalar) -> Term:
    return Term("add", (times(total(x * y), alpha), times(bias, beta)))
