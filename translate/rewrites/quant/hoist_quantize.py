"""Hoisting: quantize the operands of a data movement op instead of its result: the same numbers.

`cat([relu(conv1), conv2])` is quantized once, after the concatenation. With the quantization
hoisted, each convolution has its own quantized result and is lowered, and the concatenation moves
bytes.

rule hoist-quantize
    Every operand is quantized, and the stored integers are moved.
Before:
    %m = $move of MOVEMENT(%x, …)
    %y = quant.qcast(%m) : (…) -> tensor<$*S x $Q>
After:
    %r = moved_as_integers(%m, $Q)
    %y = quant.scast(%r)
where only_moves_its_operands(%m)
where is_for_the_whole($Q) else "scales along an axis do not follow a movement of the axis"
where are_only_quantized(%m) for cost
for $move = "aten.view.default", %x = "tensor<2x4xf32>", $size = [8], $S = [8]
for $Q = "!quant.uniform<i8:f32, 0.5>"
not for $Q = "!quant.uniform<i8:f32:0, {0.5, 0.25, 0.5, 0.25, 1.0, 2.0, 0.5, 0.25}>"
not for $move = "aten.dropout.default", $p = 0.5, $train = true, $S = [2, 4]
"""

from __future__ import annotations

from typing import Any, cast

from xdsl.ir import SSAValue

from stepwell.dialects.aten.op import SchemaOp
from stepwell.dialects.quant import QuantizeCast, StorageCast, UniformQuantizedType
from stepwell.dialects.quant.ops import quantized_type
from stepwell.dialects.quant.types import storage_element
from stepwell.ir.rewriting.rewrite import Rewriter
from stepwell.ir.rewriting.rewriter import remade
from stepwell.ir.types import with_element
from stepwell.translate.rewrites.quant import movement
from stepwell.translate.rewrites.quant.movement import moved, only_moves
from stepwell.translate.rules import read_rules


def only_moves_its_operands(value: SSAValue) -> bool:
    """Whether the op that computes a value only moves data."""
    return only_moves(value.owner)


def is_for_the_whole(of: UniformQuantizedType) -> bool:
    """Whether the tensor is quantized with one scale."""
    return of.data.is_per_tensor


def are_only_quantized(value: SSAValue) -> bool:
    """Whether every use of the results of the op that computes a value quantizes them."""
    results = cast("SchemaOp", value.owner).results
    return all(isinstance(use.operation, QuantizeCast) for r in results for use in r.uses)


def moved_as_integers(rw: Rewriter, value: SSAValue, of: UniformQuantizedType) -> SSAValue:
    """Replace a result by the same data movement of its quantized operands' stored integers."""
    op = cast("SchemaOp", value.owner)
    operands = list(op.operands)
    for index, operand in moved(op):
        typed = rw.insert(QuantizeCast(operand, quantized_type(operand.type, of)))
        operands[index] = rw.insert(raw_of(typed.results[0], of)).results[0]
    return rw.insert(on_integers(op, operands, of)).results[cast(Any, value).index]


def raw_of(value: SSAValue, of: UniformQuantizedType) -> StorageCast:
    """Build the cast from quantized values to their stored integers."""
    return StorageCast(value, with_element(value.type, storage_element(of.data)))


def on_integers(op: SchemaOp, operands: list[SSAValue], of: UniformQuantizedType) -> SchemaOp:
    """Build the same data movement on integers."""
    stored = storage_element(of.data)
    return remade(op, operands, [with_element(result.type, stored) for result in op.results])


(HoistQuantize,) = RULES = read_rules(__doc__, vars(movement) | globals())
