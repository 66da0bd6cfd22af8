"""Sinking: move stored integers instead of the reals that they represent.

With `linear → permute → relu`, the permutation then works on the linear's int8 result, whether or
not the relu is lowered. Nothing has to be fused before it is known to be lowered.

rule sink-dequantize
    move(dq(x)) → dq(move(x)), where all that is moved has one scale.
Before:
    %x = quant.dcast(%q) : (tensor<$*S x $Q>) -> tensor<$*S x $E>
    %*y = $move of MOVEMENT(%x, …)
After:
    %*y = dequantized_behind(%y, $Q)
where only_moves_its_operands(%y)
where are_dequantized_alike(%y, $Q)
where is_for_the_whole($Q)
for $move = "aten.view.default", $size = [8], $S = [2, 4], $E = f32
for $Q = "!quant.uniform<i8:f32, 0.5>"
not for $move = "aten.dropout.default", $p = 0.5, $train = true
not for $move = "aten.view_as.default", %other = "tensor<8xf32>"
not for $Q = "!quant.uniform<i8:f32:0, {0.5, 0.25}>"

rule sink-dequantize-along-axis
    Scales along an axis follow a permutation of it.
Before:
    %x = quant.dcast(%q) : (tensor<$*S x $Q>) -> tensor<$*S x $E>
    %*y = $move of MOVEMENT(%x, …)
After:
    %*y = dequantized_behind(%y, permuted($Q, $order))
with $order = order_of(%y, $Q)
for $move = "aten.t.default", $S = [2, 3], $E = f32
for $Q = "!quant.uniform<i8:f32:0, {0.5, 0.25}>"
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import cast

from xdsl.ir import SSAValue

from stepwell.dialects.aten.op import SchemaOp
from stepwell.dialects.quant import DequantizeCast, StorageCast, UniformQuantizedType
from stepwell.dialects.quant.ops import quantized_type
from stepwell.ir.rewriting.rewrite import Refusal, Rewriter
from stepwell.ir.types import element
from stepwell.translate.rewrites.quant import hoist_quantize, movement
from stepwell.translate.rewrites.quant.hoist_quantize import on_integers, raw_of
from stepwell.translate.rewrites.quant.movement import moved, permutation
from stepwell.translate.rules import read_rules


def are_dequantized_alike(value: SSAValue, of: UniformQuantizedType) -> bool:
    """Whether all moved operands of an op are dequantized from one type."""
    makers = [operand.owner for _, operand in moved(cast("SchemaOp", value.owner))]
    return all(isinstance(m, DequantizeCast) and element(m.input.type) == of for m in makers)


def order_of(value: SSAValue, of: UniformQuantizedType) -> tuple[int, ...] | Refusal | None:
    """Return the permutation that a data movement op applies to scales along an axis."""
    if of.data.is_per_tensor:
        return None
    order = permutation(cast("SchemaOp", value.owner))
    return (
        Refusal("scales along an axis can be moved by a permutation only")
        if order is None
        else order
    )


def permuted(of: UniformQuantizedType, order: Sequence[int]) -> UniformQuantizedType:
    """Return the type with its axes in another order."""
    blocks = tuple((order.index(axis), block) for axis, block in of.data.blocks)
    return UniformQuantizedType(replace(of.data, blocks=blocks))


def dequantized_behind(
    rw: Rewriter, value: SSAValue, of: UniformQuantizedType
) -> Sequence[SSAValue]:
    """Build the data movement on stored integers, and dequantize each result."""
    op = cast("SchemaOp", value.owner)
    operands = list(op.operands)
    for index, operand in moved(op):
        stored = cast("DequantizeCast", operand.owner).input
        quantized = cast("UniformQuantizedType", element(stored.type))
        operands[index] = rw.insert(raw_of(stored, quantized)).results[0]
    reals: list[SSAValue] = []
    for old, new in zip(op.results, rw.insert(on_integers(op, operands, of)).results, strict=True):
        typed = rw.insert(StorageCast(new, quantized_type(new.type, of))).results[0]
        reals += rw.insert(DequantizeCast(typed, old.type)).results
    return reals


SinkDequantize, SinkDequantizeAlongAxis = RULES = read_rules(
    __doc__, vars(movement) | vars(hoist_quantize) | globals()
)
