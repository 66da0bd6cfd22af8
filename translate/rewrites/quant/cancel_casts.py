"""Takes away casts that undo each other: the type says that nothing is lost.

Before:
    %r = quant.scast %q : tensor<4x!quant.uniform<i8:f32, 0.5:3>> to tensor<4xi8>
    %t = quant.scast %r : tensor<4xi8> to tensor<4x!quant.uniform<i8:f32, 0.5:3>>
    %x = quant.dcast %t : tensor<4x!quant.uniform<i8:f32, 0.5:3>> to tensor<4xf32>
After:
    %x = quant.dcast %q : tensor<4x!quant.uniform<i8:f32, 0.5:3>> to tensor<4xf32>
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from xdsl.ir import Operation, SSAValue

from stepwell.dialects.quant import DequantizeCast, QuantizeCast, StorageCast
from stepwell.ir.program import Program
from stepwell.ir.rewriting import Refusal, Rewrite, Rewriter


@dataclass(frozen=True)
class Undone:
    """A cast whose operand's maker already had the value."""

    op: Operation
    value: SSAValue


@dataclass(frozen=True)
class CancelCasts(Rewrite[Undone]):
    """scast of scast, and qcast of dcast, back to the type they started from."""

    name: ClassVar[str] = "cancel-casts"
    anchors: ClassVar[tuple[type[Operation], ...]] = (StorageCast, QuantizeCast)

    def match(self, op: StorageCast | QuantizeCast, program: Program) -> Undone | Refusal | None:
        """The type must be the very same: other parameters are a requantisation."""
        maker = op.input.owner
        inverse = StorageCast if isinstance(op, StorageCast) else DequantizeCast
        if not isinstance(maker, inverse) or maker.input.type != op.result.type:
            return None
        return Undone(op, maker.input)

    def build(self, match: Undone, rw: Rewriter) -> None:
        """Use the value from before both casts."""
        rw.replace(match.op, [match.value])
