"""Move weights that branches and loops take as arguments into their regions.

The layers of a region then read constants.

Before:
    %w = stepwell.weight <"w"> "parameter" : tensor<2xf32>
    %y = control.cond %p(%x, %w) : (tensor<i1>, tensor<2xf32>, tensor<2xf32>) -> tensor<2xf32> {
    ^bb0(%a: tensor<2xf32>, %b: tensor<2xf32>):
      control.yield %b : tensor<2xf32>
    } else {
    ^bb0(%a: tensor<2xf32>, %b: tensor<2xf32>):
      control.yield %a : tensor<2xf32>
    }
After:
    %y = control.cond %p(%x) : (tensor<i1>, tensor<2xf32>) -> tensor<2xf32> {
    ^bb0(%a: tensor<2xf32>):
      %b = stepwell.weight <"w"> "parameter" : tensor<2xf32>
      control.yield %b : tensor<2xf32>
    } else {
    ^bb0(%a: tensor<2xf32>):
      control.yield %a : tensor<2xf32>
    }
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar

from xdsl.ir import Attribute, Operation, SSAValue

from stepwell.dialects.control import CondOp, WhileLoopOp
from stepwell.ir.core import WeightOp, weight_key
from stepwell.ir.program import Program
from stepwell.ir.rewriting.rewrite import EXACT, Bound, Refusal, Rewrite, Rewriter


@dataclass(frozen=True)
class Inlined:
    """A branch or loop whose operands at `positions` are weights."""

    op: CondOp | WhileLoopOp
    positions: tuple[int, ...]


def _taken(op: CondOp | WhileLoopOp) -> Sequence[SSAValue]:
    """Return the operands that become arguments of the regions."""
    if isinstance(op, CondOp):
        return op.inputs
    return (*op.carried, *op.additional)


@dataclass(frozen=True)
class BringWeightsInside(Rewrite[Inlined]):
    """Read weights that branches and loops take as arguments directly in their regions."""

    name: ClassVar[str] = "bring-weights-inside"
    anchors: ClassVar[tuple[type[Operation], ...]] = (CondOp, WhileLoopOp)
    bound: ClassVar[Bound] = EXACT

    def match(self, op: CondOp | WhileLoopOp, program: Program) -> Inlined | Refusal | None:
        """Match operands that are weights and that no loop iteration changes."""
        first = len(op.carried) if isinstance(op, WhileLoopOp) else 0
        taken = _taken(op)
        found = tuple(i for i in range(first, len(taken)) if weight_key(taken[i]) is not None)
        return Inlined(op, found) if found else None

    def build(self, match: Inlined, rw: Rewriter) -> None:
        """Build the same op with fewer operands; its regions read the weights."""
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


def take_weights_outside(program: Program) -> None:
    """Undo `BringWeightsInside`: weights in regions become arguments, as in torch programs."""
    for op in reversed(list(program.module.walk())):  # Nested ops come first.
        if not isinstance(op, CondOp | WhileLoopOp):
            continue
        blocks = [region.block for region in op.regions]
        inner = [held for block in blocks for held in block.ops if isinstance(held, WeightOp)]
        rw = Rewriter(op, program)
        keys = {held.key.data: held.kind.data for held in inner}
        values = {key: rw.weight(key, kind) for key, kind in keys.items()}
        for block in blocks:
            args = {k: block.insert_arg(v.type, len(block.args)) for k, v in values.items()}
            for held in [held for held in inner if held.parent is block]:
                held.result.replace_all_uses_with(args[held.key.data])
                held.detach()
                held.erase()
        if values:
            rw.replace(op, rw.insert(_rebuilt(op, [*_taken(op), *values.values()])).results)
