"""Moves stored integers instead of the reals they stand for.

With `linear → permute → relu`, the permutation then works on the linear's int8 result, whatever
becomes of the relu: nothing has to be folded before it is known to lower.

Before:
    %x = quant.dcast %q : tensor<2x4x!quant.uniform<i8:f32, 0.5>> to tensor<2x4xf32>
    %v = aten.view.default(%x, [8]) : (tensor<2x4xf32>) -> tensor<8xf32>
After:
    %r = quant.scast %q : tensor<2x4x!quant.uniform<i8:f32, 0.5>> to tensor<2x4xi8>
    %v = aten.view.default(%r, [8]) : (tensor<2x4xi8>) -> tensor<8xi8>
    %t = quant.scast %v : tensor<8xi8> to tensor<8x!quant.uniform<i8:f32, 0.5>>
    %x = quant.dcast %t : tensor<8x!quant.uniform<i8:f32, 0.5>> to tensor<8xf32>
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import ClassVar

from xdsl.ir import Operation

from stepwell.dialects.aten.op import SchemaOp
from stepwell.dialects.quant import DequantizeCast, StorageCast, UniformQuantizedType
from stepwell.dialects.quant.ops import quantized_type
from stepwell.ir.program import Program
from stepwell.ir.rewriting.rewrite import Refusal, Rewrite, Rewriter
from stepwell.ir.types import element
from stepwell.translate.rewrites.quant.hoist_quantize import on_integers, raw_of
from stepwell.translate.rewrites.quant.movement import (
    MOVEMENT,
    moved,
    only_moves,
    permutation,
)


@dataclass(frozen=True)
class Sink:
    """A movement of dequantised values that all have one type, and the type afterwards."""

    movement: SchemaOp
    given: UniformQuantizedType
    made: UniformQuantizedType


@dataclass(frozen=True)
class SinkDequantize(Rewrite[Sink]):
    """move(dq(x)) → dq(move(x))."""

    name: ClassVar[str] = "sink-dequantize"
    anchors: ClassVar[tuple[type[Operation], ...]] = MOVEMENT

    def match(self, op: SchemaOp, program: Program) -> Sink | Refusal | None:
        """All operands are dequantised, with the same parameters; per axis only if permuted."""
        if not only_moves(op):
            return None
        quantized_types: set[UniformQuantizedType] = set()
        for _, value in moved(op):
            maker = value.owner
            if not isinstance(maker, DequantizeCast):
                return None
            type_ = element(maker.input.type)
            assert isinstance(type_, UniformQuantizedType)
            quantized_types.add(type_)
        if len(quantized_types) != 1:
            return None
        (given,) = quantized_types
        if given.data.is_per_tensor:
            return Sink(op, given, given)
        order = permutation(op)
        if order is None:
            return Refusal("scales along an axis follow a permutation only")
        blocks = tuple((order.index(axis), block) for axis, block in given.data.blocks)
        return Sink(op, given, UniformQuantizedType(replace(given.data, blocks=blocks)))

    def build(self, match: Sink, rw: Rewriter) -> None:
        """Move the stored integers, then dequantise each result."""
        operands = list(match.movement.operands)
        for index, value in moved(match.movement):
            maker = value.owner
            assert isinstance(maker, DequantizeCast)
            operands[index] = rw.insert(raw_of(maker.input, match.given)).results[0]
        shifted = rw.insert(on_integers(match.movement, operands, match.made))
        reals = [
            rw.insert(
                DequantizeCast(
                    rw.insert(StorageCast(result, quantized_type(result.type, match.made))).results[
                        0
                    ],
                    old.type,
                )
            ).results[0]
            for old, result in zip(match.movement.results, shifted.results, strict=True)
        ]
        rw.replace(match.movement, reals)
