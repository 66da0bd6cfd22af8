"""Spell a clamp between tensors as a maximum and a minimum.

Before:
    func.func @forward(%x: tensor<2x3xf32>, %a: tensor<3xf32>, %b: tensor<2x3xf32>) -> tensor<2x3xf32> {
      %y = aten.clamp.Tensor(%x, %a, %b) : (tensor<2x3xf32>, tensor<3xf32>, tensor<2x3xf32>) -> tensor<2x3xf32>
      func.return %y : tensor<2x3xf32>
    }
After:
    func.func @forward(%x: tensor<2x3xf32>, %a: tensor<3xf32>, %b: tensor<2x3xf32>) -> tensor<2x3xf32> {
      %0 = aten.maximum.default(%x, %a) : (tensor<2x3xf32>, tensor<3xf32>) -> tensor<2x3xf32>
      %y = aten.minimum.default(%0, %b) : (tensor<2x3xf32>, tensor<2x3xf32>) -> tensor<2x3xf32>
      func.return %y : tensor<2x3xf32>
    }
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from xdsl.ir import Operation, SSAValue

from stepwell.dialects import aten
from stepwell.dialects.aten.op import SchemaOp
from stepwell.ir.numerics import Deviation, loses_nans
from stepwell.ir.program import Program
from stepwell.ir.rewriting import Bound, Refusal, Rewrite, Rewriter
from stepwell.ir.types import element
from stepwell.translate.rewrites.aten.building import emit
from stepwell.translate.rewrites.aten.ranges import is_never_nan


@dataclass(frozen=True)
class Clamped:
    """A clamp from `low` to `high`, either of which may be absent."""

    op: SchemaOp
    low: SSAValue | None
    high: SSAValue | None


@dataclass(frozen=True)
class ClampToExtrema(Rewrite[Clamped]):
    """`aten.clamp.Tensor` to `aten.maximum` and `aten.minimum`; a NaN in any of them stays one."""

    name: ClassVar[str] = "clamp-to-extrema"
    bound: ClassVar[Bound] = Bound(0.0, 5e-324, "which of two zeros is greater hangs on the kernel")
    anchors: ClassVar[tuple[type[Operation], ...]] = (aten.ClampTensor,)

    def match(self, op: SchemaOp, program: Program) -> Clamped | Refusal | None:
        """All tensors have one element type, so that no step promotes."""
        if any(element(value.type) != element(op.results[0].type) for value in op.operands):
            return Refusal("a bound promotes the tensor to another dtype")
        return Clamped(op, op.operand("min"), op.operand("max"))

    def deviates(self, match: Clamped, program: Program) -> Deviation | None:
        """Where the engine's maximum may lose a NaN; the runtime's own clamp keeps it."""
        if not loses_nans(program.context):
            return None
        if all(is_never_nan(operand, program) for operand in match.op.operands):
            return None
        return Deviation("a NaN may be lost beside a bound")

    def build(self, match: Clamped, rw: Rewriter) -> None:
        """The maximum with the lower bound, then the minimum with the upper one."""
        value = match.op.operands[0]
        if match.low is not None:
            value = emit(rw, aten.MaximumDefault.make(value, match.low))
        if match.high is not None:
            value = emit(rw, aten.MinimumDefault.make(value, match.high))
        rw.replace(match.op, [value])
