"""Powers and roots in operators that are defined for every number.

POW has no result for a negative base, or for 0 ** 0: the reference model ends there. Whole exponents
become products, other exponents of a base that may be negative the exponential of a logarithm, which
is what the model's POW computes and is NaN where torch's power is. Halves are widened where a
product would round twice.

Before:
    %y = aten.pow.Tensor_Scalar(%x, 4) : (tensor<2x4xf32>) -> tensor<2x4xf32>
After:
    %0 = tosa.mul %x, %x, dense<0> : (tensor<2x4xf32>, tensor<2x4xf32>, tensor<1xi8>) -> tensor<2x4xf32>
    %y = tosa.mul %0, %0, dense<0> : (tensor<2x4xf32>, tensor<2x4xf32>, tensor<1xi8>) -> tensor<2x4xf32>
"""

from __future__ import annotations

from dataclasses import dataclass
from math import isfinite, log
from typing import ClassVar

import torch
from xdsl.dialects.builtin import TensorType
from xdsl.ir import Operation, SSAValue

from stepwell.dialects import aten
from stepwell.dialects.aten.op import SchemaOp
from stepwell.dialects.tosa import generated as t
from stepwell.ir.dtypes import f32, i1, torch_dtype
from stepwell.ir.rewriting import Refusal
from stepwell.ir.types import element, is_static
from stepwell.translate.rewrites.tosa.building import FLOATS, Builder, shape_of
from stepwell.translate.rewrites.tosa.lowering import (
    LowerToTosa,
    is_number,
    is_scalar,
    needs_floats,
)
from stepwell.translate.rewrites.tosa.sizes import is_known

LARGEST_EXPONENT = 64
"""Whole exponents up to this one are products; the rounding of n of them adds up to n / 2 ulp."""


@dataclass(frozen=True)
class LowerPower(LowerToTosa):
    """`x ** n`, `n ** x`, `x ** y` and `sqrt`."""

    name: ClassVar[str] = "lower-power-to-tosa"
    anchors: ClassVar[tuple[type[Operation], ...]] = (
        aten.PowTensorScalar,
        aten.PowScalar,
        aten.PowTensorTensor,
        aten.SqrtDefault,
    )

    def refuses(self, op: SchemaOp) -> Refusal | None:
        """Floats of one type; numbers that are known; a number as base is positive."""
        tensors = (v for v in (*op.operands, *op.results) if not is_scalar(v))
        held = {element(value.type) for value in tensors}
        if len(held) > 1:
            return Refusal("operands and result have several dtypes")
        if isinstance(op, aten.PowTensorScalar):
            exponent = op.arg("exponent")
            if not is_number(exponent) or not isfinite(exponent):
                return Refusal("the exponent is not finite, or known only at run time")
            if exponent == 0 and not is_known(shape_of(op.operands[0])):
                return Refusal("the exponent is 0 and the shape is symbolic")
            if is_whole(exponent) and abs(exponent) > LARGEST_EXPONENT:
                return Refusal(f"the exponent {exponent} is beyond {LARGEST_EXPONENT}")
        if isinstance(op, aten.PowScalar):
            base = op.arg("self")
            if not is_number(base) or not 0 < base < float("inf") or base == 1:
                return Refusal("the base is not a finite number above 0, or it is 1")
        return needs_floats(op)

    def lower(self, op: SchemaOp, b: Builder) -> SSAValue:
        """Products, or an exponential."""
        x = op.operands[0]
        held = element(x.type)
        match op:
            case aten.SqrtDefault():
                return root(x, b)
            case aten.PowScalar():
                product = b.scalar(t.MulOp, b.single(x), log(float(op.arg("self"))))
                return narrowed(b.unary(t.ExpOp, product), x, b)
            case aten.PowTensorTensor():
                return narrowed(general(b.single(x), b.single(op.operands[1]), b), x, b)
            case _:
                exponent = float(op.arg("exponent"))
        if exponent == 0:
            assert isinstance(x.type, TensorType) and is_static(x.type)
            return b.constant(torch.ones(x.type.get_shape(), dtype=torch_dtype(held)))
        if exponent in (-1, 1, 2):
            return whole(x, int(exponent), b)
        return narrowed(power(b.single(x), exponent, b), x, b)


def is_whole(number: float) -> bool:
    """Whether a number is an integer."""
    return float(number).is_integer()


def root(x: SSAValue, b: Builder) -> SSAValue:
    """√x = 1 / (1 / √x): 0 of 0, inf of inf, NaN of negative numbers."""
    return b.unary(t.ReciprocalOp, b.unary(t.RsqrtOp, x))


def power(x: SSAValue, exponent: float, b: Builder) -> SSAValue:
    """X ** exponent in f32: products, those of a root, or e ** (exponent · log x)."""
    if is_whole(exponent) and abs(exponent) <= LARGEST_EXPONENT:
        return whole(x, int(exponent), b)
    if is_whole(2 * exponent) and abs(exponent) <= LARGEST_EXPONENT:
        return whole(root(x, b), int(2 * exponent), b)
    return b.unary(t.ExpOp, b.scalar(t.MulOp, b.unary(t.LogOp, x), exponent))


def whole(x: SSAValue, exponent: int, b: Builder) -> SSAValue:
    """X ** exponent by squaring; no square grows beyond what the result is made of."""
    result: SSAValue | None = None
    square, left = x, abs(exponent)
    while True:
        if left & 1:
            result = square if result is None else b.binary(t.MulOp, result, square)
        left >>= 1
        if not left:
            break
        square = b.binary(t.MulOp, square, square)
    assert result is not None
    return b.unary(t.ReciprocalOp, result) if exponent < 0 else result


def general(x: SSAValue, y: SSAValue, b: Builder) -> SSAValue:
    """X ** y: e ** (y · log |x|); negative bases have the sign of odd whole exponents, or NaN."""
    size = b.unary(t.AbsOp, x)
    result = b.unary(t.ExpOp, b.binary(t.MulOp, y, b.unary(t.LogOp, size)))
    one = b.splat(1.0, result)
    half = b.scalar(t.MulOp, y, 0.5)
    is_even = b.binary(t.EqualOp, b.unary(t.FloorOp, half), half, i1)
    is_integer = b.binary(t.EqualOp, b.unary(t.FloorOp, y), y, i1)
    is_unit = b.binary(t.EqualOp, size, b.splat(1.0, size), i1)
    result = b.select(is_unit, one, result)
    signed = b.select(is_even, result, b.negate(result))
    defined = b.select(is_integer, signed, b.splat(float("nan"), result))
    is_negative = b.binary(t.GreaterOp, b.splat(0.0, x), x, i1)
    result = b.select(is_negative, defined, result)
    return b.select(b.binary(t.EqualOp, y, b.splat(0.0, y), i1), one, result)


def narrowed(y: SSAValue, like: SSAValue, b: Builder) -> SSAValue:
    """The value in another's element type, one of `FLOATS`."""
    held = element(like.type)
    assert held in FLOATS
    return y if held == f32 else b.op(t.CastOp, [y], shape_of(y), held)
