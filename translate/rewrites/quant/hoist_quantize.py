"""Quantises what a movement op takes instead of what it gives, which is the same numbers.

`cat([relu(conv1), conv2])` is quantised once, after the concatenation; hoisted, each convolution
has its own quantised result and lowers, and the concatenation moves bytes.

Before:
    %v = aten.view.default(%x, [8]) : (tensor<2x4xf32>) -> tensor<8xf32>
    %q = quant.qcast %v : tensor<8xf32> to tensor<8x!quant.uniform<i8:f32, 0.5>>
After:
    %q = quant.qcast %x : tensor<2x4xf32> to tensor<2x4x!quant.uniform<i8:f32, 0.5>>
    %r = quant.scast %q : tensor<2x4x!quant.uniform<i8:f32, 0.5>> to tensor<2x4xi8>
    %v = aten.view.default(%r, [8]) : (tensor<2x4xi8>) -> tensor<8xi8>
    %t = quant.scast %v : tensor<8xi8> to tensor<8x!quant.uniform<i8:f32, 0.5>>
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar, cast

from xdsl.ir import Operation, SSAValue

from stepwell.dialects.aten.op import SchemaOp
from stepwell.dialects.quant import QuantizeCast, StorageCast, UniformQuantizedType
from stepwell.dialects.quant.ops import quantized_type
from stepwell.dialects.quant.types import storage_element
from stepwell.ir.program import Program
from stepwell.ir.rewriting.rewrite import Refusal, Rewrite, Rewriter
from stepwell.ir.rewriting.rewriter import remade
from stepwell.ir.types import element, with_element
from stepwell.translate.rewrites.quant.movement import moved, only_moves


@dataclass(frozen=True)
class Hoist:
    """A quantisation of one result of a movement op."""

    cast: QuantizeCast
    movement: SchemaOp
    result: int
    type: UniformQuantizedType


@dataclass(frozen=True)
class HoistQuantize(Rewrite[Hoist]):
    """q(move(x)) → move(q(x))."""

    name: ClassVar[str] = "hoist-quantize"
    anchors: ClassVar[tuple[type[Operation], ...]] = (QuantizeCast,)

    def match(self, op: QuantizeCast, program: Program) -> Hoist | Refusal | None:
        """Per tensor only, and only where nothing else reads the movement's results as reals."""
        movement = op.input.owner
        if not only_moves(movement):
            return None
        result_element = element(op.result.type)
        assert isinstance(result_element, UniformQuantizedType)
        if not result_element.data.is_per_tensor:
            return Refusal("scales along an axis do not follow a movement of the axis")
        if not all(is_only_quantized(result) for result in movement.results):
            return None
        return Hoist(op, movement, [*movement.results].index(cast(Any, op.input)), result_element)

    def build(self, match: Hoist, rw: Rewriter) -> None:
        """Quantise every operand, move the stored integers, name the result's type again."""
        operands = list(match.movement.operands)
        for index, value in moved(match.movement):
            typed = rw.insert(QuantizeCast(value, quantized_type(value.type, match.type)))
            operands[index] = rw.insert(raw_of(typed.results[0], match.type)).results[0]
        shifted = rw.insert(on_integers(match.movement, operands, match.type))
        result = shifted.results[match.result]
        made = rw.insert(StorageCast(result, match.cast.result.type))
        rw.replace(match.cast, made.results)


def is_only_quantized(value: SSAValue) -> bool:
    """Whether every use of a value quantises it."""
    return all(isinstance(use.operation, QuantizeCast) for use in value.uses)


def raw_of(value: SSAValue, uniform_quantized_type: UniformQuantizedType) -> StorageCast:
    """The cast from quantised values to their stored integers."""
    return StorageCast(
        value, with_element(value.type, storage_element(uniform_quantized_type.data))
    )


def on_integers(
    op: SchemaOp, operands: list[SSAValue], uniform_quantized_type: UniformQuantizedType
) -> SchemaOp:
    """The same movement, of stored integers."""
    stored = storage_element(uniform_quantized_type.data)
    return remade(op, operands, [with_element(result.type, stored) for result in op.results])
