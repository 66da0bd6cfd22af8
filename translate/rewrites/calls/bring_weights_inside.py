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

from stepwell.dialects.control import CondOp, MapOp, ScanOp, WhileLoopOp
from stepwell.ir.core import WeightOp, weight_key
from stepwell.ir.program import Program
from stepwell.ir.rewriting.rewrite import EXACT, Bound, Refusal, Rewrite, Rewriter

Control = CondOp | WhileLoopOp | MapOp | ScanOp


@dataclass(frozen=True)
class Inlined:
    """A branch or loop whose operands at `positions` are weights."""

    op: Control
    positions: tuple[int, ...]


def _groups(op: Control) -> list[Sequence[SSAValue]]:
    """Return the operands that become arguments of the regions, those that no step changes last."""
    if isinstance(op, CondOp):
        return [op.inputs]
    if isinstance(op, WhileLoopOp):
        return [op.carried, op.additional]
    return [*([op.initial] if isinstance(op, ScanOp) else []), op.sequences, op.additional]


@dataclass(frozen=True)
class BringWeightsInside(Rewrite[Inlined]):
    """Read weights that branches and loops take as arguments directly in their regions."""

    name: ClassVar[str] = "bring-weights-inside"
    anchors: ClassVar[tuple[type[Operation], ...]] = (CondOp, WhileLoopOp, MapOp, ScanOp)
    bound: ClassVar[Bound] = EXACT

    def match(self, op: Control, program: Program) -> Inlined | Refusal | None:
        """Match operands that are weights and that no loop iteration changes."""
        *changing, kept = _groups(op)
        first = sum(map(len, changing))
        found = tuple(first + i for i, v in enumerate(kept) if weight_key(v) is not None)
        return Inlined(op, found) if found else None

    def build(self, match: Inlined, rw: Rewriter) -> None:
        """Build the same op with fewer operands; its regions read the weights."""
        op, groups = match.op, _groups(match.op)
        taken = [value for group in groups for value in group]
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
            for position in sorted(match.positions, reverse=True):
                block.erase_arg(block.args[position])
        first = len(taken) - len(groups[-1])
        kept = [v for i, v in enumerate(groups[-1], first) if i not in match.positions]
        rw.replace(op, rw.insert(_rebuilt(op, kept)).results)


def _rebuilt(op: Control, kept: Sequence[SSAValue]) -> Operation:
    """Return the op with other values that no step changes."""
    regions = [region.clone() for region in op.regions]
    types: list[Attribute] = [result.type for result in op.results]
    before = [op.predicate] if isinstance(op, CondOp) else []
    groups = [*map(list, _groups(op)[:-1]), list(kept)]
    return type(op).build(operands=[*before, *groups], regions=regions, result_types=[types])


def take_weights_outside(program: Program) -> None:
    """Undo `BringWeightsInside`: weights in regions become arguments, as in torch programs."""
    for op in reversed(list(program.module.walk())):  # Nested ops come first.
        if not isinstance(op, Control):
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
            rw.replace(op, rw.insert(_rebuilt(op, [*_groups(op)[-1], *values.values()])).results)
