"""Reshape bytes, not the int32 that a RESCALE makes of them.

Vela makes one operator on bytes of RESCALE, ADD and RESCALE; a RESHAPE between them leaves int32
behind, and an ADD of those.

Before:
    %m = stepwell.weight <"m"> "constant" : tensor<1xi32>
    %s = stepwell.weight <"s#ones"> "constant" : tensor<1xi8>
    %z = stepwell.weight <"z"> "constant" : tensor<1xi8>
    %o = stepwell.weight <"o#zeros"> "constant" : tensor<1xi32>
    %r = tosa.rescale %x, %m, %s, %z, %o {input_unsigned = false, output_unsigned = false, per_channel = false, rounding_mode = SINGLE_ROUND, scale32 = true} : (tensor<4x6xi8>, tensor<1xi32>, tensor<1xi8>, tensor<1xi8>, tensor<1xi32>) -> tensor<4x6xi32>
    %n = tosa.const_shape {values = dense<[2, 12]> : tensor<2xindex>} : () -> !tosa.shape<2>
    %y = tosa.reshape %r, %n : (tensor<4x6xi32>, !tosa.shape<2>) -> tensor<2x12xi32>
After:
    %m = stepwell.weight <"m"> "constant" : tensor<1xi32>
    %s = stepwell.weight <"s#ones"> "constant" : tensor<1xi8>
    %z = stepwell.weight <"z"> "constant" : tensor<1xi8>
    %o = stepwell.weight <"o#zeros"> "constant" : tensor<1xi32>
    %n = tosa.const_shape {values = dense<[2, 12]> : tensor<2xindex>} : () -> !tosa.shape<2>
    %r = tosa.reshape %x, %n : (tensor<4x6xi8>, !tosa.shape<2>) -> tensor<2x12xi8>
    %y = tosa.rescale %r, %m, %s, %z, %o {input_unsigned = false, output_unsigned = false, per_channel = false, rounding_mode = SINGLE_ROUND, scale32 = true} : (tensor<2x12xi8>, tensor<1xi32>, tensor<1xi8>, tensor<1xi8>, tensor<1xi32>) -> tensor<2x12xi32>
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from xdsl.ir import Operation

from stepwell.dialects.tosa import generated as t
from stepwell.ir.dtypes import i8, i32
from stepwell.ir.program import Program
from stepwell.ir.rewriting import Refusal, Rewrite, Rewriter
from stepwell.ir.types import element
from stepwell.translate.rewrites.tosa.operators.building import Builder, shape_of


@dataclass(frozen=True)
class WideReshape:
    """`op` reshapes what `rescale` made of bytes."""

    op: t.ReshapeOp
    rescale: t.RescaleOp


@dataclass(frozen=True)
class HoistReshapeOverRescale(Rewrite[WideReshape]):
    """`reshape(rescale(x))` to `rescale(reshape(x))` for bytes x."""

    name: ClassVar[str] = "hoist-reshape-over-rescale"
    anchors: ClassVar[tuple[type[Operation], ...]] = (t.ReshapeOp,)

    def match(self, op: t.ReshapeOp, program: Program) -> WideReshape | Refusal | None:
        """One factor for all elements: those of the last axis would lie elsewhere."""
        rescale = op.input1.owner
        if not isinstance(rescale, t.RescaleOp):
            return None
        if (element(rescale.input.type), element(rescale.output.type)) != (i8, i32):
            return None
        if rescale.per_channel.value.data:
            return Refusal("its last axis has a factor an element")
        return WideReshape(op, rescale)

    def build(self, match: WideReshape, rw: Rewriter) -> None:
        """Reshape, then rescale."""
        op, rescale, b = match.op, match.rescale, Builder(rw)
        shape = shape_of(op.output)
        narrow = b.op(t.ReshapeOp, [rescale.input, op.shape], shape, i8)
        operands = [narrow, *rescale.operands[1:]]
        rw.replace(op, [b.op(t.RescaleOp, operands, shape, i32, **rescale.properties)])
