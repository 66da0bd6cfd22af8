"""`fmod` and `remainder` by a power of two, exactly.

x - trunc(x / b) · b has no rounding then. By another divisor the quotient rounds, and next to a
multiple of it the result would be off by the whole divisor: that is refused.

Before:
    %y = aten.fmod.Scalar(%x, 2.0) : (tensor<2x4xf32>) -> tensor<2x4xf32>
After:
    %0 = tosa.mul %x, dense<0.5>, dense<0> : (tensor<2x4xf32>, tensor<1x1xf32>, tensor<1xi8>) -> tensor<2x4xf32>
    %1 = tosa.greater dense<0.0>, %x : (tensor<1x1xf32>, tensor<2x4xf32>) -> tensor<2x4xi1>
    %2 = tosa.ceil %0 : (tensor<2x4xf32>) -> tensor<2x4xf32>
    %3 = tosa.floor %0 : (tensor<2x4xf32>) -> tensor<2x4xf32>
    %4 = tosa.select %1, %2, %3 : (tensor<2x4xi1>, tensor<2x4xf32>, tensor<2x4xf32>) -> tensor<2x4xf32>
    %5 = tosa.mul %4, dense<2.0>, dense<0> : (tensor<2x4xf32>, tensor<1x1xf32>, tensor<1xi8>) -> tensor<2x4xf32>
    %6 = tosa.sub %x, %5 : (tensor<2x4xf32>, tensor<2x4xf32>) -> tensor<2x4xf32>
    %7 = tosa.sub %x, %x : (tensor<2x4xf32>, tensor<2x4xf32>) -> tensor<2x4xf32>
    %8 = tosa.abs %x : (tensor<2x4xf32>) -> tensor<2x4xf32>
    %9 = tosa.greater dense<0x4C000000>, %8 : (tensor<1x1xf32>, tensor<2x4xf32>) -> tensor<2x4xi1>
    %10 = tosa.select %9, %6, %7 : (tensor<2x4xi1>, tensor<2x4xf32>, tensor<2x4xf32>) -> tensor<2x4xf32>
    %11 = tosa.mul %x, dense<0.0>, dense<0> : (tensor<2x4xf32>, tensor<1x1xf32>, tensor<1xi8>) -> tensor<2x4xf32>
    %12 = tosa.equal %10, dense<0.0> : (tensor<2x4xf32>, tensor<1x1xf32>) -> tensor<2x4xi1>
    %y = tosa.select %12, %11, %10 : (tensor<2x4xi1>, tensor<2x4xf32>, tensor<2x4xf32>) -> tensor<2x4xf32>
"""

from __future__ import annotations

from dataclasses import dataclass
from math import frexp
from typing import ClassVar

from xdsl.ir import Operation, SSAValue

from stepwell.dialects import aten
from stepwell.dialects.aten.op import SchemaOp
from stepwell.dialects.tosa import generated as t
from stepwell.ir.rewriting import Bound, Refusal
from stepwell.translate.rewrites.tosa.building import Builder
from stepwell.translate.rewrites.tosa.choices import equal, greater, select
from stepwell.translate.rewrites.tosa.lower_power import narrowed
from stepwell.translate.rewrites.tosa.lowering import LowerToTosa, is_number, needs_floats

LARGEST_EXPONENT = 60
"""Divisors are 2 ** -60 to 2 ** 60, so that nothing near them overflows."""


@dataclass(frozen=True)
class LowerRemainder(LowerToTosa):
    """`fmod` and `remainder`, whose result has the sign of the divisor."""

    name: ClassVar[str] = "lower-remainder-to-tosa"
    anchors: ClassVar[tuple[type[Operation], ...]] = (
        aten.FmodScalar,
        aten.FmodTensor,
        aten.RemainderScalar,
        aten.RemainderTensor,
    )
    bound: ClassVar[Bound] = Bound(0.0, 5e-324, "which zero a multiple leaves hangs on the kernel")

    def refuses(self, op: SchemaOp) -> Refusal | None:
        """Floats, by a power of two."""
        if not is_number(op.arg("other")):
            return Refusal("the divisor is known only at run time: its quotient rounds")
        share, exponent = frexp(float(op.arg("other")))
        if abs(share) != 0.5 or abs(exponent - 1) > LARGEST_EXPONENT:
            return Refusal(f"the divisor {op.arg('other')} is no power of two: its quotient rounds")
        return needs_floats(op)

    def lower(self, op: SchemaOp, b: Builder) -> SSAValue:
        """What is left of x, then for `remainder` a divisor more where the signs differ."""
        x = b.single(op.operands[0])
        divisor = float(op.arg("other"))
        size = abs(divisor)
        quotient = b.scalar(t.MulOp, x, 1 / size)
        is_below = greater(0.0, x, b)
        whole = select(is_below, b.unary(t.CeilOp, quotient), b.unary(t.FloorOp, quotient), x, b)
        left = b.binary(t.SubOp, x, b.scalar(t.MulOp, whole, size))
        # A larger number is a multiple; its quotient may be inf. inf - inf is the NaN of inf.
        nothing = b.binary(t.SubOp, x, x)
        left = select(greater(2.0**24 * size, b.unary(t.AbsOp, x), b), left, nothing, x, b)
        if isinstance(op, aten.FmodScalar):
            zero = b.scalar(t.MulOp, x, 0.0)
            left = select(equal(left, 0.0, b), zero, left, x, b)
        else:
            differs = greater(0.0, left, b) if divisor > 0 else greater(left, 0.0, b)
            left = select(differs, b.scalar(t.AddOp, left, divisor), left, x, b)
        return narrowed(left, op.operands[0], b)
