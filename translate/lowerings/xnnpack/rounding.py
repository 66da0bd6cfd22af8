"""Lower rounding to whole numbers, which XNNPACK has no node for, to a sum and a difference."""

from __future__ import annotations

from typing import Any

from stepwell.dialects import xnnpack
from stepwell.ir.compat.torch.lazy_imports import torch
from stepwell.ir.dtypes import f32
from stepwell.ir.rewriting.rewrite import Bound, Rewriter
from stepwell.translate.decompositions.values import Value, no_refusal
from stepwell.translate.lowerings.lowering import lowerings_of, lowers, refuse
from stepwell.translate.lowerings.xnnpack.values import node
from stepwell.translate.range_analysis import is_within
from stepwell.translate.rewrites.xnnpack.nodes.lower_elementwise import stays_outside

LARGEST = 2.0**22
"""The largest number whose sum with `UNIT` has a unit in the last place of 1."""
UNIT = 1.5 * 2.0**23


@lowers(
    "aten.round.default",
    to="xnnpack",
    bound=Bound(0.0, 5e-324, "−0 becomes +0"),
    name="lower-round",
    sample="""
    %t = aten.tanh.default(%x) : (tensor<2x3xf32>) -> tensor<2x3xf32>
    %y = aten.round.default(%t) : (tensor<2x3xf32>) -> tensor<2x3xf32>
    """,
)
def rounded(x: Value, *, op: Any, b: Rewriter) -> Value:
    """Compute `(x − (−U)) − U` with U = 1.5 · 2²³, which rounds to the nearest even number.

    Two differences, because a sum would be fused with a product before it, which would then not be
    rounded.
    """
    no_refusal(stays_outside(op.results[0]))
    if x.dtype != f32:
        refuse("the dtype is not single precision")
    if is_within(x.ssa, -LARGEST, LARGEST, b.program) is None:
        refuse(f"a number may be beyond ±{LARGEST:.0f}, up to which a sum rounds it")
    shape = [1] * min(x.rank, 1)
    units = [b.constant(torch.full(shape, sign * UNIT), "unit") for sign in (-1.0, 1.0)]
    for unit in units:
        x = node(b, xnnpack.Subtract, x.ssa, unit)
    return x


RULES = lowerings_of(__name__)
