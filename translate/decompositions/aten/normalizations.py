"""Decompositions of normalizations into other norms, or into sums and products."""

from __future__ import annotations

import math
from math import prod
from typing import Any

import torch
from xdsl.ir import SSAValue

from stepwell.dialects import aten
from stepwell.ir.declared.bounds import roundings
from stepwell.ir.dtypes import f32, f64
from stepwell.ir.rewriting.rewrite import Rewriter
from stepwell.ir.sizes.size import Size, settled
from stepwell.ir.types import element, with_element
from stepwell.ir.weights import recipe
from stepwell.translate.decompositions.aten.values import Value, needs_static
from stepwell.translate.lowerings.lowering import Out, lowerings_of, lowers, refuse
from stepwell.translate.rewrites.building import axes, cast, emit, is_known
from stepwell.translate.rewrites.norms.row_statistics import less_first, squares_overflow
from stepwell.translate.rewrites.sizes.sizes import size_as_tensor
from stepwell.translate.scale_folding.own_weights import are_from_weights

NORM = ("2x3x4xf32", None, None, "3xf32", "3xf32", False, 0.1, 1.0, False)


@lowers(
    "aten.batch_norm.default",
    to="aten",
    takes_empty=False,
    bound=roundings("the scale is computed first"),
    sample=NORM,
    formerly=("batch-norm-to-products-to-tosa",),
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
    takes_empty=False,
    bound=roundings("sums in another order"),
    deviation=squares_overflow,
    sample=("2x3x4x4xf32", None, None, None, None, True, 0.1, 1.0e-5, False),
    formerly=("norm-by-groups-to-tosa",),
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
        refuse("a channel has one element, whose deviation is rounding alone")
    if not eps > 0:
        refuse(f"eps is {eps}, so that a constant channel divides by nothing")
    if any(saved.uses for saved in op.results[1:]):
        refuse("the mean or deviation that it saves for training is used")
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
    bound=roundings("the scale rounds once more"),
    sample=("2x3x4xf32", [3, 4]),
    formerly=("peel-norm-affine-to-tosa",),
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
    takes_empty=False,
    bound=roundings("sums in another order, the scale regrouped"),
    deviation=squares_overflow,
    sample=("2x4xf32", [4], {"eps": 1.0e-6}),
)
def split_layer_norm(
    x: Value, over: Any, weight: Value | None, bias: Value | None, *, b: Rewriter, eps: float
) -> Value:
    """Decompose layer normalization into arithmetic, with constant scale and shift.

        x̂ = c · rsqrt(Σc² + C·ε),  y = x̂ · (√C·γ) + β,  c = x − Σx/C

    The mean of the squares needs no product of its own: √C is part of the scale, which
    `fold-affine-into-layer` folds into the following layer.
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
        x = Value(less_first(b, x.ssa), b)
    total = x.reduce(aten.SumDimIntList, [last])
    centered = x - total * (1.0 / width)
    squares = (centered * centered).reduce(aten.SumDimIntList, [last])
    y = centered * (squares + width * float(eps)).call(aten.RsqrtDefault)
    root = math.sqrt(width)
    y = y * (root if weight is None else weight.derived("scaled_by", factor=root))
    return y if bias is None else y + bias


VARIANCES = {
    f"aten.{name}.{overload}": name.startswith("std")
    for name, overloads in (
        ("var", ("correction", "default", "dim")),
        ("std", ("default", "dim", "correction")),
        ("var_mean", ("default", "dim", "correction")),
        ("std_mean", ("correction",)),
    )
    for overload in overloads
}
"""Operator → whether it returns the root (the standard deviation)."""


@lowers(
    VARIANCES,
    to="aten",
    bound=roundings("torch computes it in one pass (Welford)"),
    sample=("2x8xf32", [1], {"correction": 1}),
)
def variance_to_means(x: Value, *, form: bool, op: Any) -> tuple[Value | None, ...]:
    """Decompose var(x) = Σ(x − mean(x))² / (n − correction) into means."""
    if x.dtype not in (f32, f64):
        refuse("torch accumulates this dtype in float32")
    listed = op.arg("dim") if "dim" in op.SCHEMA.by_name else None
    over = axes(listed, x.rank) if listed else tuple(range(x.rank))
    count, correction = settled(prod(x.shape[at] for at in over)), correction_of(op)
    if isinstance(count, Size) and (count not in x.shape or correction not in (0, 1)):
        refuse("several axes are reduced of which one is symbolic, or the correction is no 0 or 1")
    if isinstance(count, int) and count <= correction:
        refuse(f"{count} elements less {correction} give a divisor of 0")
    average = x.reduce(aten.MeanDim, over)
    centered = x - average
    value = (centered * centered).reduce(aten.MeanDim, over)
    if isinstance(count, int):
        factor = count / (count - correction)
        value = value if factor == 1 else value * factor
    elif correction:  # A single element gives 0 · (1 / 0), NaN as in PyTorch.
        number = Value(size_as_tensor(x.b, count, x.ssa), x.b)
        value = value * number.call(aten.DivTensor, number - 1.0)
    value = value.call(aten.SqrtDefault) if form else value
    return tuple(
        made.view(*Value(old, x.b).shape) if old.uses else None
        for old, made in zip(op.results, (value, average), strict=False)
    )


def correction_of(op: Any) -> float:
    """Return the number that is subtracted from the count, by default 1."""
    if "correction" in op.SCHEMA.by_name:
        arg = op.arg("correction")
        return 1 if arg is None else arg
    return 1 if op.arg("unbiased") else 0


@lowers(
    "aten.layer_norm.default",
    "aten.group_norm.default",
    "aten.batch_norm.default",
    to="aten",
    bound=roundings("one rounding to halves may go to either side"),
    sample="""
    %w = stepwell.weight <"w"> "parameter" : tensor<4xf32>
    %y = aten.layer_norm.default(%x, [4], %w) : (tensor<2x4xf16>, tensor<4xf32>) -> tensor<2x4xf16>
    """,
)
def widen_mixed_norm(x: Value, *, op: Any, out: Out, b: Rewriter) -> Value | None:
    """Compute a norm of halves with wider parameters in the type of its parameters.

    A half-precision network usually keeps its norms in float32. PyTorch computes such a norm in the
    wider type and rounds its result once. No target has a norm of two element types. PyTorch
    exports other mixtures (bfloat16 with float16) without having a kernel for them: they are
    computed in float32, or in float64 if that is one of the types.
    """
    elements = {element(value.type) for value in op.operands}
    if len(elements) == 1:
        return None
    wide = f64 if f64 in elements else f32
    arguments = {
        name: cast(b, value, wide) if isinstance(value, SSAValue) else value
        for name, value in op.present().items()
    }
    types = [with_element(op.results[0].type, wide)]
    return Value(emit(b, type(op).from_arguments(arguments, types)), b).cast(out.dtype)


LARGEST = 1 << 24
"""The most differences that are computed."""


@lowers(
    "aten._cdist_forward.default",
    "aten.cdist.default",
    to="aten",
    bound=roundings("torch multiplies matrices for long lists"),
    deviation=squares_overflow,
    sample=("3x4xf32", "2x4xf32", 2.0, None),
    formerly=("distance-to-norms-to-tosa",),
)
def distance_to_norms(x: Value, other: Value, p: float, *, out: Out) -> Value:
    """Decompose `cdist` of two lists of points into the norm of all differences."""
    needs_static(x, other)
    (*batch, points, width), (*others, count, _) = x.shape, other.shape
    if batch != others:
        refuse("the points are of different batches")
    if (total := points * prod(other.shape)) > LARGEST:
        refuse(f"its {total} differences are more than {LARGEST}")
    difference = x.view(*batch, points, 1, width) - other.view(*batch, 1, count, width)
    return difference.call(
        aten.LinalgVectorNormDefault, p, [len(batch) + 2], False, shape=out.shape
    )


RULES = lowerings_of(__name__)
