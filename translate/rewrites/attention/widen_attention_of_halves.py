"""Compute attention of halves in single precision.

torch does so on a CPU, and so does the stock flow: scores of halves are rounded where they are
large, and the exponential makes of each rounding a factor. With queries and keys of size 8, a
kernel that adds up in halves is off by a tenth of the largest output. A scale that is a power of two
stays in halves, exact, for the layer that makes the queries to take in.

Before:
    %o = aten.scaled_dot_product_attention.default(%q, %k, %v, scale=0.25) : (tensor<1x2x4x8xf16>, tensor<1x2x4x8xf16>, tensor<1x2x4x8xf16>) -> tensor<1x2x4x8xf16>
After:
    %s = aten.mul.Scalar(%q, 0.25) : (tensor<1x2x4x8xf16>) -> tensor<1x2x4x8xf16>
    %0 = aten._to_copy.default(%s, dtype=f32) : (tensor<1x2x4x8xf16>) -> tensor<1x2x4x8xf32>
    %1 = aten._to_copy.default(%k, dtype=f32) : (tensor<1x2x4x8xf16>) -> tensor<1x2x4x8xf32>
    %2 = aten._to_copy.default(%v, dtype=f32) : (tensor<1x2x4x8xf16>) -> tensor<1x2x4x8xf32>
    %3 = aten.scaled_dot_product_attention.default(%0, %1, %2, scale=1.0) : (tensor<1x2x4x8xf32>, tensor<1x2x4x8xf32>, tensor<1x2x4x8xf32>) -> tensor<1x2x4x8xf32>
    %o = aten._to_copy.default(%3, dtype=f16) : (tensor<1x2x4x8xf32>) -> tensor<1x2x4x8xf16>
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import ClassVar

from xdsl.ir import Operation

from stepwell.dialects import aten
from stepwell.dialects.aten.op import SchemaOp
from stepwell.ir.dtypes import f16, f32
from stepwell.ir.program import Program
from stepwell.ir.rewriting import Bound, Refusal, Rewrite, Rewriter
from stepwell.ir.types import element, with_element
from stepwell.translate.rewrites.attention.expand_attention import drops_out, scale_of
from stepwell.translate.rewrites.building import cast, emit, put
from stepwell.translate.rewrites.xnnpack.floats.widen_halves import widened
from stepwell.translate.rewrites.xnnpack.nodes.guards import not_held


@dataclass(frozen=True)
class AttentionOfHalves:
    """An attention of halves, and its scale."""

    op: SchemaOp
    scale: float


@dataclass(frozen=True)
class WidenAttentionOfHalves(Rewrite[AttentionOfHalves]):
    """`scaled_dot_product_attention` of halves between casts to single and back."""

    name: ClassVar[str] = "widen-attention-of-halves"
    takes_empty: ClassVar[bool] = False
    anchors: ClassVar[tuple[type[Operation], ...]] = (aten.ScaledDotProductAttentionDefault,)
    bound: ClassVar[Bound] = Bound(
        2**-9, 2**-10, "torch may run a fused kernel, which rounds weights to halves"
    )

    def match(self, op: SchemaOp, program: Program) -> AttentionOfHalves | Refusal | None:
        """Guards: halves of a shape XNNPACK holds, no dropout, a known scale."""
        if element(op.results[0].type) != f16:
            return None
        for refusal in (drops_out(op), *map(not_held, op.operands[:3])):
            if refusal is not None:
                return refusal
        scale = scale_of(op)
        if isinstance(scale, Refusal):
            return scale
        return AttentionOfHalves(op, scale)

    def build(self, match: AttentionOfHalves, rw: Rewriter) -> None:
        """Casts of what is halves, the attention, a cast back."""
        op, scale = match.op, match.scale
        operands = list(op.operands)
        if is_exact_in_halves(scale):
            operands[0] = put(rw, aten.MulScalar, operands[0], scale)
            scale = 1.0
        operands = [
            widened(rw, value) if element(value.type) == f16 else value for value in operands
        ]
        flags = {name: True for name in ("is_causal", "enable_gqa") if op.arg(name)}
        result = with_element(op.results[0].type, f32)
        new = aten.ScaledDotProductAttentionDefault.make(
            *operands, scale=scale, **flags, result_types=[result]
        )
        rw.replace(op, [cast(rw, emit(rw, new), f16)])


def is_exact_in_halves(scale: float) -> bool:
    """A power of two below 1: products with it round nowhere but below the normal halves."""
    return 2**-8 <= scale < 1.0 and math.frexp(scale)[0] == 0.5
