"""Legalization: select by a constant mask with minimum and maximum; XNNPACK has no `where`.

Where the mask keeps a value its limits are −∞ and +∞; elsewhere both are the replacing number. For
two tensors, each is limited to −∞ where the other is kept, and the maximum of both is taken. This
is exact for every number, including infinities. NaN is the exception: XNNPACK's minimum and maximum
do not define their result for a NaN. A value that a division, a root, a logarithm or a power may
make NaN therefore stays outside: a mask is often there to hide just that.
"""

from __future__ import annotations

from functools import reduce
from math import inf, isnan
from typing import Any

from xdsl.ir import SSAValue

from stepwell.dialects import aten
from stepwell.dialects.aten.op import SchemaOp
from stepwell.dialects.aten.registry import op_class
from stepwell.dialects.xnnpack.shapes import broadcast
from stepwell.ir.compat.torch.lazy_imports import torch
from stepwell.ir.core import weight_key
from stepwell.ir.declared.numerics import Deviation
from stepwell.ir.dtypes import dtype_name
from stepwell.ir.program import Program
from stepwell.ir.rewriting.rewrite import Bound, Rewriter
from stepwell.ir.types import dims, element
from stepwell.ir.weights import recipe
from stepwell.translate.decompositions.values import Value, no_refusal
from stepwell.translate.lowerings.lowering import lowerings_of, lowers, refuse
from stepwell.translate.range_analysis import is_never_nan
from stepwell.translate.range_analysis.assumptions import trusts_no_nan
from stepwell.translate.rewrites.slices.select_by_constant_mask import (
    SELECTIONS,
    Selection,
    number_of,
    selection,
)
from stepwell.translate.rewrites.xnnpack.nodes.guards import FLOATS, not_held


@recipe("limits")
def limits(mask: torch.Tensor, *, kept: bool, free: float, fill: float, dtype: str) -> torch.Tensor:
    """Compute the limits of elements from a mask: `free` where the mask equals `kept`, and `fill`
    elsewhere.
    """
    if mask.is_meta:
        return torch.empty(mask.shape, dtype=getattr(torch, dtype), device="meta")
    numbers = torch.tensor([fill, free], dtype=getattr(torch, dtype))
    return numbers[(mask == kept).long()]


def _loses(op: Any, program: Program) -> Deviation | None:
    """Return the deviation: XNNPACK's minimum and maximum do not define a result for a NaN."""
    sides = selection(op)
    values = [side for side in (sides.value, sides.other) if number_of(side, program) is None]
    lost = Deviation("a NaN that the mask keeps may be lost, one that it hides may be seen")
    return lost.unless(*(is_never_nan(value, program) for value in values))


@lowers(
    *SELECTIONS,
    to="aten",
    bound=Bound(0.0, 5e-324, "a maximum takes either of two zeros"),
    deviation=_loses,
    sample="""
    %m = stepwell.weight <"m"> "constant" : tensor<2x3xi1>
    %y = aten.masked_fill.Scalar(%x, %m, -inf) : (tensor<2x3xf32>, tensor<2x3xi1>) -> tensor<2x3xf32>
    """,
)
def limit_by_mask(*, op: SchemaOp, b: Rewriter) -> Value | None:
    """Write a selection as a minimum, a maximum, or both; for two tensors the maximum of two."""
    sides, result = selection(op), op.results[0]
    if weight_key(sides.mask) is None:
        return None
    if element(result.type) not in FLOATS or not_held(result):
        refuse("XNNPACK does not support the result's element type or rank")
    if number_of(sides.value, b.program) is not None:
        sides = sides.turned()
    value, other = sides.value, sides.other
    number = number_of(other, b.program)
    if not isinstance(value, SSAValue) or (number is not None and isnan(number)):
        refuse("both sides are numbers, or one is NaN")
    values = [value] if number is not None else [value, other]
    for side in values:
        if element(side.type) != element(result.type):
            refuse("one side has another dtype than the result")
        no_refusal(trusts_no_nan(side, b.program))
    shapes = [dims(side.type) for side in (*values, sides.mask)]
    if reduce(broadcast, shapes) != dims(result.type):  # Another number's axes, for example.
        refuse("the result is broadcast further than the mask and the sides")
    y = Value(value, b)
    if number is None:
        one = limited(y, sides, -inf, is_upper=True)
        two = limited(Value(other, b), sides.turned(), -inf, is_upper=True)
        return one.binary(aten.MaximumDefault, aten.MaximumDefault, two)
    if number != inf:
        y = limited(y, sides, number, is_upper=True)
    return y if number == -inf else limited(y, sides, number, is_upper=False)


def limited(value: Value, sides: Selection, fill: float, is_upper: bool) -> Value:
    """Limit a value to at most (or at least) `fill` where the mask does not keep it."""
    numbers = {"free": inf if is_upper else -inf, "fill": fill, "dtype": dtype_name(value.dtype)}
    limit = Value(sides.mask, value.b).derived("limits", kept=sides.kept, **numbers)
    cls = op_class(f"aten.{'minimum' if is_upper else 'maximum'}.default")
    return value.binary(cls, cls, limit)


RULES = lowerings_of(__name__)
