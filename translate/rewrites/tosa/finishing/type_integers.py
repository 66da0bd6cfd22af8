"""Integers that become floats are quantised values already: of scale 1, without a zero point.

A conversion from 8 or 16 bits is a dequantisation of these very integers; what reads it lowers as
after any other. The two values that a truth can become are quantised ahead of time.

Before:
    %y = aten.to.dtype(%x, f32) : (tensor<4xi8>) -> tensor<4xf32>
    %f = aten.to.dtype(%t, f32) : (tensor<4xi1>) -> tensor<4xf32>
    %q = quant.qcast %f : tensor<4xf32> to tensor<4x!quant.uniform<i8:f32, 0.5:3>>
    func.return %y, %q : tensor<4xf32>, tensor<4x!quant.uniform<i8:f32, 0.5:3>>
After:
    %0 = quant.scast %x : tensor<4xi8> to tensor<4x!quant.uniform<i8:f32, 1.0>>
    %y = quant.dcast %0 : tensor<4x!quant.uniform<i8:f32, 1.0>> to tensor<4xf32>
    %1 = tosa.select %t, dense<5>, dense<3> : (tensor<4xi1>, tensor<1xi8>, tensor<1xi8>) -> tensor<4xi8>
    %q = quant.scast %1 : tensor<4xi8> to tensor<4x!quant.uniform<i8:f32, 0.5:3>>
    func.return %y, %q : tensor<4xf32>, tensor<4x!quant.uniform<i8:f32, 0.5:3>>
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import torch
from xdsl.ir import Operation, SSAValue

from stepwell.dialects.aten.op import SchemaOp
from stepwell.dialects.aten.registry import op_class
from stepwell.dialects.quant import DequantizeCast, QuantizeCast, StorageCast
from stepwell.dialects.quant.ops import quantize
from stepwell.dialects.quant.types import Quantization, UniformQuantizedType, quantization
from stepwell.ir.dtypes import f32, i1, i8, i16
from stepwell.ir.program import Program
from stepwell.ir.rewriting import EXACT, Bound, Refusal, Rewrite, Rewriter
from stepwell.ir.types import element, is_static, with_element
from stepwell.translate.lowerings.tosa.casts import CASTS
from stepwell.translate.rewrites.tosa.integers.integers import WIDTHS
from stepwell.translate.rewrites.tosa.operators.building import Builder, shape_of

ANCHORS = tuple(map(op_class, CASTS))


@dataclass(frozen=True)
class Converted:
    """A conversion of short integers to f32."""

    op: SchemaOp
    bits: int


@dataclass(frozen=True)
class TypeIntegers(Rewrite[Converted]):
    """`to.dtype` of int8 or int16 → dq of scale 1."""

    name: ClassVar[str] = "type-integers"
    anchors: ClassVar[tuple[type[Operation], ...]] = ANCHORS
    bound: ClassVar[Bound] = EXACT

    def match(self, op: SchemaOp, program: Program) -> Converted | Refusal | None:
        """From an integer type of activations to f32."""
        given, made = element(op.operands[0].type), element(op.results[0].type)
        bits = next((bits for bits, held in WIDTHS.items() if held == given), None)
        return Converted(op, bits) if bits is not None and made == f32 else None

    def build(self, match: Converted, rw: Rewriter) -> None:
        """Name the type of the integers, and dequantise."""
        value, reach = match.op.operands[0], 1 << (match.bits - 1)
        units = Quantization(match.bits, True, -reach, reach - 1, f32, (1.0,), (0,))
        scale = UniformQuantizedType(units)
        typed = rw.insert(StorageCast(value, with_element(value.type, scale))).results[0]
        rw.replace(match.op, rw.insert(DequantizeCast(typed, match.op.results[0].type)).results)


@dataclass(frozen=True)
class Truths:
    """A quantisation of truth values that became floats."""

    cast: QuantizeCast
    truths: SSAValue
    held: Quantization


@dataclass(frozen=True)
class SelectTruths(Rewrite[Truths]):
    """q(to_float(truth)) → SELECT of two integers."""

    name: ClassVar[str] = "select-truths"
    anchors: ClassVar[tuple[type[Operation], ...]] = (QuantizeCast,)
    bound: ClassVar[Bound] = EXACT

    def match(self, op: QuantizeCast, program: Program) -> Truths | Refusal | None:
        """Signed integers of 8 or 16 bits, known sizes."""
        maker, held = op.input.owner, quantization(op.result.type)
        assert held is not None
        if not isinstance(maker, ANCHORS) or element(maker.operands[0].type) != i1:
            return None
        if not is_static(op.result.type):
            return Refusal("the shape is symbolic")
        if not held.is_per_tensor or not held.signed or held.bits not in WIDTHS:
            return Refusal("it is quantised to neither int8 nor int16 as a whole")
        return Truths(op, maker.operands[0], held)

    def build(self, match: Truths, rw: Rewriter) -> None:
        """What 1 and 0 are quantised to."""
        b, shape = Builder(rw), shape_of(match.truths)
        codes = quantize(torch.tensor([1.0, 0.0]), match.held).tolist()
        width = i8 if match.held.bits == 8 else i16
        sides = [b.number(code, len(shape), width) for code in codes]
        y = b.select(match.truths, *sides)
        rw.replace(match.cast, rw.insert(StorageCast(y, match.cast.result.type)).results)
