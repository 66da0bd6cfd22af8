"""Remove arithmetic with a neutral number: `x * 1`, `x / 1`, `x ** 1`, `x - 0`.

Only where it is exact. `x + 0` is not: it turns −0.0 into 0.0, as `x + (−0.0)` does not; for
integers both are. A float number that promotes an integer tensor changes the type, which the
comparison of types sees.

Before:
    func.func @forward(%x: tensor<2x3xf32>) -> tensor<2x3xf32> {
      %a = aten.mul.Scalar(%x, 1) : (tensor<2x3xf32>) -> tensor<2x3xf32>
      %b = aten.div.Scalar(%a, 1.0) : (tensor<2x3xf32>) -> tensor<2x3xf32>
      %c = aten.sub.Scalar(%b, 0.0) : (tensor<2x3xf32>) -> tensor<2x3xf32>
      %d = aten.pow.Tensor_Scalar(%c, 1) : (tensor<2x3xf32>) -> tensor<2x3xf32>
      %y = aten.neg.default(%d) : (tensor<2x3xf32>) -> tensor<2x3xf32>
      func.return %y : tensor<2x3xf32>
    }
After:
    func.func @forward(%x: tensor<2x3xf32>) -> tensor<2x3xf32> {
      %y = aten.neg.default(%x) : (tensor<2x3xf32>) -> tensor<2x3xf32>
      func.return %y : tensor<2x3xf32>
    }
"""

from __future__ import annotations

from dataclasses import dataclass
from math import copysign, isfinite
from typing import ClassVar

from xdsl.ir import Operation, SSAValue

from stepwell.dialects import aten
from stepwell.dialects.aten.op import SchemaOp
from stepwell.ir.dtypes import is_float
from stepwell.ir.program import Program
from stepwell.ir.rewriting import Refusal
from stepwell.ir.types import element
from stepwell.translate.rewrites.aten.forwarding import ForwardOperand


@dataclass(frozen=True)
class RemoveNeutralArithmetic(ForwardOperand):
    """`x * 1` and its like to `x`."""

    name: ClassVar[str] = "remove-neutral-arithmetic"
    anchors: ClassVar[tuple[type[Operation], ...]] = (
        aten.MulScalar,
        aten.DivScalar,
        aten.AddScalar,
        aten.SubScalar,
        aten.PowTensorScalar,
    )

    def has_effect(self, op: SchemaOp, program: Program) -> Refusal | bool:
        """Whether the number changes some element."""
        if isinstance(op, aten.PowTensorScalar):
            return bool(op.arg("exponent") != 1)
        number = op.arg("other")
        if isinstance(number, SSAValue | complex):
            return True
        if isinstance(op, aten.MulScalar | aten.DivScalar):
            return bool(number != 1)
        if number != 0:
            return True
        return loses_negative_zero(op, number) or False


def loses_negative_zero(op: SchemaOp, zero: float) -> Refusal | None:
    """A sum with +0.0 turns −0.0 into +0.0; the sign is `alpha`'s too."""
    if not is_float(element(op.operands[0].type)):
        return None
    alpha = op.arg("alpha")
    if isinstance(alpha, SSAValue):
        return Refusal("alpha is known only at run time")
    if not isfinite(alpha):
        return Refusal(f"alpha is {alpha}, and 0 times that is NaN")
    sign = copysign(1.0, float(zero)) * copysign(1.0, float(alpha))
    added = sign if isinstance(op, aten.AddScalar) else -sign
    return Refusal("−0.0 + 0.0 is 0.0, not −0.0") if added > 0 else None
