"""Legalization: permutations of stored integers become CMSIS-NN's transposes.

rule lower-permute
    Integers whose type is known, through whatever moves them, are permuted by `cmsis.transpose`.
Before:
    %y = $op of PERMUTATIONS(%r, …) : (…) -> tensor<$*R x $E>
After:
    %q = quant.scast(%r) : … -> tensor<*sizes_of(%r) x $T>
    %t = transposed(%q, $order)
    %y = quant.scast(%t) : … -> tensor<$*R x $E>
with $T = type_of_bytes(%r)
with $order = order_of(%y)
for %r = quant.scast(%x) : (…) -> tensor<$*S x $E>
for %s = quant.scast(%y) : (tensor<$*R x $E>) -> tensor<$*R x $Q>
for %x = "tensor<2x3x!quant.uniform<i8:f32, 0.5:3>>", $S = [2, 3], $R = [3, 2], $E = i8
for $Q = "!quant.uniform<i8:f32, 0.5:3>", $op = "aten.t.default"
"""

from __future__ import annotations

from typing import cast

from xdsl.ir import SSAValue

from stepwell.dialects.aten.op import SchemaOp
from stepwell.dialects.aten.registry import op_class
from stepwell.dialects.quant.types import UniformQuantizedType
from stepwell.ir.declared.families import ops_of
from stepwell.ir.rewriting.rewrite import Refusal
from stepwell.translate.quantized.recognize import not_int8
from stepwell.translate.rewrites.cmsis.layout import reshape
from stepwell.translate.rewrites.quant.movement import permutation
from stepwell.translate.rules import read_rules

PERMUTATIONS = tuple(map(op_class, ops_of("permutation", "aten")))
MOST_AXES = 4


def type_of_bytes(value: SSAValue) -> UniformQuantizedType | None:
    """Return the quantized type of the values that stored bytes represent."""
    held = reshape.stored_type(value)
    return None if held is None or not_int8(held.data) else held


def order_of(value: SSAValue) -> tuple[int, ...] | Refusal | None:
    """Return the permutation that produces a value."""
    order = permutation(cast("SchemaOp", value.owner))
    if order is not None and len(order) > MOST_AXES:
        return Refusal(
            f"the op permutes {len(order)} dimensions; the kernel takes {MOST_AXES} at most"
        )
    return order


(LowerPermute,) = RULES = read_rules(__doc__, vars(reshape) | globals())
