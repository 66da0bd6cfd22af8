"""Whole powers beyond torch's own products, by squaring: XNNPACK has no power.

`aten/powers.py` spells x², x³ and x^−2 as torch's kernel computes them; the others torch gives to
the C library. Squares never grow beyond what the result is made of, so infinities are where they
were. A fractional power stays a kernel: its square root would lose the sign that `pow` drops at −0
and the infinity that it gives for −inf.

Before:
    %y = aten.pow.Tensor_Scalar(%x, -5) : (tensor<2x3xf32>) -> tensor<2x3xf32>
After:
    %a = aten.mul.Tensor(%x, %x) : (tensor<2x3xf32>, tensor<2x3xf32>) -> tensor<2x3xf32>
    %b = aten.mul.Tensor(%a, %a) : (tensor<2x3xf32>, tensor<2x3xf32>) -> tensor<2x3xf32>
    %c = aten.mul.Tensor(%x, %b) : (tensor<2x3xf32>, tensor<2x3xf32>) -> tensor<2x3xf32>
    %y = aten.reciprocal.default(%c) : (tensor<2x3xf32>) -> tensor<2x3xf32>
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from xdsl.ir import Operation, SSAValue

from stepwell.dialects import aten
from stepwell.dialects.aten.op import SchemaOp
from stepwell.ir.bounds import roundings
from stepwell.ir.dtypes import f32
from stepwell.ir.program import Program
from stepwell.ir.rewriting import Bound, Refusal, Rewrite, Rewriter
from stepwell.ir.types import element
from stepwell.translate.rewrites.building import become, put

LARGEST_EXPONENT = 64
"""The rounding of n products adds up to n / 2 ulp of the result."""


@dataclass(frozen=True)
class WholePower:
    """An op and its exponent, which is no 0."""

    op: SchemaOp
    exponent: int


@dataclass(frozen=True)
class ExpandPower(Rewrite[WholePower]):
    """`x ** n` to products of squares, and a reciprocal if n is negative."""

    name: ClassVar[str] = "expand-power"
    anchors: ClassVar[tuple[type[Operation], ...]] = (aten.PowTensorScalar,)
    bound: ClassVar[Bound] = roundings(
        "up to 64 products round in turn; what a negative power makes of a product that overflows "
        "or is subnormal is below the smallest normal number, or lost beyond the largest"
    )

    def match(self, op: SchemaOp, program: Program) -> WholePower | Refusal | None:
        """Guards: float32, a whole exponent up to 64 in size that is known."""
        exponent = op.arg("exponent")
        if not isinstance(exponent, int | float):
            return Refusal("the exponent is known only at run time")
        if element(op.operands[0].type) != f32:
            return Refusal("XNNPACK computes products in float32")
        if not float(exponent).is_integer():
            return Refusal(f"x ** {exponent} is no product: roots lose the sign of powers of -0")
        if not 1 < abs(exponent) <= LARGEST_EXPONENT:
            return Refusal(
                f"the size of the exponent {exponent} is not from 2 to {LARGEST_EXPONENT}"
            )
        return WholePower(op, int(exponent))

    def build(self, match: WholePower, rw: Rewriter) -> None:
        """Squares, the products of some of them, the reciprocal."""
        square = match.op.operands[0]
        value: SSAValue | None = None
        left = abs(match.exponent)
        while True:
            if left & 1:
                value = square if value is None else put(rw, aten.MulTensor, value, square)
            left >>= 1
            if not left:
                break
            square = put(rw, aten.MulTensor, square, square)
        assert value is not None
        if match.exponent < 0:
            become(rw, match.op, aten.ReciprocalDefault, value)
        else:
            rw.replace(match.op, [value])
