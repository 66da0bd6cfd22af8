"""Decompositions of normalizations into group norms, row statistics, or sums and products.

rule rms-norm-to-means
    As models write it themselves: x · rsqrt(mean(x²) + ε) · w.
Before:
    %y = aten.rms_norm.default(%x, $?n, %w, $?e) : (tensor<$*S x $E>, …) -> …
After:
    %q = aten.mul.Tensor(%x, %x) : … -> tensor<$*S x $E>
    %m = aten.mean.dim(%q, last_axes(%x, $n), true)
    %s = aten.add.Scalar(%m, epsilon($e, $E))
    %r = aten.rsqrt.default(%s)
    %p = aten.mul.Tensor(%x, %r) : … -> tensor<$*S x $E>
    %y = aten.mul.Tensor(%p, %w)
where is_single_or_double($E) for accuracy else "torch normalizes this dtype in float32"
where are_of_element($E, %w) else "the weight is of another dtype than what it scales"
where normalizes_axes(%x, %y, $n) else "it normalizes no axis"
bound of roundings: "the mean may be summed in another order"
for $n = [6], $w = [6], $S = [2, 6], $e = 1.0e-5

rule plain-rms-norm-to-means
    The same without a weight.
Before:
    %y = aten.rms_norm.default(%x, $?n, none, $?e) : (tensor<$*S x $E>) -> …
After:
    %q = aten.mul.Tensor(%x, %x) : … -> tensor<$*S x $E>
    %m = aten.mean.dim(%q, last_axes(%x, $n), true)
    %s = aten.add.Scalar(%m, epsilon($e, $E))
    %r = aten.rsqrt.default(%s)
    %y = aten.mul.Tensor(%x, %r)
where is_single_or_double($E) for accuracy else "torch normalizes this dtype in float32"
where normalizes_axes(%x, %y, $n) else "it normalizes no axis"
bound of roundings: "the mean may be summed in another order"
for $n = [3], $e = none
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from functools import partial
from math import prod
from typing import Any

from xdsl.ir import Attribute, SSAValue

from stepwell.dialects import aten
from stepwell.ir.compat.torch.lazy_imports import torch
from stepwell.ir.declared import bounds
from stepwell.ir.declared.numerics import REORDERED as REORDERED
from stepwell.ir.dtypes import dtype_name, f16, f32, torch_dtype
from stepwell.ir.rewriting.rewrite import Rewriter
from stepwell.ir.sizes.size import Size
from stepwell.ir.types import dims, element
from stepwell.ir.weights import recipe
from stepwell.translate.decompositions.values import Value, needs_static, no_refusal
from stepwell.translate.lowerings.lowering import lowerings_of, lowers, refuse
from stepwell.translate.rewrites.building import is_known, is_open_once, overflows
from stepwell.translate.rewrites.norms.group_statistics import (
    cannot_be_grouped,
    first_of_groups,
    mean_of_group,
    mean_of_image,
    summed_up,
)
from stepwell.translate.rewrites.norms.row_statistics import (
    ROWS,
    less_first,
    normalize,
    squares_overflow,
    too_wide,
)
from stepwell.translate.rewrites.xnnpack.nodes.guards import not_constant, not_for_xnnpack
from stepwell.translate.rules import RuleSet, read_rules
from stepwell.translate.scale_folding.layers import are_from_weights


def are_of_element(of: Attribute, *values: SSAValue | None) -> bool:
    """Whether all these tensors, of which some may be None, have a given element type."""
    return all(element(value.type) == of for value in values if value is not None)


def normalizes_axes(value: SSAValue, result: SSAValue, sizes: Sequence[object]) -> bool:
    """Whether the norm has an axis, and its result has the operand's type."""
    return bool(sizes) and value.type == result.type


def last_axes(value: SSAValue, sizes: Sequence[object]) -> list[int]:
    """Return the last axes, as many as there are sizes."""
    rank = len(dims(value.type))
    return list(range(rank - len(sizes), rank))


def epsilon(given: float | None, of: Attribute) -> float:
    """Return the epsilon, or that of the element type if it is None."""
    return torch.finfo(torch_dtype(of)).eps if given is None else given


NORM = ("2x3x4xf32", None, None, "3xf32", "3xf32", False, 0.1, 1.0, False)


@lowers(
    "aten.batch_norm.default",
    to="aten",
    phases=("tosa/decompose",),
    takes_empty=False,
    bound=bounds.roundings("the scale is computed first"),
    sample=NORM,
)
def batch_norm_to_products(
    x: Value,
    weight: Value | None,
    bias: Value | None,
    mean: Value | None,
    variance: Value | None,
    training: bool,
    *,
    eps: float,
) -> Value | None:
    """Decompose a norm with computed statistics or parameters into elementwise arithmetic.

    (x - mean) · (rsqrt(variance + eps) · weight) + bias
    """
    values = [value for value in (weight, bias, mean, variance) if value is not None]
    if training or all(value.key is not None for value in values):
        return None
    if any(value.dtype != x.dtype for value in values):
        refuse("the parameters and the operand have different dtypes")
    needs_static(x)
    spread = (1, x.shape[1], *[1] * (x.rank - 2))
    mean, variance, weight, bias = (
        None if value is None else value.view(*spread) for value in (mean, variance, weight, bias)
    )
    assert mean is not None, "evaluation mode has statistics"
    assert variance is not None, "evaluation mode has statistics"
    scale = (variance + eps).call(aten.RsqrtDefault)
    if weight is not None:
        scale = scale * weight
    y = (x - mean) * scale
    return y if bias is None else y + bias


@lowers(
    "aten.instance_norm.default",
    "aten._native_batch_norm_legit.no_stats",
    "aten.native_batch_norm.default",
    to="aten",
    phases=("tosa/decompose",),
    takes_empty=False,
    bound=bounds.roundings("sums in another order"),
    deviation=squares_overflow,
    sample=("2x3x4x4xf32", None, None, None, None, True, 0.1, 1.0e-5, False),
)
def norm_by_groups(
    x: Value, weight: Value | None, bias: Value | None, *, op: Any, eps: float
) -> tuple[Value | None, ...] | None:
    """Decompose instance statistics to `group_norm`, where each channel is a group."""
    is_of_images = isinstance(op, aten.InstanceNormDefault)
    if not op.arg("use_input_stats" if is_of_images else "training"):
        return None
    needs_static(x)
    if prod(x.shape[2:]) * (1 if is_of_images else x.shape[0]) == 1:
        refuse("a channel has one element, so that its deviation is only rounding")
    if not eps > 0:
        refuse(f"eps is {eps}, so that a constant channel is divided by 0")
    if any(saved.uses for saved in op.results[1:]):
        refuse("the mean or deviation that the norm saves for training is used")
    channels, order = x.shape[1], (1, 0, *range(2, x.rank))
    is_batched = x.shape[0] > 1 and not is_of_images
    sizes = [x.shape[at] for at in order]
    y = x.permute(order).view(1, *sizes) if is_batched else x
    y = y.call(aten.GroupNormDefault, channels, weight, bias, eps)
    y = y.view(*sizes).permute(order) if is_batched else y
    return (y, *[None] * (len(op.results) - 1))


@lowers(
    "aten.layer_norm.default",
    "aten.group_norm.default",
    to="aten",
    phases=("tosa/decompose",),
    bound=bounds.roundings("the scale rounds once more"),
    sample=("2x3x4xf32", [3, 4]),
)
def peel_norm_affine(
    x: Value, over: Any, weight: Value | None, bias: Value | None, *, op: Any, eps: float
) -> Value | None:
    """Split the scale and shift from a norm over several axes, or with computed parameters."""
    values = [value for value in (weight, bias) if value is not None]
    is_of_groups = isinstance(op, aten.GroupNormDefault)
    several = not is_of_groups and len(over) > 1
    if not several and all(value.key is not None for value in values):
        return None
    needs_static(x)
    if is_of_groups:
        y = x.call(aten.GroupNormDefault, over, None, None, eps)
        spread = (x.shape[1], *[1] * (x.rank - 2))
    else:
        length = prod(x.shape[-len(over) :])
        rows = x.view(*x.shape[: -len(over)], length)
        y = rows.call(aten.LayerNormDefault, [length], None, None, eps).view(*x.shape)
        spread = tuple(over)
    y = y if weight is None else y * weight.view(*spread)
    return y if bias is None else y + bias.view(*spread)


@recipe("scaled_by")
def scaled_by(weight: torch.Tensor, *, factor: float) -> torch.Tensor:
    """Return a weight times a number, computed in f64."""
    return (weight.double() * factor).to(weight.dtype)


@lowers(
    "aten.layer_norm.default",
    to="aten",
    phases=("tosa/decompose",),
    takes_empty=False,
    bound=bounds.roundings("sums in another order, the scale regrouped"),
    deviation=squares_overflow,
    sample=("2x4xf32", [4], {"eps": 1.0e-6}),
)
def split_layer_norm(
    x: Value, over: Any, weight: Value | None, bias: Value | None, *, b: Rewriter, eps: float
) -> Value:
    """Decompose layer normalization into arithmetic, with constant scale and shift.

        x̂ = c · rsqrt(Σc² + C·ε),  y = x̂ · (√C·γ) + β,  c = x − Σx/C

    The mean of the squares needs no product by 1/C: √C is part of the scale, which
    `fold-affine-into-layer` folds into the following layer. For XNNPACK,
    `decompose_layer_norm` is used instead, because sums of rows are linear layers there.
    """
    if not is_known(x.shape) or not isinstance(x.shape[-1], int):
        refuse("the shape is symbolic")
    if x.dtype != f32:
        refuse("a sum of squares may overflow float16, and is too coarse in bfloat16")
    if len(over) != 1:
        refuse("the layer norm runs over several axes")
    for name, value in (("weight", weight), ("bias", bias)):
        if value is not None and value.key is None:
            refuse(f"the {name} is computed at run time")
    width, last = x.shape[-1], x.rank - 1
    if not are_from_weights(x.ssa, [last]):
        x = less_first(x)
    total = x.reduce(aten.SumDimIntList, [last])
    centered = x - total * (1.0 / width)
    squares = (centered * centered).reduce(aten.SumDimIntList, [last])
    y = centered * (squares + width * float(eps)).call(aten.RsqrtDefault)
    root = math.sqrt(width)
    y = y * (root if weight is None else weight.derived("scaled_by", factor=root))
    return y if bias is None else y + bias


@lowers(
    "aten.layer_norm.default",
    to="aten",
    phases=("xnnpack/decompose",),
    bound=ROWS,
    deviation=lambda op, program: REORDERED,
    sample=("2x4xf32", [4], {"eps": 1e-6}),
)
def decompose_layer_norm(x: Value, *, op: Any, b: Rewriter, eps: float) -> Value:
    """Decompose layer normalization into row statistics and separate affine operations.

    In the stock flow, `native_layer_norm` stays outside delegates: the 25 norms of DeiT-Tiny cut it
    in pieces. Scale and shift are separate ops here; `fold_affine_into_layer` folds them into the
    following linear layers.

    The first element of a row is subtracted before its mean. A constant row, such as padding, is
    then exactly zero as in PyTorch, and not the rounding error of its mean times 1/√eps. Rows
    across the outputs of a layer are not constant and skip the subtraction, which costs a ConvNeXt
    4 % of its time.
    """
    if x.dtype not in (f32, f16):
        refuse(f"XNNPACK computes in float32 or float16, not {dtype_name(x.dtype)}")
    no_refusal(overflows(eps, x.dtype))
    sizes = op.arg("normalized_shape")
    if not all(isinstance(size, int) for size in sizes):
        refuse("a normalized axis has a symbolic size")
    width = prod(sizes)
    if width == 0:
        refuse("a normalized axis is empty")
    if len(sizes) > 1 and not is_open_once(x.shape):
        refuse("several axes are normalized and several others are symbolic")
    no_refusal(too_wide(width))
    rows = x.view(*x.shape[: -len(sizes)], width) if len(sizes) > 1 else x
    if not are_from_weights(x.ssa, range(x.rank - len(sizes), x.rank)):
        rows = less_first(rows)
    normed = normalize(rows, eps)
    return normed.view(*x.shape).affine(op.operand("weight"), op.operand("bias"))


@recipe("per_channel")
def per_channel(tensor: torch.Tensor, *, rank: int) -> torch.Tensor:
    """Reshape `[C]` to `[C, 1, …]`, which broadcasts over the axes after the channels."""
    return tensor.reshape(-1, *([1] * (rank - 2)))


@lowers(
    "aten.group_norm.default",
    to="aten",
    phases=("decompose",),
    requires=not_for_xnnpack,
    bound=ROWS,
    deviation=lambda op, program: REORDERED,
    sample="""
    %y = aten.group_norm.default(%x, 2, eps=1.0e-05) : (tensor<2x4x3xf32>) -> tensor<2x4x3xf32>
    """,
)
def decompose_group_norm(x: Value, *, op: Any, b: Rewriter, num_groups: int, eps: float) -> Value:
    """Decompose group normalization into row statistics: a group is a row of `[N, G, C/G·…]`.

    For an image, the planes are averaged and then their averages. This requires no particular axis
    order, so the norm stays between convolutions without a transpose. A grouped convolution gives
    each channel the average of its own group. Lines of dynamic length are images of height one.
    """
    shape = x.shape
    if x.rank == 3 and isinstance(shape[2], Size):
        x = x.view(shape[0], shape[1], 1, shape[2])
    no_refusal(overflows(eps, x.dtype))
    no_refusal(not_constant(op.operand("weight"), "scale"))
    no_refusal(not_constant(op.operand("bias"), "shift"))
    no_refusal(cannot_be_grouped(x.shape))
    size = summed_up(x.shape, num_groups)
    no_refusal(too_wide(size))
    is_spared = num_groups != x.shape[1] and are_from_weights(x.ssa, [1])
    if x.rank == 4:
        mean = mean_of_image if num_groups == 1 else partial(mean_of_group, num_groups)
        if not is_spared:
            x = x - first_of_groups(x, num_groups)
        normed = normalize(x, eps, mean)
    else:
        rows = x.view(x.shape[0], num_groups, size)
        rows = rows if is_spared else less_first(rows)
        normed = normalize(rows, eps).view(*x.shape)
    spread = [
        None if value is None else Value(value, b).derived("per_channel", rank=x.rank).ssa
        for value in map(op.operand, ("weight", "bias"))
    ]
    return normed.affine(*spread).view(*shape)


RULES = RuleSet((*read_rules(__doc__, globals()), *lowerings_of(__name__)))
