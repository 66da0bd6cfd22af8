"""Branches and loops: COND_IF and WHILE_LOOP.

Weights that a region takes as arguments become its own first, so that its layers see constants.

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

from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar

from xdsl.dialects.builtin import TensorType
from xdsl.ir import Attribute, Operation, Region, SSAValue

from stepwell.dialects.control import CondOp, WhileLoopOp, YieldOp
from stepwell.dialects.tosa import structural as s
from stepwell.ir.core import WeightOp, weight_key
from stepwell.ir.dtypes import i1
from stepwell.ir.program import Program
from stepwell.ir.rewriting import EXACT, Bound, Refusal, Rewrite, Rewriter
from stepwell.ir.types import element


@dataclass(frozen=True)
class Inlined:
    """The operands of `op` at `positions` are weights."""

    op: CondOp | WhileLoopOp
    positions: tuple[int, ...]


def _taken(op: CondOp | WhileLoopOp) -> Sequence[SSAValue]:
    """The values that become arguments of the regions."""
    if isinstance(op, CondOp):
        return op.inputs
    return (*op.carried, *op.additional)


@dataclass(frozen=True)
class BringWeightsInside(Rewrite[Inlined]):
    """Weights that branches and loops take as arguments are named inside them instead."""

    name: ClassVar[str] = "bring-weights-inside"
    anchors: ClassVar[tuple[type[Operation], ...]] = (CondOp, WhileLoopOp)
    bound: ClassVar[Bound] = EXACT

    def match(self, op: CondOp | WhileLoopOp, program: Program) -> Inlined | Refusal | None:
        """Weights that no loop changes."""
        first = len(op.carried) if isinstance(op, WhileLoopOp) else 0
        taken = _taken(op)
        found = tuple(i for i in range(first, len(taken)) if weight_key(taken[i]) is not None)
        return Inlined(op, found) if found else None

    def build(self, match: Inlined, rw: Rewriter) -> None:
        """The same op with fewer operands; its regions read the weights."""
        op, gone = match.op, set(match.positions)
        taken = _taken(op)
        for region in op.regions:
            block = region.block
            for position in match.positions:
                source = taken[position].owner
                assert isinstance(source, WeightOp)
                inner = WeightOp(source.key.data, source.result.type, source.kind.data)
                inner.location = op.location
                first = block.first_op
                assert first is not None
                block.insert_op_before(inner, first)
                block.args[position].replace_all_uses_with(inner.result)
            for position in sorted(gone, reverse=True):
                block.erase_arg(block.args[position])
        kept = [value for index, value in enumerate(taken) if index not in gone]
        rw.replace(op, rw.insert(_rebuilt(op, kept)).results)


def _rebuilt(op: CondOp | WhileLoopOp, kept: Sequence[SSAValue]) -> Operation:
    regions = [region.clone() for region in op.regions]
    types: list[Attribute] = [result.type for result in op.results]
    if isinstance(op, CondOp):
        return CondOp.build(
            operands=[op.predicate, list(kept)], regions=regions, result_types=[types]
        )
    carried = len(op.carried)
    groups = [list(kept[:carried]), list(kept[carried:])]
    return WhileLoopOp.build(operands=groups, regions=regions, result_types=[types])


@dataclass(frozen=True)
class Lowerable:
    """A branch or loop whose values TOSA can hold."""

    op: CondOp | WhileLoopOp


@dataclass(frozen=True)
class LowerControl(Rewrite[Lowerable]):
    """`cond` to COND_IF, `while_loop` to WHILE_LOOP, which carries what the body only reads."""

    name: ClassVar[str] = "lower-control-to-tosa"
    anchors: ClassVar[tuple[type[Operation], ...]] = (CondOp, WhileLoopOp)
    bound: ClassVar[Bound] = EXACT

    def match(self, op: CondOp | WhileLoopOp, program: Program) -> Lowerable | Refusal | None:
        """Tensors only."""
        values = (*op.operands, *op.results)
        other = next((v for v in values if not isinstance(v.type, TensorType)), None)
        if other is not None:
            return Refusal(f"it takes or gives {other.type}, which is not a tensor")
        if isinstance(op, CondOp) and element(op.predicate.type) != i1:
            return Refusal("its condition is a number, not a truth value")
        return Lowerable(op)

    def build(self, match: Lowerable, rw: Rewriter) -> None:
        """The same regions, ended by TOSA's terminator."""
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
    """A copy whose end also yields the last `invariant` arguments."""
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
