"""Truth values are gathered as bytes, where a target's version gathers none.

GATHER and SCATTER of `i1` came with TOSA 1.1.

Before:
    %y = tosa.gather %x, %i : (tensor<1x4x2xi1>, tensor<1x3xi32>) -> tensor<1x3x2xi1>
After:
    %0 = tosa.cast %x : (tensor<1x4x2xi1>) -> tensor<1x4x2xi8>
    %1 = tosa.gather %0, %i : (tensor<1x4x2xi8>, tensor<1x3xi32>) -> tensor<1x3x2xi8>
    %y = tosa.cast %1 : (tensor<1x3x2xi8>) -> tensor<1x3x2xi1>
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from xdsl.ir import Operation

from stepwell.dialects.tosa import generated as t
from stepwell.ir.dtypes import i1, i8
from stepwell.ir.program import Program
from stepwell.ir.rewriting import EXACT, Bound, Refusal, Rewrite, Rewriter
from stepwell.ir.types import element
from stepwell.translate.rewrites.tosa.building import Builder, shape_of


@dataclass(frozen=True)
class GatherTruths(Rewrite[t.GatherOp | t.ScatterOp]):
    """GATHER of i1 to one of i8 between CASTs."""

    name: ClassVar[str] = "gather-truths"
    anchors: ClassVar[tuple[type[Operation], ...]] = (t.GatherOp, t.ScatterOp)
    bound: ClassVar[Bound] = EXACT

    def match(
        self, op: t.GatherOp | t.ScatterOp, program: Program
    ) -> t.GatherOp | t.ScatterOp | Refusal | None:
        """Values that are truths."""
        return op if element(op.results[0].type) == i1 else None

    def build(self, match: t.GatherOp | t.ScatterOp, rw: Rewriter) -> None:
        """1 and 0 stand for them."""
        b, op = Builder(rw), match
        operands = [
            b.op(t.CastOp, [value], shape_of(value), i8) if element(value.type) == i1 else value
            for value in op.operands
        ]
        shape = shape_of(op.results[0])
        rw.replace(op, [b.op(t.CastOp, [b.op(type(op), operands, shape, i8)], shape, i1)])
