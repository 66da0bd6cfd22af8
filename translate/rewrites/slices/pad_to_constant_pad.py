"""Spell padding with a constant as `aten.constant_pad_nd.default` with its value.

Before:
    %y = aten.pad.default(%x, [1, 2]) : (tensor<2x3xf32>) -> tensor<2x6xf32>
After:
    %y = aten.constant_pad_nd.default(%x, [1, 2], 0) : (tensor<2x3xf32>) -> tensor<2x6xf32>
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from xdsl.ir import Operation, SSAValue

from stepwell.dialects import aten
from stepwell.dialects.aten.op import SchemaOp
from stepwell.ir.program import Program
from stepwell.ir.rewriting import Refusal, Rewrite, Rewriter
from stepwell.translate.rewrites.building import become


@dataclass(frozen=True)
class Padded:
    """Padding by `amounts` (last axis first, before and after) with `value`."""

    op: SchemaOp
    amounts: tuple[int, ...]
    value: float


@dataclass(frozen=True)
class PadToConstantPad(Rewrite[Padded]):
    """`aten.pad` in constant mode to `aten.constant_pad_nd`."""

    name: ClassVar[str] = "pad-to-constant-pad"
    anchors: ClassVar[tuple[type[Operation], ...]] = (aten.PadDefault, aten.ConstantPadNdDefault)

    def match(self, op: SchemaOp, program: Program) -> Padded | Refusal | None:
        """The mode is constant and the amounts are numbers."""
        value = 0
        if isinstance(op, aten.PadDefault):
            if op.arg("mode") != "constant":
                return Refusal(f"its padding mode is {op.arg('mode')}, not constant")
            if op.arg("value") is not None:
                value = op.arg("value")
        elif "value" in op.properties:
            return None
        amounts = op.arg("pad")
        if any(isinstance(amount, SSAValue) for amount in (*amounts, value)):
            return Refusal("the padding is known only at run time")
        return Padded(op, tuple(amounts), value)

    def build(self, match: Padded, rw: Rewriter) -> None:
        """Write the pad."""
        become(
            rw,
            match.op,
            aten.ConstantPadNdDefault,
            match.op.operands[0],
            list(match.amounts),
            match.value,
        )
