"""Canonicalization: remove the casts of a block-scaled tensor to values and back.

Casting the values of a cast again gives the same codes and scales, unless the largest value of a
block was rounded up past the largest float32. The numbers must therefore be known to stay below
2**127.

rule remove-mx-recast
    `cast_to(cast_from(cast_to(x)))` is `cast_to(x)`.
Before:
    %c, %s = tosa.cast_to_block_scaled(%x, …) : (…) -> ($C, $S)
    %b = tosa.cast_from_block_scaled(%c, %s, …) : (…) -> $B
    %d, %e = tosa.cast_to_block_scaled(%b, …) : (…) -> ($D, $E)
After:
    %e = itself(%s)
    %d = itself(%c)
where are_of_one_type(%c, %d) else "the two casts have different payloads"
where holds_singles(%b) else "bf16 does not hold every value of a block"
where stays_small(%x) else "a block near the largest float32 would become inf on the way"
for %x = tosa.tanh(%z)
for $block_size = "BLOCK_SIZE_32", %z = "tensor<1x2x32xf32>", $B = "tensor<1x2x32xf32>"
for $C = "tensor<1x2x32xf8E4M3FN>", $D = "tensor<1x2x32xf8E4M3FN>"
for $S = "tensor<1x2x1xf8E8M0FNU>", $E = "tensor<1x2x1xf8E8M0FNU>"
not for $D = "tensor<1x2x32xf8E5M2>"
not for %x = tosa.sin(%z); %z = weight : tensor<1 x 2 x 32 x f32>; %z = "z#tiny", $B = "tensor<1x2x32xbf16>"
not for %x = weight : tensor<1 x 2 x 32 x f32>; %x = "x#largest",
    $C = "tensor<1x2x32xf4E2M1FN>", $D = "tensor<1x2x32xf4E2M1FN>"
"""

from __future__ import annotations

from xdsl.dialects.builtin import FloatAttr
from xdsl.ir import Operation, SSAValue

from stepwell.dialects.tosa import generated as t
from stepwell.ir.declared.families import moves_one
from stepwell.ir.dtypes import f16, f32
from stepwell.ir.types import element
from stepwell.translate.rules import read_rules

LARGEST = 2.0**127

_WITHIN_ONE = (t.SigmoidOp, t.TanhOp, t.ErfOp, t.SinOp, t.CosOp)


def holds_singles(value: SSAValue) -> bool:
    """Whether the value is a tensor of f32."""
    return element(value.type) == f32


def stays_small(value: SSAValue) -> bool:
    """Whether every finite number of a tensor is below 2**127."""
    op = value.owner
    while isinstance(op, Operation) and moves_one(op):
        op = op.operands[0].owner
    if isinstance(op, t.CastOp):
        return element(op.operands[0].type) == f16
    if isinstance(op, t.ClampOp):
        ends = [op.min_val, op.max_val]
        return all(isinstance(e, FloatAttr) and abs(e.value.data) < LARGEST for e in ends)
    return isinstance(op, _WITHIN_ONE)


(RemoveMxRecast,) = RULES = read_rules(__doc__, globals())
