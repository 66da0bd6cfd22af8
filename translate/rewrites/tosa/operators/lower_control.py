"""Legalization of branches and loops to COND_IF and WHILE_LOOP.

Before:
    %y = control.cond %p(%x) : (tensor<i1>, tensor<2xf32>) -> tensor<2xf32> {
    ^bb0(%a: tensor<2xf32>):
      %b = tosa.exp %a : (tensor<2xf32>) -> tensor<2xf32>
      control.yield %b : tensor<2xf32>
    } else {
    ^bb0(%a: tensor<2xf32>):
      control.yield %a : tensor<2xf32>
    }
After:
    %y = tosa.cond_if %p (%a = %x) : tensor<i1> (tensor<2xf32>) -> tensor<2xf32> {
    ^bb0(%a: tensor<2xf32>):
      %b = tosa.exp %a : (tensor<2xf32>) -> tensor<2xf32>
      tosa.yield %b : tensor<2xf32>
    } else {
    ^bb0(%a_1: tensor<2xf32>):
      tosa.yield %a_1 : tensor<2xf32>
    }
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from xdsl.dialects.builtin import TensorType
from xdsl.ir import Operation, Region

from stepwell.dialects.control import CondOp, WhileLoopOp, YieldOp
from stepwell.dialects.tosa import structural as s
from stepwell.ir.dtypes import i1
from stepwell.ir.program import Program
from stepwell.ir.rewriting.rewrite import EXACT, Bound, Refusal, Rewrite, Rewriter
from stepwell.ir.types import element


@dataclass(frozen=True)
class Lowerable:
    """A branch or loop whose values TOSA represents."""

    op: CondOp | WhileLoopOp


@dataclass(frozen=True)
class LowerControl(Rewrite[Lowerable]):
    """Lower `cond` to COND_IF and `while_loop` to WHILE_LOOP, which also carries its read-only
    values.
    """

    name: ClassVar[str] = "lower-control-to-tosa"
    anchors: ClassVar[tuple[type[Operation], ...]] = (CondOp, WhileLoopOp)
    bound: ClassVar[Bound] = EXACT

    def match(self, op: CondOp | WhileLoopOp, program: Program) -> Lowerable | Refusal | None:
        """Match branches and loops of tensors only."""
        values = (*op.operands, *op.results)
        other = next((v for v in values if not isinstance(v.type, TensorType)), None)
        if other is not None:
            return Refusal(f"an operand or result has type {other.type}, which is not a tensor")
        if isinstance(op, CondOp) and element(op.predicate.type) != i1:
            return Refusal("the condition is a number, not a truth value")
        return Lowerable(op)

    def build(self, match: Lowerable, rw: Rewriter) -> None:
        """Build the same regions with TOSA's terminator."""
        op = match.op
        if isinstance(op, CondOp):
            regions = [_region(region, 0) for region in op.regions]
            results = [value.type for value in op.results]
            new = s.CondIfOp.create(
                operands=[op.predicate, *op.inputs], result_types=results, regions=regions
            )
            rw.replace(op, rw.insert(new).results)
            return
        carried = (*op.carried, *op.additional)
        regions = [_region(op.condition, 0), _region(op.body, len(op.additional))]
        new = s.WhileLoopOp.create(
            operands=carried, result_types=[value.type for value in carried], regions=regions
        )
        rw.replace(op, rw.insert(new).results[: len(op.carried)])


def _region(region: Region, invariant: int) -> Region:
    """Return a copy of a region that also yields its last `invariant` arguments."""
    copy = region.clone()
    last = copy.block.last_op
    assert isinstance(last, YieldOp)
    count = len(copy.block.args)
    values = [*last.values, *copy.block.args[count - invariant :]]
    end = s.YieldOp.create(operands=values)
    end.location = last.location
    copy.block.insert_op_before(end, last)
    last.detach()
    last.erase()
    return copy
