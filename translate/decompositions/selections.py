"""Decompositions of selections by a condition."""

from __future__ import annotations

from typing import Any, cast

import torch
from xdsl.ir import SSAValue

from stepwell.dialects import aten
from stepwell.dialects.aten.op import SchemaOp
from stepwell.ir.declared.numerics import Deviation
from stepwell.ir.dtypes import f32
from stepwell.ir.rewriting.rewrite import Bound, Rewriter
from stepwell.translate.decompositions.values import Value, no_refusal
from stepwell.translate.lowerings.lowering import lowerings_of, lowers, refuse
from stepwell.translate.range_analysis.assumptions import trusts_finite
from stepwell.translate.rewrites.xnnpack.nodes.guards import not_floats

SIDES: dict[type[SchemaOp], tuple[int, float]] = {
    aten.GeScalar: (0, 1.0),
    aten.GtScalar: (0, 0.0),
    aten.LtScalar: (1, 1.0),
    aten.LeScalar: (1, 0.0),
}
"""Comparison with a number → the operand chosen where it is greater; a correction for equality."""


STEEP = 2.0**126
"""This number times the smallest normal number is 1."""


def _asked(op: SchemaOp) -> SSAValue:
    """Return the condition of a selection (`aten.where`) as a boolean value."""
    return cast(SSAValue, op.arg("condition" if "condition" in op.SCHEMA.by_name else "mask"))


@lowers(
    {"aten.where.self": True, "aten.masked_fill.Scalar": False},
    to="aten",
    phases=("decompose",),
    unless=lambda op: not isinstance(_asked(op).owner, tuple(SIDES)),
    bound=Bound(0.0, 1.2e-38, "a difference below the smallest normal number counts as none"),
    deviation=lambda op, program: Deviation("a NaN chooses neither side, a zero may lose its sign"),
    sample="""
    %c = aten.ge.Scalar(%x, 0.5) : (tensor<2x3xf32>) -> tensor<2x3xi1>
    %a = aten.tanh.default(%x) : (tensor<2x3xf32>) -> tensor<2x3xf32>
    %b = aten.sin.default(%x) : (tensor<2x3xf32>) -> tensor<2x3xf32>
    %y = aten.where.self(%c, %a, %b) : (tensor<2x3xi1>, tensor<2x3xf32>, tensor<2x3xf32>) -> tensor<2x3xf32>
    """,
)
def choose_by_step(*, form: bool, op: Any, b: Rewriter) -> Value:
    """Decompose a selection by a comparison into a sum of both operands times 0 or 1.

    XNNPACK has no comparison, and a selection outside cuts a delegate in two. The operand that is
    not selected is multiplied by zero, so it must provably be finite. For `where(x > 0, log(x),
    0)`, the logarithm is not.
    """
    asked = cast(SchemaOp, _asked(op).owner)
    x, number = Value(asked.operands[0], b), asked.arg("other")
    other = Value(op.arg("other" if form else "self"), b)
    no_refusal(not_floats((x.ssa, other.ssa, *op.results)))
    if form:
        chosen = Value(op.arg("self"), b)
    elif isinstance(filled := op.arg("value"), int | float):
        chosen = x.constant(torch.full((1,) * len(x.shape), filled, dtype=torch.float32), "filled")
    else:
        refuse("the fill value is known only at run time")
    no_refusal(not_floats((chosen.ssa,)))
    if x.dtype != f32:
        refuse("the factor that makes a step from a difference overflows half precision")
    if not isinstance(number, int | float):
        refuse("the number is known only at run time")
    why = "what is not chosen may be infinite or NaN, and would be multiplied by zero"
    no_refusal(trusts_finite((chosen.ssa, other.ssa), b.program, why))
    first, equal = SIDES[type(asked)]
    apart = (x - number if number else x).call(aten.ClampDefault, -1.0, 1.0) * STEEP
    step = (apart + equal if equal else apart).call(aten.ClampDefault, 0.0, 1.0)
    above, below = (chosen, other) if first == 0 else (other, chosen)
    return above * step + below * (step * -1.0 + 1.0)


RULES = lowerings_of(__name__)
