"""Decompositions of means, deviations, distances and their roots."""

from __future__ import annotations

from functools import partial
from math import prod
from typing import Any

from xdsl.ir import SSAValue

from stepwell.dialects import aten
from stepwell.ir.compat.torch.lazy_imports import torch
from stepwell.ir.declared.bounds import roundings
from stepwell.ir.dtypes import f32, f64, torch_dtype
from stepwell.ir.rewriting.rewrite import Rewriter
from stepwell.ir.sizes.size import Size, settled
from stepwell.ir.types import IntType
from stepwell.translate.decompositions.values import Value, needs_static
from stepwell.translate.lowerings.lowering import Out, lowerings_of, lowers, refuse
from stepwell.translate.range_analysis import interval
from stepwell.translate.rewrites.building import axes
from stepwell.translate.rewrites.norms.row_statistics import squares_overflow
from stepwell.translate.rewrites.sizes.sizes import size_as_tensor
from stepwell.translate.rewrites.xnnpack.nodes.guards import not_for_xnnpack

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
        refuse("torch accumulates this dtype in float32 and rounds once; means would each round")
    listed = op.arg("dim") if "dim" in op.SCHEMA.by_name else None
    over = axes(listed, x.rank) if listed else tuple(range(x.rank))
    count, correction = settled(prod(x.shape[at] for at in over)), correction_of(op)
    if isinstance(count, Size) and (count not in x.shape or correction not in (0, 1)):
        refuse("one of several reduced axes is symbolic, or the correction is neither 0 nor 1")
    if isinstance(count, int) and count <= correction:
        refuse(f"{count} elements minus the correction {correction} is a divisor of 0")
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


@lowers(
    "aten.div.Scalar",
    to="aten",
    bound=roundings("the mean may be summed in another order"),
    unless=lambda op: not isinstance(op.arg("other"), SSAValue),
    sample="""
    %n = aten.sym_size.int(%x, 1) : (tensor<2x?x3xf32, #stepwell.shape<[2, "s", 3]>>) -> !stepwell.int<"s">
    %s = aten.sum.dim_IntList(%x, [1], true) : (tensor<2x?x3xf32, #stepwell.shape<[2, "s", 3]>>) -> tensor<2x1x3xf32>
    %y = aten.div.Scalar(%s, %n) : (tensor<2x1x3xf32>, !stepwell.int<"s">) -> tensor<2x1x3xf32>
    """,
)
def divided_sum_to_mean(x: Value, count: Any, *, out: Out) -> Value | None:
    """Rewrite a sum that is divided by the number of its elements as a mean."""
    views = [x.ssa] if x.ssa.has_one_use() else []
    if views and isinstance(x.owner, aten.ViewDefault):
        views.append(x.owner.operands[0])
    added = views[-1].owner if views else None
    if not isinstance(added, aten.SumDimIntList) or not views[-1].has_one_use():
        return None
    source = Value(added.operands[0], x.b)
    over = axes(added.arg("dim") or range(source.rank), source.rank)
    number = count.type.size if isinstance(count.type, IntType) else None
    if Size.of(prod(source.shape[at] for at in over)) != number:
        refuse("the divisor is not the number of the elements that are summed")
    if source.dtype not in (f32, f64) or added.arg("dtype") is not None:
        refuse("torch rounds the sum of this dtype before it divides")
    return source.reduce(aten.MeanDim, over).view(*out.shape)


def correction_of(op: Any) -> float:
    """Return the correction of a variance, which its divisor subtracts from the count; by default
    1.
    """
    if "correction" in op.SCHEMA.by_name:
        arg = op.arg("correction")
        return 1 if arg is None else arg
    return 1 if op.arg("unbiased") else 0


LARGEST = 1 << 24
"""The most differences that are computed."""


@lowers(
    "aten._cdist_forward.default",
    "aten.cdist.default",
    to="aten",
    phases=("tosa/decompose",),
    bound=roundings("torch multiplies matrices for long lists"),
    deviation=partial(squares_overflow, count=2),
    sample=("3x4xf32", "2x4xf32", 2.0, None),
)
def distance_to_norms(x: Value, other: Value, p: float, *, out: Out) -> Value:
    """Decompose `cdist` of two lists of points into the norm of all differences."""
    needs_static(x, other)
    (*batch, points, width), (*others, count, _) = x.shape, other.shape
    if batch != others:
        refuse("the two lists of points have different batch axes")
    if (total := points * prod(other.shape)) > LARGEST:
        refuse(f"the {total} differences are more than {LARGEST}")
    difference = x.view(*batch, points, 1, width) - other.view(*batch, 1, count, width)
    return difference.call(
        aten.LinalgVectorNormDefault, p, [len(batch) + 2], False, shape=out.shape
    )


LAST_RIGHT = 2.0**124
"""A power of four below 2¹²⁶, beyond which XNNPACK's roots of float32 are up to 50 % off on x86."""


@lowers(
    "aten.sqrt.default",
    to="aten",
    requires=not_for_xnnpack,
    bound=roundings("beyond 2^124 the root is a quotient of two roots"),
    exact=(("aten.sqrt.default", "f32"),),
    sample=("2x3xf32",),
)
def keep_large_roots(x: Value, *, b: Rewriter) -> Value | None:
    """Keep XNNPACK's square root from infinity and, in float32, from numbers beyond 2¹²⁴.

    On x86, XNNPACK multiplies a number by an estimate of its reciprocal root: beyond 2¹²⁶ the
    estimate is too large, and ∞ · 0 is NaN. In float32, √x is √min(x, 2¹²⁴) / rsqrt(max(x, 2¹²⁴) /
    2¹²⁴): the divisor is 1 up to 2¹²⁴, more than ¼ beyond, and 0 for ∞. Roots of halves are
    accurate; infinity is first limited to the largest finite number, and the excess (0 or ∞) is
    then added back. The excess is subtracted as `limited − x`, which is +0 where nothing was cut
    off: −0 − (+0) is −0, as √−0 is, but −0 + (+0) would be +0. A norm of numbers beyond 10¹⁹ is
    then infinite, and `x / norm` is zero instead of NaN.
    """
    largest = LAST_RIGHT if x.dtype == f32 else torch.finfo(torch_dtype(x.dtype)).max
    if interval(x.ssa, b.program).high <= largest:
        return None
    limited = x.call(aten.ClampDefault, None, largest)
    root = limited.call(aten.SqrtDefault)
    if x.dtype == f32:
        rest = x.call(aten.ClampDefault, largest, None) * (1 / largest)
        return root.call(aten.DivTensor, rest.call(aten.RsqrtDefault))
    return root.call(aten.SubTensor, limited.call(aten.SubTensor, x))


RULES = lowerings_of(__name__)
