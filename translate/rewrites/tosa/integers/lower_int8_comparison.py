"""Comparisons of quantised values to integer TOSA.

Two values of one scale and zero point are in the order of their integers: EQUAL, GREATER and
GREATER_EQUAL in int32. Against a number a value has 256 answers, which a TABLE holds bit for bit as
the float comparison gives them.

Before:
    %a = quant.dcast %x : tensor<4x!quant.uniform<i8:f32, 0.5:3>> to tensor<4xf32>
    %y = aten.gt.Scalar(%a, 1.0) : (tensor<4xf32>) -> tensor<4xi1>
After:
    %0 = stepwell.weight <"constant#de0eb661c19a"> "constant" : tensor<256xi8>
    %1 = quant.scast %x : tensor<4x!quant.uniform<i8:f32, 0.5:3>> to tensor<4xi8>
    %2 = tosa.table %1, %0 : (tensor<4xi8>, tensor<256xi8>) -> tensor<4xi8>
    %y = tosa.cast %2 : (tensor<4xi8>) -> tensor<4xi1>
"""

from __future__ import annotations

import operator
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, ClassVar

import torch
from xdsl.ir import Operation, SSAValue

from stepwell.dialects import aten
from stepwell.dialects.aten.op import SchemaOp
from stepwell.dialects.quant import DequantizeCast, StorageCast
from stepwell.dialects.quant.ops import dequantize
from stepwell.dialects.quant.types import Quantization, quantization
from stepwell.dialects.tosa import generated as t
from stepwell.ir.core import weight_key
from stepwell.ir.dtypes import i1, i8, i32
from stepwell.ir.program import Program
from stepwell.ir.rewriting import EXACT, Bound, Refusal, Rewrite, Rewriter
from stepwell.ir.types import is_static
from stepwell.translate.quantised.recognise import Activation, activation
from stepwell.translate.rewrites.tosa.integers.integers import rescale, stored, width
from stepwell.translate.rewrites.tosa.operators.building import Builder, shape_of

Compare = Callable[[Any, Any], Any]
COMPARISONS: dict[type[Operation], Compare] = {
    aten.EqTensor: operator.eq,
    aten.NeTensor: operator.ne,
    aten.GtTensor: operator.gt,
    aten.GeTensor: operator.ge,
    aten.LtTensor: operator.lt,
    aten.LeTensor: operator.le,
    aten.EqScalar: operator.eq,
    aten.NeScalar: operator.ne,
    aten.GtScalar: operator.gt,
    aten.GeScalar: operator.ge,
    aten.LtScalar: operator.lt,
    aten.LeScalar: operator.le,
}


@dataclass(frozen=True)
class Comparison:
    """A value compared with another, or with a number."""

    op: SchemaOp
    first: Activation
    second: Activation | float


@dataclass(frozen=True)
class LowerInt8Comparison(Rewrite[Comparison]):
    """`eq`, `ne`, `gt`, `ge`, `lt`, `le` of dequantised values."""

    name: ClassVar[str] = "lower-int8-comparison"
    anchors: ClassVar[tuple[type[Operation], ...]] = tuple(COMPARISONS)
    bound: ClassVar[Bound] = EXACT

    def match(self, op: SchemaOp, program: Program) -> Comparison | Refusal | None:
        """Bytes of one scale and zero point, or bytes and a number."""
        if not isinstance(op.operands[0].owner, DequantizeCast):
            return None
        bits = width(op.operands[0])
        first = activation(op.operands[0], bits)
        if isinstance(first, Refusal):
            return first
        if not all(is_static(value.type) for value in (*op.operands, *op.results)):
            return Refusal("the shape is symbolic")
        number = op.arg("other") if len(op.operands) == 1 else _number(op.operands[1], program)
        if isinstance(number, int | float):
            if bits != 8:
                return Refusal("a TABLE of 16-bit integers interpolates: it gives no truth values")
            if shape_of(op.operands[0]) != shape_of(op.results[0]):
                return Refusal("the number has a shape that the value takes on")
            return Comparison(op, first, float(number))
        if len(op.operands) == 1:
            return Refusal("what it is compared with is known only at run time")
        second = activation(op.operands[1], bits)
        if isinstance(second, Refusal):
            return second
        if _meaning(first.held) != _meaning(second.held):
            return Refusal("its operands have several scales, whose integers have no common order")
        return Comparison(op, first, second)

    def build(self, match: Comparison, rw: Rewriter) -> None:
        """A TABLE and a CAST, or one comparison in int32."""
        b, op = Builder(rw), match.op
        compare = COMPARISONS[type(op)]
        if isinstance(match.second, float):
            codes = torch.arange(-128, 128, dtype=torch.int16).to(torch.int8)
            reals = dequantize(codes, match.first.held)
            entries = b.constant(compare(reals, match.second).to(torch.int8))
            value = stored(match.first.value, b)
            looked = b.op(t.TableOp, [value, entries], shape_of(value), i8)
            rw.replace(op, [b.op(t.CastOp, [looked], shape_of(looked), i1)])
            return
        assert isinstance(match.second, Activation)
        pair = (match.first, match.second)
        first, second = (rescale(stored(x.value, b), [1.0], i32, 0, 0, b) for x in pair)
        if compare in (operator.lt, operator.le):
            first, second = second, first
        cls = {operator.eq: t.EqualOp, operator.ne: t.EqualOp}.get(
            compare, t.GreaterOp if compare in (operator.gt, operator.lt) else t.GreaterEqualOp
        )
        shape = shape_of(op.results[0])
        operands: list[SSAValue] = [b.of_rank(value, len(shape)) for value in (first, second)]
        y = b.op(cls, operands, shape, i1)
        rw.replace(op, [b.unary(t.LogicalNotOp, y) if compare is operator.ne else y])


def _meaning(held: Quantization) -> tuple[object, ...]:
    return held.scales, held.zero_points, held.bits, held.signed


def _number(value: SSAValue, program: Program) -> float | None:
    """The real value of a constant of one element, quantised or not."""
    maker = value.owner
    held = quantization(maker.input.type) if isinstance(maker, DequantizeCast) else None
    if isinstance(maker, DequantizeCast) and isinstance(maker.input.owner, StorageCast):
        key = weight_key(maker.input.owner.input)
    else:
        key = weight_key(value)
    if key is None:
        return None
    constant = program.weights.get(key)
    if constant.numel() != 1:
        return None
    return float((constant if held is None else dequantize(constant, held)).reshape(()))
