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

rule permute-to-view
    Bytes that lie as they lay are viewed, whatever they mean.
Before:
    %y = $op of PERMUTATIONS(%x, …) : (tensor<$*S x i8>) -> tensor<$*R x i8>
After:
    %y = aten.view.default(%x, listed($R))
with $order = order_of_axes(%y)
where is_known(%y)
where lies_the_same($S, $order)
for $op = "aten.transpose.int", $dim0 = 1, $dim1 = 0, $S = [1, 2, 3], $R = [2, 1, 3]
not for $S = [2, 2, 3], $R = [2, 2, 3]
"""

from __future__ import annotations

from typing import cast

from xdsl.ir import SSAValue

from stepwell.dialects.aten.op import SchemaOp
from stepwell.dialects.aten.registry import op_class
from stepwell.dialects.quant.types import UniformQuantizedType
from stepwell.ir.axes import maps
from stepwell.ir.declared.families import ops_of
from stepwell.ir.rewriting.rewrite import Refusal
from stepwell.ir.types import is_static
from stepwell.translate.quantized.recognize import not_int8
from stepwell.translate.rewrites.cmsis.layout import merge_movement, reshape
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


def is_known(value: SSAValue) -> bool:
    """Whether all sizes of a value are static."""
    return is_static(value.type)


def order_of_axes(value: SSAValue) -> tuple[int, ...] | None:
    """Return the permutation that produces a value, of any number of axes."""
    return permutation(cast("SchemaOp", value.owner))


LowerPermute, PermuteToView = RULES = read_rules(
    __doc__, vars(maps) | vars(merge_movement) | vars(reshape) | globals()
)
