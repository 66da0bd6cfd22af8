"""Decompositions of cumulative sums into operations on a whole axis."""

from __future__ import annotations

from typing import Any

from stepwell.dialects import aten
from stepwell.ir.declared.bounds import roundings
from stepwell.ir.declared.numerics import REORDERED, Deviation
from stepwell.ir.dtypes import f32
from stepwell.ir.program import Program
from stepwell.ir.rewriting.rewrite import Bound
from stepwell.ir.types import dims
from stepwell.translate.decompositions.values import Value, cat, no_refusal
from stepwell.translate.lowerings.lowering import lowerings_of, lowers, refuse
from stepwell.translate.range_analysis import is_finite
from stepwell.translate.range_analysis.assumptions import trusts_finite
from stepwell.translate.rewrites.building import axis
from stepwell.translate.rewrites.xnnpack.nodes.guards import not_for_xnnpack

MOST_STEPS = 12
"""The most additions of all elements that replace one pass of a kernel that adds one by one."""


def _adds_in_another_order(op: Any, program: Program) -> Deviation | None:
    shape = dims(op.operands[0].type)
    size = shape[axis(op.arg("dim"), len(shape))]
    return REORDERED if isinstance(size, int) and size > 2 else None


@lowers(
    "aten.cumsum.default",
    to="aten",
    phases=("decompose",),
    requires=not_for_xnnpack,
    takes_empty=False,
    bound=roundings("the sums are taken in another order"),
    deviation=_adds_in_another_order,
    sample=("2x3xf32", -1),
)
def cumsum_to_additions(x: Value, dim: int) -> Value:
    """Decompose a cumulative sum into additions of itself shifted by 1, 2, 4, … elements.

    XNNPACK has no scan, and the portable kernel cuts the delegate once more. An element never
    depends on later ones, so a NaN or an infinity propagates as in PyTorch. A product with a
    triangular matrix would multiply it by zero and so spread a NaN to earlier elements.
    """
    at, size = _short_axis(x, dim)
    in_front, moved = [0] * (2 * (x.rank - 1 - at)), 1
    while moved < size:
        kept = x.slice(at, 0, size - moved)
        x = x + kept.call(aten.ConstantPadNdDefault, [*in_front, moved, 0], 0, shape=x.shape)
        moved *= 2
    return x


def _short_axis(x: Value, dim: int) -> tuple[int, int]:
    """Return the axis of a scan and its size."""
    if x.dtype != f32:
        refuse("torch sums this dtype in float32 and rounds once; additions would each round")
    if not x.rank or not isinstance(x.shape[x.axis(dim)], int):
        refuse("the size is symbolic, or the tensor is a scalar")
    at = x.axis(dim)
    size = x.shape[at]
    if (steps := (size - 1).bit_length()) > MOST_STEPS:
        refuse(f"the decomposition takes {steps} additions, more than {MOST_STEPS}")
    return at, size


def _meets_infinities(op: Any, program: Program) -> Deviation | None:
    lost = Deviation("an infinity becomes a NaN, and a NaN may be lost in a maximum")
    return lost.unless(is_finite(op.operands[0], program))


@lowers(
    "aten.logcumsumexp.default",
    to="aten",
    phases=("xnnpack/decompose",),
    requires=not_for_xnnpack,
    takes_empty=False,
    bound=Bound(2e-6, 5e-6, "twelve sums of exponentials, each 3e-7 off where both are alike"),
    deviation=_meets_infinities,
    sample=("2x3xf32", -1),
)
def logcumsumexp_to_steps(x: Value, dim: int) -> Value:
    """Decompose `logcumsumexp` into log-sum-exps of shifted operands, as `cumsum` into additions.

    The log-sum-exp of a and b is their maximum plus log(1 + e^−|a − b|), which is at most log 2. No
    exponential overflows, and no relevant one underflows, unlike with one maximum for all elements.
    """
    at, size = _short_axis(x, dim)
    why = "what is summed may be infinite, and the difference of two infinities is a NaN"
    no_refusal(trusts_finite([x.ssa], x.b.program, why))
    moved = 1
    while moved < size:
        one, other = x.slice(at, moved, size), x.slice(at, 0, size - moved)
        apart = (one - other).call(aten.AbsDefault).call(aten.NegDefault).call(aten.ExpDefault)
        added = one.call(aten.MaximumDefault, other) + (apart + 1.0).call(aten.LogDefault)
        x, moved = cat([x.slice(at, 0, moved), added], at), 2 * moved
    return x


RULES = lowerings_of(__name__)
