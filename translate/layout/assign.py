"""The layout pass: rebuild the ops on one side of a minimum cut so that they run before
transposes.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, ClassVar

from xdsl.ir import Block, Operation, SSAValue

from stepwell.ir.axes.maps import Order
from stepwell.ir.diagnostics import describe_op, node_name, op_name
from stepwell.ir.program import Program
from stepwell.ir.rewriting.rewrite import Event, History, Pass, Rewriter
from stepwell.translate.layout.cut import Turnings, candidates, least_cost, parts
from stepwell.translate.layout.table import Layouts


@dataclass(frozen=True)
class PlaceTransposes(Pass):
    """Layout assignment of a target: its name, its bound, and the table for the engine."""

    TABLE: ClassVar[Layouts]

    def table(self, program: Program) -> Layouts:
        """Return the target's layout table, for the optimization goal of this lowering."""
        return self.TABLE

    def apply(self, program: Program, history: History) -> int:
        """Run the pass, and return the number of ops that run in another order."""
        count, table = 0, self.table(program)
        for func in program.methods.values():
            for block in _blocks(func):
                found = candidates(block, table)
                turned = {
                    op for part in parts(found, table) for op in least_cost(part, found, table)
                }
                if turned:
                    _write(block, {op: found[op] for op in turned}, self, program, history)
                count += len(turned)
        return count


def _blocks(func: Operation) -> Iterator[Block]:
    for region in func.regions:
        for block in region.blocks:
            yield block
            for op in block.ops:
                if op.regions:
                    yield from _blocks(op)


def _write(
    block: Block, turned: Turnings, by: PlaceTransposes, program: Program, history: History
) -> None:
    """Rebuild ops in order on the values before transposes, and transpose each result back."""
    table = by.TABLE
    scopes: dict[Any, Any] = {}
    bases: dict[tuple[SSAValue, Order], SSAValue] = {}

    def base_of(rw: Rewriter, value: SSAValue, order: Order) -> SSAValue:
        standing = table.transposed(value)
        if standing is not None and standing[1] == order:
            return standing[0]
        if (value, order) not in bases:
            bases[value, order] = table.base(rw, value, order)
        return bases[value, order]

    for op in tuple(block.ops):
        if op not in turned:
            continue
        turning, result = turned[op], op.results[0]
        rw = Rewriter(op, program, scopes)
        operands = list(op.operands)
        for index, read in turning.operands.items():
            operands[index] = base_of(rw, op.operands[index], read)
        new = table.rebuilt(rw, op, operands, turning.order)
        new.name_hint = result.name_hint
        root = (op_name(op), node_name(op.location))
        history.events.append(Event(by.name, root, (root,), (root,), describe_op(op)))
        made = table.back(rw, new, turning.order, result.type)
        bases[made, turning.order] = new
        result.replace_all_uses_with(made)
        op.detach()
        op.erase()
    for op in reversed(tuple(block.ops)):
        if len(op.results) == 1 and table.transposed(op.results[0]) and not op.results[0].first_use:
            op.detach()
            op.erase()
