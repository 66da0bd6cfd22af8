"""Softmax over the last axis to a softmax node; over another axis with transposes around it.

Before:
    %y = aten._softmax.default(%x, 1, false) : (tensor<2x4xf32>) -> tensor<2x4xf32>
After:
    %y = xnnpack.softmax(%x) : (tensor<2x4xf32>) -> tensor<2x4xf32>
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from xdsl.ir import Operation

from stepwell.dialects import aten, xnnpack
from stepwell.dialects.aten.op import SchemaOp
from stepwell.ir.numerics import FLUSHED, Deviation
from stepwell.ir.program import Program
from stepwell.ir.rewriting import Bound, Refusal, Rewrite, Rewriter
from stepwell.ir.types import dims
from stepwell.translate.rewrites.aten.building import axis, permute
from stepwell.translate.rewrites.xnnpack.guards import not_for_xnnpack


@dataclass(frozen=True)
class Softmax:
    """A softmax over axis `at`."""

    op: SchemaOp
    at: int


@dataclass(frozen=True)
class LowerSoftmax(Rewrite[Softmax]):
    """`aten._softmax` and `aten.softmax.int` to `xnnpack.softmax`."""

    name: ClassVar[str] = "lower-softmax"
    anchors: ClassVar[tuple[type[Operation], ...]] = (aten._SoftmaxDefault, aten.SoftmaxInt)
    bound: ClassVar[Bound] = Bound(1e-5, 1e-6, "XNNPACK approximates exp")
    deviation: ClassVar[Deviation | None] = FLUSHED

    def match(self, op: SchemaOp, program: Program) -> Softmax | Refusal | None:
        """Guards: float elements, no change of dtype."""
        refusal = not_for_xnnpack(op)
        if refusal is not None:
            return refusal
        rank = len(dims(op.operands[0].type))
        if rank == 0:
            return Refusal("the operand is a scalar, which has no axis")
        return Softmax(op, axis(op.arg("dim"), rank))

    def build(self, match: Softmax, rw: Rewriter) -> None:
        """Bring the axis last, take the softmax, bring it back."""
        op = match.op
        rank = len(dims(op.operands[0].type))
        order = [i for i in range(rank) if i != match.at] + [match.at]
        value = permute(rw, op.operands[0], order)
        new = xnnpack.Softmax.make(value, result=value.type)
        rw.insert(new)
        back = [order.index(i) for i in range(rank)]
        rw.replace(op, [permute(rw, new.output, back)])
