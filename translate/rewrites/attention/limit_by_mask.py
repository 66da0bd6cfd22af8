"""Legalization: select by a constant mask with minimum and maximum; XNNPACK has no `where`.

Where the mask keeps a value its limits are −∞ and +∞; elsewhere both are the replacing number. For
two tensors, each is limited to −∞ where the other is kept, and the maximum of both is taken. This
is exact for every number, including infinities. NaN is the exception: XNNPACK's minimum and maximum
do not define their result for a NaN. A value that a division, a root, a logarithm or a power may
make NaN therefore stays outside: a mask is often there to hide just that.

Before:
    %m = stepwell.weight <"#causal"> "constant" : tensor<2x3xi1>
    %y = aten.masked_fill.Scalar(%x, %m, -inf) : (tensor<2x3xf32>, tensor<2x3xi1>) -> tensor<2x3xf32>
After:
    %0 = stepwell.weight <"#limits.14f9ca01a2b6"> "constant" : tensor<2x3xf32>
    %y = aten.minimum.default(%x, %0) : (tensor<2x3xf32>, tensor<2x3xf32>) -> tensor<2x3xf32>
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import reduce
from math import inf, isnan
from typing import ClassVar

import torch
from xdsl.dialects.builtin import TensorType
from xdsl.ir import Operation, SSAValue

from stepwell.dialects import aten
from stepwell.dialects.aten.op import SchemaOp
from stepwell.dialects.xnnpack.shapes import broadcast
from stepwell.ir.core import weight_key
from stepwell.ir.declared.numerics import Deviation
from stepwell.ir.dtypes import dtype_name
from stepwell.ir.program import Program
from stepwell.ir.rewriting.rewrite import Bound, Refusal, Rewrite, Rewriter
from stepwell.ir.types import dims, element, tensor
from stepwell.ir.weights import recipe
from stepwell.translate.range_analysis import is_never_nan
from stepwell.translate.range_analysis.assumptions import trusts_no_nan
from stepwell.translate.rewrites.building import emit
from stepwell.translate.rewrites.slices.select_by_constant_mask import number_of
from stepwell.translate.rewrites.xnnpack.nodes.guards import FLOATS, not_held


@recipe("limits")
def limits(mask: torch.Tensor, *, kept: bool, free: float, fill: float, dtype: str) -> torch.Tensor:
    """Return `free` where the mask equals `kept`, `fill` elsewhere."""
    if mask.is_meta:
        return torch.empty(mask.shape, dtype=getattr(torch, dtype), device="meta")
    numbers = torch.tensor([fill, free], dtype=getattr(torch, dtype))
    return numbers[(mask == kept).long()]


@dataclass(frozen=True)
class Masked:
    """A selection of `value` where the mask equals `kept`, a number or a tensor elsewhere."""

    op: SchemaOp
    mask: str
    kept: bool
    value: SSAValue
    other: SSAValue | float


@dataclass(frozen=True)
class LimitByMask(Rewrite[Masked]):
    """`where` and `masked_fill` with a constant mask to minima and maxima."""

    name: ClassVar[str] = "limit-by-mask"
    bound: ClassVar[Bound] = Bound(0.0, 5e-324, "a maximum takes either of two zeros")
    anchors: ClassVar[tuple[type[Operation], ...]] = (
        aten.WhereSelf,
        aten.WhereScalarOther,
        aten.WhereScalarSelf,
        aten.MaskedFillScalar,
        aten.MaskedFillTensor,
    )

    def match(self, op: SchemaOp, program: Program) -> Masked | Refusal | None:
        """Guards: a constant mask, floats of one type, no possible NaN, the result's shape."""
        is_where = "condition" in op.SCHEMA.by_name
        mask = weight_key(op.arg("condition" if is_where else "mask"))
        if mask is None:
            return None
        result = op.results[0].type
        if element(result) not in FLOATS or not_held(op.results[0]):
            return Refusal("XNNPACK cannot hold the result")
        if is_where:
            sides = (True, op.arg("self")), (False, op.arg("other"))
        else:
            sides = (False, op.arg("self")), (True, op.arg("value"))
        (kept, value), (_, other) = sides
        number = number_of(value, program)
        if number is not None:
            (kept, value), (_, other) = sides[1], sides[0]
        number = number_of(other, program)
        other = number if number is not None else other
        if not isinstance(value, SSAValue) or (isinstance(other, float) and isnan(other)):
            return Refusal("both sides are numbers, or one is NaN")
        for side in (value, other):
            if isinstance(side, SSAValue):
                refusal = not_of_type(side, result) or trusts_no_nan(side, program)
                if refusal is not None:
                    return refusal
        shapes = [dims(side.type) for side in (value, other) if isinstance(side, SSAValue)]
        if reduce(broadcast, (*shapes, dims(program.weights.type_of(mask)))) != dims(result):
            return Refusal(
                "the result is broadcast further than the mask and the sides"
            )  # Another number's axes, for example.
        return Masked(op, mask, kept, value, other)

    def deviates(self, match: Masked, program: Program) -> Deviation | None:
        """XNNPACK's minimum and maximum do not define their result for a NaN."""
        sides = [side for side in (match.value, match.other) if isinstance(side, SSAValue)]
        lost = Deviation("a NaN that the mask keeps may be lost, one that it hides may be seen")
        return lost.unless(*(is_never_nan(side, program) for side in sides))

    def build(self, match: Masked, rw: Rewriter) -> None:
        """Build a minimum, a maximum, or both; two of them and a maximum for two tensors."""
        value, other = match.value, match.other
        if isinstance(other, SSAValue):
            one = self._limited(rw, match, value, match.kept, -inf, is_upper=True)
            two = self._limited(rw, match, other, not match.kept, -inf, is_upper=True)
            value = emit(rw, aten.MaximumDefault.make(one, two))
        else:
            if other != inf:
                value = self._limited(rw, match, value, match.kept, other, is_upper=True)
            if other != -inf:
                value = self._limited(rw, match, value, match.kept, other, is_upper=False)
        rw.replace(match.op, [value])

    def _limited(
        self, rw: Rewriter, match: Masked, value: SSAValue, kept: bool, fill: float, is_upper: bool
    ) -> SSAValue:
        """Limit the value to at most (or at least) `fill` where it is not kept."""
        dtype = dtype_name(element(value.type))
        free = inf if is_upper else -inf
        key = rw.weights.derive(
            "limits", [match.mask], kept=kept, free=free, fill=fill, dtype=dtype
        )
        bound = rw.weight(key)
        cls = aten.MinimumDefault if is_upper else aten.MaximumDefault
        shape = broadcast(dims(value.type), dims(bound.type))
        return emit(
            rw, cls.make(value, bound, result_types=[tensor(list(shape), element(value.type))])
        )


def not_of_type(value: SSAValue, result: object) -> Refusal | None:
    """The side has the result's element type."""
    assert isinstance(result, TensorType)
    if element(value.type) != element(result):
        return Refusal("one side has another dtype than the result")
    return None
