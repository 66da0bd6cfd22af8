"""Write the tanh form of GELU with what XNNPACK has; its own gelu is the erf form.

    gelu(x) = x/2 · (1 + tanh u) = x · sigmoid(2u),  u = √(2/π) · (x + 0.044715 x³)

2u is kept within ±100, where the sigmoid is 0 or 1 to the last bit: XNNPACK's is NaN for some numbers
beyond 10³⁰. The product that makes it clamps for nothing.

The stock flow lowers this form to the erf node without a word, 4.7e-4 off.

Before:
    func.func @forward(%x: tensor<2x4xf32>) -> tensor<2x4xf32> {
      %y = aten.gelu.default(%x, approximate="tanh") : (tensor<2x4xf32>) -> tensor<2x4xf32>
      func.return %y : tensor<2x4xf32>
    }
After:
    func.func @forward(%x: tensor<2x4xf32>) -> tensor<2x4xf32> {
      %0 = aten.mul.Tensor(%x, %x) : (tensor<2x4xf32>, tensor<2x4xf32>) -> tensor<2x4xf32>
      %1 = aten.mul.Scalar(%0, 0.07135481627260025) : (tensor<2x4xf32>) -> tensor<2x4xf32>
      %2 = aten.add.Scalar(%1, 1.5957691216057308) : (tensor<2x4xf32>) -> tensor<2x4xf32>
      %3 = aten.mul.Tensor(%x, %2) : (tensor<2x4xf32>, tensor<2x4xf32>) -> tensor<2x4xf32>
      %4 = aten.clamp.default(%3, -100.0, 100.0) : (tensor<2x4xf32>) -> tensor<2x4xf32>
      %5 = aten.sigmoid.default(%4) : (tensor<2x4xf32>) -> tensor<2x4xf32>
      %y = aten.mul.Tensor(%x, %5) : (tensor<2x4xf32>, tensor<2x4xf32>) -> tensor<2x4xf32>
      func.return %y : tensor<2x4xf32>
    }
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import ClassVar

from xdsl.ir import Operation, SSAValue

from stepwell.dialects import aten
from stepwell.dialects.aten.op import SchemaOp
from stepwell.ir.program import Program
from stepwell.ir.rewriting import Bound, Refusal, Rewrite, Rewriter
from stepwell.translate.rewrites.aten.building import emit
from stepwell.translate.rewrites.xnnpack.guards import not_for_xnnpack

LINEAR = 2.0 * math.sqrt(2.0 / math.pi)
CUBIC = LINEAR * 0.044715
SATURATED = 100.0
"""e to its negative is below half of float32's smallest normal number."""


@dataclass(frozen=True)
class TanhGelu:
    """A GELU in its tanh form."""

    op: SchemaOp


@dataclass(frozen=True)
class ExpandTanhGelu(Rewrite[TanhGelu]):
    """`gelu(x, "tanh")` to `x · sigmoid(x · (a + b·x²))`."""

    name: ClassVar[str] = "expand-tanh-gelu"
    anchors: ClassVar[tuple[type[Operation], ...]] = (aten.GeluDefault,)
    bound: ClassVar[Bound] = Bound(1e-5, 1e-6, "a sigmoid in place of a tanh, reassociated")

    def match(self, op: SchemaOp, program: Program) -> TanhGelu | Refusal | None:
        """Guards: the tanh form, float elements."""
        if op.arg("approximate") != "tanh":
            return None
        return not_for_xnnpack(op) or TanhGelu(op)

    def build(self, match: TanhGelu, rw: Rewriter) -> None:
        """Square, scale, shift, multiply, sigmoid, multiply."""
        x = match.op.operands[0]
        kept = [x.type]

        def times(left: SSAValue, right: SSAValue) -> SSAValue:
            return emit(rw, aten.MulTensor.make(left, right, result_types=kept))

        square = times(x, x)
        cubic = emit(rw, aten.MulScalar.make(square, CUBIC, result_types=kept))
        slope = emit(rw, aten.AddScalar.make(cubic, LINEAR, result_types=kept))
        argument = aten.ClampDefault.make(times(x, slope), -SATURATED, SATURATED, result_types=kept)
        gate = emit(rw, aten.SigmoidDefault.make(emit(rw, argument), result_types=kept))
        rw.replace(match.op, [times(x, gate)])
