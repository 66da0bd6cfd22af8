"""Borders between integers and floats in one graph: quantising and dequantising as operators.

What `LowerInt8` leaves in floats stands between casts; they are torch's to the bit.  A float is
multiplied by the reciprocal of the scale, CAST rounds it to the nearest integer, ties to even, and
saturates.  A zero point is added to the integer, not to the float before it is rounded, where an odd
one would turn ties around: CAST gives 16 bits, which hold the sum, and RESCALE by one saturates.

Before:
    %q = quant.qcast %x : tensor<4xf32> to tensor<4x!quant.uniform<i8:f32, 0.5:3>>
    %y = quant.dcast %q : tensor<4x!quant.uniform<i8:f32, 0.5:3>> to tensor<4xf32>
After:
    %0 = tosa.mul %x, dense<2.0>, dense<0> : (tensor<4xf32>, tensor<1xf32>, tensor<1xi8>) -> tensor<4xf32>
    %1 = tosa.cast %0 : (tensor<4xf32>) -> tensor<4xi16>
    %2 = tosa.rescale %1, dense<1073741824>, dense<30>, dense<0>, dense<3> {input_unsigned = false, output_unsigned = false, per_channel = false, rounding_mode = SINGLE_ROUND, scale32 = true} : (tensor<4xi16>, tensor<1xi32>, tensor<1xi8>, tensor<1xi16>, tensor<1xi8>) -> tensor<4xi8>
    %3 = tosa.cast %2 : (tensor<4xi8>) -> tensor<4xf32>
    %4 = tosa.sub %3, dense<3.0> : (tensor<4xf32>, tensor<1xf32>) -> tensor<4xf32>
    %y = tosa.mul %4, dense<0.5>, dense<0> : (tensor<4xf32>, tensor<1xf32>, tensor<1xi8>) -> tensor<4xf32>
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar

import torch
from xdsl.ir import Operation, SSAValue

from stepwell.dialects.quant import (
    DequantizeCast,
    Quantization,
    QuantizeCast,
    StorageCast,
    quantization,
)
from stepwell.dialects.quant.ops import block_values
from stepwell.dialects.tosa import generated as t
from stepwell.ir.dtypes import dtype_name, f32, i8, i16
from stepwell.ir.program import Program
from stepwell.ir.rewriting import EXACT, Bound, Refusal, Rewrite, Rewriter, Value
from stepwell.translate.rewrites.tosa.integers.integers import WIDTHS, rescale, stored
from stepwell.translate.rewrites.tosa.operators.building import Builder, shape_of
from stepwell.translate.rewrites.tosa.operators.lowering import unfit


@dataclass(frozen=True)
class Border:
    """A cast between reals and stored integers of 8 or 16 bits, and what the integers mean."""

    op: QuantizeCast | DequantizeCast
    held: Quantization


@dataclass(frozen=True)
class LowerQuantise(Rewrite[Border]):
    """`quant.qcast` to MUL and CAST, and a RESCALE that adds the zero point."""

    name: ClassVar[str] = "lower-quantise-to-tosa"
    anchors: ClassVar[tuple[type[Operation], ...]] = (QuantizeCast,)
    bound: ClassVar[Bound] = EXACT

    def match(self, op: QuantizeCast, program: Program) -> Border | Refusal | None:
        """Guards: `not_a_border`, and a zero point that RESCALE can add."""
        held = quantization(op.result.type)
        assert held is not None
        refusal = not_a_border(op.input, held)
        if refusal is not None:
            return refusal
        if not held.is_symmetric and held.bits != 8:
            return Refusal("RESCALE takes zero points for 8-bit integers only")
        if len(set(held.zero_points)) > 1:
            return Refusal("RESCALE takes one zero point, not one for each index of an axis")
        return Border(op, held)

    def bound_at(self, match: Border, value: Value) -> Bound:
        """Exact for numbers: which integer a NaN becomes, PyTorch leaves to the processor."""
        is_defined = not bool(value(match.op.input).isnan().any())
        return EXACT if is_defined else Bound(units=1 << match.held.bits, reason="NaN")

    def build(self, match: Border, rw: Rewriter) -> None:
        """Scale, round, add the zero point, clamp to a range that is not all of the type's."""
        b, held = Builder(rw), match.held
        zero, width = held.zero_points[0], WIDTHS[held.bits]
        scaled = multiplied(b.single(match.op.input), held, [1 / scale for scale in held.scales], b)
        value = b.op(t.CastOp, [scaled], shape_of(scaled), i16 if zero else width)
        if zero:
            value = rescale(value, [1.0], i8, 0, zero, b)
        if (held.low, held.high) != held.default_range:
            value = b.clamp(value, held.low, held.high)
        rw.replace(match.op, rw.insert(StorageCast(value, match.op.result.type)).results)


@dataclass(frozen=True)
class LowerDequantise(Rewrite[Border]):
    """`quant.dcast` to CAST, SUB of the zero points and MUL."""

    name: ClassVar[str] = "lower-dequantise-to-tosa"
    anchors: ClassVar[tuple[type[Operation], ...]] = (DequantizeCast,)
    bound: ClassVar[Bound] = EXACT

    def match(self, op: DequantizeCast, program: Program) -> Border | Refusal | None:
        """Guards: `not_a_border`."""
        held = quantization(op.input.type)
        assert held is not None
        return not_a_border(op.result, held) or Border(op, held)

    def build(self, match: Border, rw: Rewriter) -> None:
        """Sums of 17 bits are exact in f32; the product rounds once, as torch's."""
        b, held = Builder(rw), match.held
        integers = stored(match.op.input, b)
        value = b.op(t.CastOp, [integers], shape_of(integers), f32)
        if not held.is_symmetric:
            zeros = spread(held, held.zero_points, value, b)
            value = b.binary(t.SubOp, value, zeros)
        value = multiplied(value, held, held.scales, b)
        if held.expressed != f32:
            value = b.op(t.CastOp, [value], shape_of(value), held.expressed)
        rw.replace(match.op, [value])


def not_a_border(real: SSAValue, held: Quantization) -> Refusal | None:
    """Why TOSA has no such reals, or no such integers."""
    refusal = unfit(real, symbols=True)
    if refusal is not None:
        return refusal
    if not held.signed:
        return Refusal(f"TOSA has no {dtype_name(held.storage)}; quantise to signed integers")
    if held.bits not in WIDTHS:
        return Refusal(
            f"its activations are {dtype_name(held.storage)}; TOSA's layers take int8 or int16"
        )
    return None


def spread(
    held: Quantization, numbers: Sequence[float | int], like: SSAValue, b: Builder
) -> SSAValue:
    """A number for the tensor or for each block, in f32, of a shape that broadcasts to `like`."""
    rank = len(shape_of(like))
    if held.is_per_tensor:
        return b.number(numbers[0], rank, f32)
    return b.constant(block_values(held, torch.tensor(numbers, dtype=torch.float32), [1] * rank))


def multiplied(
    value: SSAValue, held: Quantization, factors: Sequence[float], b: Builder
) -> SSAValue:
    """The product with a factor for the tensor or for each block; with one alone, nothing."""
    if set(factors) == {1.0}:
        return value
    return b.binary(t.MulOp, value, spread(held, factors, value, b))
