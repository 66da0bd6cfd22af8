"""Write log-softmax as what it is: XNNPACK has softmax and log, but not the one of the other.

The logarithm of a softmax would lose what the softmax rounds to zero. torch subtracts the greatest
of a row, and then the logarithm of the sum of the exponentials.

Before:
    func.func @forward(%x: tensor<2x6xf32>) -> tensor<2x6xf32> {
      %y = aten._log_softmax.default(%x, 1, false) : (tensor<2x6xf32>) -> tensor<2x6xf32>
      func.return %y : tensor<2x6xf32>
    }
After:
    func.func @forward(%x: tensor<2x6xf32>) -> tensor<2x6xf32> {
      %0 = aten.amax.default(%x, [1], true) : (tensor<2x6xf32>) -> tensor<2x1xf32>
      %1 = aten.sub.Tensor(%x, %0) : (tensor<2x6xf32>, tensor<2x1xf32>) -> tensor<2x6xf32>
      %2 = aten.exp.default(%1) : (tensor<2x6xf32>) -> tensor<2x6xf32>
      %3 = aten.sum.dim_IntList(%2, [1], true) : (tensor<2x6xf32>) -> tensor<2x1xf32>
      %4 = aten.log.default(%3) : (tensor<2x1xf32>) -> tensor<2x1xf32>
      %y = aten.sub.Tensor(%1, %4) : (tensor<2x6xf32>, tensor<2x1xf32>) -> tensor<2x6xf32>
      func.return %y : tensor<2x6xf32>
    }
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from xdsl.ir import Operation

from stepwell.dialects import aten
from stepwell.dialects.aten.op import SchemaOp
from stepwell.ir.dtypes import f32
from stepwell.ir.numerics import Deviation
from stepwell.ir.program import Program
from stepwell.ir.rewriting import Bound, Refusal, Rewrite, Rewriter
from stepwell.ir.types import dims, element
from stepwell.translate.rewrites.aten.building import axis, emit, emit_as
from stepwell.translate.rewrites.aten.ranges import is_never_nan


@dataclass(frozen=True)
class LogSoftmax:
    """A log-softmax along one axis."""

    op: SchemaOp
    at: int


@dataclass(frozen=True)
class ExpandLogSoftmax(Rewrite[LogSoftmax]):
    """`_log_softmax` to amax, sub, exp, sum, log, sub."""

    name: ClassVar[str] = "expand-log-softmax"
    takes_empty: ClassVar[bool] = False
    anchors: ClassVar[tuple[type[Operation], ...]] = (aten._LogSoftmaxDefault,)
    bound: ClassVar[Bound] = Bound(2e-6, 2e-6, "exponentials summed in another order")

    def match(self, op: SchemaOp, program: Program) -> LogSoftmax | Refusal | None:
        """f32."""
        given = op.operands[0].type
        if element(given) != f32:
            return Refusal("the error bound of this rewrite holds for float32 only")
        return LogSoftmax(op, axis(op.arg("dim"), len(dims(given))))

    def deviates(self, match: LogSoftmax, program: Program) -> Deviation | None:
        """XNNPACK's greatest of a row, and its exponential, do not say what becomes of a NaN."""
        if is_never_nan(match.op.operands[0], program):
            return None
        return Deviation("a row with a NaN may not be NaN throughout")

    def build(self, match: LogSoftmax, rw: Rewriter) -> None:
        """Below the greatest, minus the logarithm of the sum."""
        op, at = match.op, match.at
        x = op.operands[0]
        greatest = emit(rw, aten.AmaxDefault.make(x, [at], True))
        below = emit(rw, aten.SubTensor.make(x, greatest))
        total = emit(rw, aten.SumDimIntList.make(emit(rw, aten.ExpDefault.make(below)), [at], True))
        log = emit(rw, aten.LogDefault.make(total))
        rw.replace(op, [emit_as(rw, aten.SubTensor.make(below, log), op.results[0])])
