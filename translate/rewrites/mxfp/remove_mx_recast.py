"""A block-scaled tensor that was cast to values and back is what it was.

Casting the values of a cast again gives the same codes and scales, unless the largest value of a
block was rounded up past the largest float32. So the numbers must be known to stay below 2**127.

Before:
    %y = tosa.tanh %x : (tensor<1x2x32xf32>) -> tensor<1x2x32xf32>
    %0, %1 = tosa.cast_to_block_scaled %y {block_size = BLOCK_SIZE_32} : (tensor<1x2x32xf32>) -> (tensor<1x2x32xf8E4M3FN>, tensor<1x2x1xf8E8M0FNU>)
    %2 = tosa.cast_from_block_scaled %0, %1 {block_size = BLOCK_SIZE_32} : (tensor<1x2x32xf8E4M3FN>, tensor<1x2x1xf8E8M0FNU>) -> tensor<1x2x32xf32>
    %3, %4 = tosa.cast_to_block_scaled %2 {block_size = BLOCK_SIZE_32} : (tensor<1x2x32xf32>) -> (tensor<1x2x32xf8E4M3FN>, tensor<1x2x1xf8E8M0FNU>)
After:
    %y = tosa.tanh %x : (tensor<1x2x32xf32>) -> tensor<1x2x32xf32>
    %0, %1 = tosa.cast_to_block_scaled %y {block_size = BLOCK_SIZE_32} : (tensor<1x2x32xf32>) -> (tensor<1x2x32xf8E4M3FN>, tensor<1x2x1xf8E8M0FNU>)
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from xdsl.dialects.builtin import FloatAttr
from xdsl.ir import Operation, SSAValue

from stepwell.dialects.tosa import generated as t
from stepwell.ir.dtypes import f16, f32
from stepwell.ir.families import moves_one
from stepwell.ir.program import Program
from stepwell.ir.rewriting import Refusal, Rewrite, Rewriter
from stepwell.ir.types import element

LARGEST = 2.0**127

_WITHIN_ONE = (t.SigmoidOp, t.TanhOp, t.ErfOp, t.SinOp, t.CosOp)


@dataclass(frozen=True)
class Recast:
    """The second cast, and the first."""

    again: t.CastToBlockScaledOp
    first: t.CastToBlockScaledOp


@dataclass(frozen=True)
class RemoveMxRecast(Rewrite[Recast]):
    """`cast_to(cast_from(cast_to(x)))` is `cast_to(x)`."""

    name: ClassVar[str] = "remove-mx-recast"
    anchors: ClassVar[tuple[type[Operation], ...]] = (t.CastToBlockScaledOp,)

    def match(self, op: t.CastToBlockScaledOp, program: Program) -> Recast | Refusal | None:
        """Guards: values of one cast, in the same payload, as float32, of numbers below 2**127."""
        back = op.operands[0].owner
        if not isinstance(back, t.CastFromBlockScaledOp):
            return None
        first = back.operands[0].owner
        if not isinstance(first, t.CastToBlockScaledOp) or back.operands[1].owner is not first:
            return None
        if first.results[0].type != op.results[0].type:
            return Refusal("the two casts have different payloads")
        if element(back.results[0].type) != f32:
            return Refusal("bf16 does not hold every value of a block")
        if not stays_small(first.operands[0]):
            return Refusal("a block near the largest float32 would become inf on the way")
        return Recast(op, first)

    def build(self, match: Recast, rw: Rewriter) -> None:
        """The first cast's results."""
        rw.replace(match.again, list(match.first.results))


def stays_small(value: SSAValue) -> bool:
    """Whether no number of a tensor reaches 2**127 (a NaN or an inf may stand there)."""
    op = value.owner
    while isinstance(op, Operation) and moves_one(op):
        op = op.operands[0].owner
    if isinstance(op, t.CastOp):
        return element(op.operands[0].type) == f16
    if isinstance(op, t.ClampOp):
        ends = [op.min_val, op.max_val]
        return all(isinstance(e, FloatAttr) and abs(e.value.data) < LARGEST for e in ends)
    return isinstance(op, _WITHIN_ONE)
