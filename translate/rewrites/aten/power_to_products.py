"""Spell small constant powers by products and roots, as torch's own kernel computes them.

x² and x³ are products, x^½ is sqrt, x^−½ rsqrt, x^−1 the reciprocal, x^−2 the reciprocal of x².

Before:
    func.func @forward(%x: tensor<2x3xf32>) -> (tensor<2x3xf32>, tensor<2x3xf32>) {
      %a = aten.pow.Tensor_Scalar(%x, 2) : (tensor<2x3xf32>) -> tensor<2x3xf32>
      %b = aten.pow.Tensor_Scalar(%x, -0.5) : (tensor<2x3xf32>) -> tensor<2x3xf32>
      func.return %a, %b : tensor<2x3xf32>, tensor<2x3xf32>
    }
After:
    func.func @forward(%x: tensor<2x3xf32>) -> (tensor<2x3xf32>, tensor<2x3xf32>) {
      %a = aten.mul.Tensor(%x, %x) : (tensor<2x3xf32>, tensor<2x3xf32>) -> tensor<2x3xf32>
      %b = aten.rsqrt.default(%x) : (tensor<2x3xf32>) -> tensor<2x3xf32>
      func.return %a, %b : tensor<2x3xf32>, tensor<2x3xf32>
    }
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from xdsl.ir import Operation

from stepwell.dialects import aten
from stepwell.dialects.aten.op import SchemaOp
from stepwell.ir.dtypes import f32, f64
from stepwell.ir.numerics import Deviation, flushes
from stepwell.ir.program import Program
from stepwell.ir.rewriting import Refusal, Rewrite, Rewriter
from stepwell.ir.types import element
from stepwell.translate.rewrites.aten.building import emit, emit_as
from stepwell.translate.rewrites.aten.ranges import is_away_from_zero


@dataclass(frozen=True)
class Power:
    """`x` multiplied by itself `factors` times, then a root or reciprocal."""

    op: SchemaOp
    factors: int
    then: type[SchemaOp] | None


_FORMS: dict[float, tuple[int, type[SchemaOp] | None]] = {
    2.0: (2, None),
    3.0: (3, None),
    0.5: (1, aten.SqrtDefault),
    -0.5: (1, aten.RsqrtDefault),
    -1.0: (1, aten.ReciprocalDefault),
    -2.0: (2, aten.ReciprocalDefault),
}


@dataclass(frozen=True)
class PowerToProducts(Rewrite[Power]):
    """`x ** 2` to `x * x`, `x ** 0.5` to `sqrt(x)` and so on."""

    name: ClassVar[str] = "power-to-products"
    anchors: ClassVar[tuple[type[Operation], ...]] = (aten.PowTensorScalar, aten.SquareDefault)

    def match(self, op: SchemaOp, program: Program) -> Power | Refusal | None:
        """An f32 or f64 tensor and one of six exponents."""
        if element(op.results[0].type) != element(op.operands[0].type):
            return Refusal("the exponent promotes the tensor to another dtype")
        exponent = 2 if isinstance(op, aten.SquareDefault) else op.arg("exponent")
        if not isinstance(exponent, int | float) or float(exponent) not in _FORMS:
            return None
        if element(op.operands[0].type) not in (f32, f64):
            return Refusal("torch rounds a power of this dtype once, products would twice")
        return Power(op, *_FORMS[float(exponent)])

    def deviates(self, match: Power, program: Program) -> Deviation | None:
        """XNNPACK's reciprocal root of zero may be NaN: an estimate and a step of Newton's."""
        if match.then is not aten.RsqrtDefault or not flushes(program.context):
            return None
        if is_away_from_zero(match.op.operands[0], program):
            return None
        return Deviation("the reciprocal root of zero or of a denormal number may be NaN")

    def build(self, match: Power, rw: Rewriter) -> None:
        """Write the products, then the root."""
        x, result = match.op.operands[0], match.op.results[0]
        value = x
        for _ in range(match.factors - 1):
            product = aten.MulTensor.make(value, x, result_types=[result.type])
            value = emit(rw, product)
        if match.then is not None:
            value = emit_as(rw, match.then.make(value, result_types=[result.type]), result)
        rw.replace(match.op, [value])
