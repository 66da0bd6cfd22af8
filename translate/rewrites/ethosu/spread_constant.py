"""A constant of bytes that an operator broadcasts stands in flash as often as it is needed.

By Vela's estimate a broadcast constant is fetched again and again: scale and shift of a group norm of
90 pixels in eight channels took 92 160 of a net's 102 206 cycles on a U55-128. As large as what it
is broadcast to it is fetched from end to end (11 576 cycles), for that many bytes of flash.

Before:
    %m = stepwell.weight <"m"> "constant" : tensor<1xi32>
    %s = stepwell.weight <"s#ones"> "constant" : tensor<1xi8>
    %z = stepwell.weight <"z"> "constant" : tensor<1xi8>
    %o = stepwell.weight <"o#zeros"> "constant" : tensor<1xi32>
    %c = stepwell.weight <"c"> "constant" : tensor<1x1x4xi8>
    %r = tosa.rescale %c, %m, %s, %z, %o {input_unsigned = false, output_unsigned = false, per_channel = false, rounding_mode = SINGLE_ROUND, scale32 = true} : (tensor<1x1x4xi8>, tensor<1xi32>, tensor<1xi8>, tensor<1xi8>, tensor<1xi32>) -> tensor<1x1x4xi32>
    %y = tosa.add %x, %r : (tensor<1x2x4xi32>, tensor<1x1x4xi32>) -> tensor<1x2x4xi32>
After:
    %m = stepwell.weight <"m"> "constant" : tensor<1xi32>
    %s = stepwell.weight <"s#ones"> "constant" : tensor<1xi8>
    %z = stepwell.weight <"z"> "constant" : tensor<1xi8>
    %o = stepwell.weight <"o#zeros"> "constant" : tensor<1xi32>
    %1 = tosa.rescale dense<[[[2, 0, 1, 0], [2, 0, 1, 0]]]>, %m, %s, %z, %o {input_unsigned = false, output_unsigned = false, per_channel = false, rounding_mode = SINGLE_ROUND, scale32 = true} : (tensor<1x2x4xi8>, tensor<1xi32>, tensor<1xi8>, tensor<1xi8>, tensor<1xi32>) -> tensor<1x2x4xi32>
    %y = tosa.add %x, %1 : (tensor<1x2x4xi32>, tensor<1x2x4xi32>) -> tensor<1x2x4xi32>
"""

from __future__ import annotations

from collections.abc import Sequence
from math import prod
from typing import ClassVar

import torch
from xdsl.ir import Operation

from stepwell.dialects.tosa import generated as t
from stepwell.dialects.tosa.base import TosaOp
from stepwell.ir.core import weight_key
from stepwell.ir.dtypes import i8, i32
from stepwell.ir.program import Program
from stepwell.ir.records import dataclass
from stepwell.ir.rewriting.rewrite import Refusal, Rewrite, Rewriter
from stepwell.ir.types import element, is_static
from stepwell.ir.weights import recipe
from stepwell.translate.rewrites.tosa.operators.building import Builder, shape_of

MOST = 16 * 1024
"""Bytes of flash that a constant may take."""


@dataclass(frozen=True)
class Broadcast:
    """Operand `place` of `op` is a RESCALE of weight `key`, which is broadcast."""

    op: TosaOp
    place: int
    key: str


@dataclass(frozen=True)
class SpreadConstant(Rewrite[Broadcast]):
    """`x · rescale(c)` with `c` as large as `x`."""

    name: ClassVar[str] = "spread-constant"
    anchors: ClassVar[tuple[type[Operation], ...]] = (t.AddOp, t.SubOp, t.MulOp)

    def match(self, op: TosaOp, program: Program) -> Broadcast | Refusal | None:
        """More than one byte, before whose last axis the result has others."""
        for place, operand in enumerate(op.operands[:2]):
            rescale = operand.owner
            if not isinstance(rescale, t.RescaleOp) or not is_static(op.results[0].type):
                continue
            key = weight_key(rescale.operands[0])
            if key is None or element(rescale.operands[0].type) != i8:
                continue
            own, whole = shape_of(operand), shape_of(op.results[0])
            if len(own) != len(whole) or prod(own) == 1 or own == whole:
                continue
            if prod(whole) > MOST:
                return Refusal(f"spread it would take {prod(whole)} bytes of flash")
            return Broadcast(op, place, key)
        return None

    def build(self, match: Broadcast, rw: Rewriter) -> None:
        """The same RESCALE of more of the same bytes."""
        op, b = match.op, Builder(rw)
        rescale = op.operands[match.place].owner
        assert isinstance(rescale, t.RescaleOp)
        shape = list(shape_of(op.results[0]))
        spread = b.weight(rw.weights.derive("tosa_spread", [match.key], shape=shape))
        operands = [spread, *rescale.operands[1:]]
        replaced = list(op.operands)
        replaced[match.place] = b.op(t.RescaleOp, operands, shape, i32, **rescale.properties)
        rw.replace(op, [b.op(type(op), replaced, shape, i32)])


@recipe("tosa_spread")
def tosa_spread(weight: torch.Tensor, shape: Sequence[int]) -> torch.Tensor:
    """Broadcast to a shape of the same rank."""
    return weight.expand(*shape).contiguous()
