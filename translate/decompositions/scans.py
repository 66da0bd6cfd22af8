"""Decompositions of cumulative sums into operations on a whole axis."""

from __future__ import annotations

from typing import Any

import torch

from stepwell.dialects import aten
from stepwell.ir.declared.bounds import roundings
from stepwell.ir.declared.numerics import REORDERED, Deviation
from stepwell.ir.dtypes import f32
from stepwell.ir.program import Program
from stepwell.ir.rewriting.rewrite import Bound
from stepwell.ir.signature import most_of
from stepwell.ir.sizes.size import Size, settled
from stepwell.ir.types import dims
from stepwell.translate.decompositions.values import Value, cat, no_refusal
from stepwell.translate.lowerings.lowering import lowerings_of, lowers, refuse
from stepwell.translate.range_analysis import is_finite
from stepwell.translate.range_analysis.assumptions import trusts_finite
from stepwell.translate.rewrites.building import axis, emit, slice_op
from stepwell.translate.rewrites.xnnpack.nodes.guards import not_for_xnnpack

MOST = float(torch.finfo(torch.float32).max)
MOST_STEPS = 12
"""The most additions of all elements that replace one pass of a kernel that adds one by one."""


def _adds_in_another_order(op: Any, program: Program) -> Deviation | None:
    shape = dims(op.operands[0].type)
    size = shape[axis(op.arg("dim"), len(shape))]
    return REORDERED if isinstance(size, Size) or size > 2 else None


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
def cumsum_to_additions(x: Value, dim: int, *, op: Any) -> Value:
    """Decompose a cumulative sum into additions of itself shifted by 1, 2, 4, … elements.

    XNNPACK has no scan, and the portable kernel cuts the delegate once more. An element never
    depends on later ones, so a NaN or an infinity propagates as in PyTorch. A product with a
    triangular matrix would multiply it by zero and so spread a NaN to earlier elements.
    """
    at, size = _short_axis(x, dim, op)
    moved = 1
    while moved < size:
        x = x + _moved(x, at, moved, 0.0)
        moved *= 2
    return x


def _moved(x: Value, at: int, count: int, fill: float) -> Value:
    """Return the elements shifted towards the end of an axis, with `fill` in front of them."""
    size, in_front = x.shape[at], [0] * (2 * (x.rank - 1 - at))
    if isinstance(size, int):
        x = x.slice(at, 0, size - count)
    longer = [settled(n + count) if axis == at else n for axis, n in enumerate(x.shape)]
    padded = x.call(aten.ConstantPadNdDefault, [*in_front, count, 0], fill, shape=longer)
    if isinstance(size, int):
        return padded
    return Value(emit(x.b, slice_op(padded.ssa, at, 0, -count, size)), x.b)


def _short_axis(x: Value, dim: int, op: Any) -> tuple[int, int]:
    """Return the axis of a scan and its greatest size."""
    if x.dtype != f32:
        refuse("torch sums this dtype in float32 and rounds once; additions would each round")
    if not x.rank:
        refuse("the tensor is a scalar")
    at = x.axis(dim)
    size = most_of(x.shape[at], op)
    if size is None:
        refuse("the size of the axis has no upper bound, which the number of steps depends on")
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
def logcumsumexp_to_steps(x: Value, dim: int, *, op: Any) -> Value:
    """Decompose `logcumsumexp` into log-sum-exps of shifted operands, as `cumsum` into additions.

    The log-sum-exp of a and b is their maximum plus log(1 + e^−|a − b|), which is at most log 2. No
    exponential overflows, and no relevant one underflows, unlike with one maximum for all elements.
    """
    at, size = _short_axis(x, dim, op)
    why = "what is summed may be infinite, and the difference of two infinities is a NaN"
    no_refusal(trusts_finite([x.ssa], x.b.program, why))
    moved = 1
    while moved < size:
        if isinstance(x.shape[at], Size):
            x = _log_of_sum(x, _moved(x, at, moved, -MOST))
        else:
            added = _log_of_sum(x.slice(at, moved, size), x.slice(at, 0, size - moved))
            x = cat([x.slice(at, 0, moved), added], at)
        moved *= 2
    return x


def _log_of_sum(one: Value, other: Value) -> Value:
    """Compute log(e^one + e^other)."""
    apart = (one - other).call(aten.AbsDefault).call(aten.NegDefault).call(aten.ExpDefault)
    return one.call(aten.MaximumDefault, other) + (apart + 1.0).call(aten.LogDefault)


RULES = lowerings_of(__name__)
