"""Cleanup passes for all levels: common subexpression elimination, dead code elimination, removal
of unused weights.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from xdsl.ir import Block, Operation
from xdsl.traits import IsolatedFromAbove

from stepwell.ir.compat.xdsl.xdsl_private import discard, operands_of, ops_in, replace_uses
from stepwell.ir.core import WeightOp
from stepwell.ir.diagnostics import describe_op, node_name, op_name
from stepwell.ir.program import Program
from stepwell.ir.rewriting.rewrite import Event, History, Pass
from stepwell.ir.side_effects import is_dead, is_pure

_Key = tuple[object, ...]
_Seen = dict[_Key, tuple[Operation, ...]]
"""Ops by class and operands, a cheap key; ops with the same key are compared in full."""


@dataclass(frozen=True)
class ShareCommonSubexpressions(Pass):
    """Common subexpression elimination: merge equal pure ops of one scope."""

    name: ClassVar[str] = "share-common-subexpressions"

    def apply(self, program: Program, history: History) -> int:
        """Merge equal ops of every method, and return the number of ops removed."""
        removed = sum(
            _share(block, {}, history)
            for func in program.methods.values()
            for block in func.body.blocks
        )
        return reported(program, "equal ops removed", removed)


def _share(block: Block, outer: _Seen, history: History) -> int:
    seen = dict(outer)
    removed = 0
    for op in ops_in(block):
        for region in op.regions:
            inner: _Seen = {} if op.has_trait(IsolatedFromAbove) else seen
            removed += sum(_share(b, inner, history) for b in region.blocks)
        if op.regions or not op.results or not is_pure(op):
            continue
        key = _key(op)
        candidates = seen.get(key, ())
        twin = next((other for other in candidates if _is_twin(other, op)), None)
        if twin is None:
            seen[key] = (*candidates, op)
        else:
            gone, kept = ((op_name(o), node_name(o.location)) for o in (op, twin))
            if not isinstance(op, WeightOp):
                name = ShareCommonSubexpressions.name
                history.events.append(Event(name, gone, (gone,), (), describe_op(op), (kept,)))
            for old, new in zip(op.results, twin.results, strict=True):
                replace_uses(old, new)
            discard(op)
            removed += 1
    return removed


def _key(op: Operation) -> _Key:
    """Return a key that equal ops share: class and operands; all properties if there are no
    operands.
    """
    operands = tuple(map(id, operands_of(op)))
    if operands:
        return type(op), operands
    if isinstance(op, WeightOp):
        return WeightOp, op.key.data
    return type(op), *sorted(op.properties.items()), *(result.type for result in op.results)


def _is_twin(one: Operation, other: Operation) -> bool:
    """Whether two ops with the same key are equal."""
    return one.properties == other.properties and [r.type for r in one.results] == [
        r.type for r in other.results
    ]


def reported(program: Program, statistic: str, amount: int) -> int:
    """Add an amount to a statistic unless it is 0, and return the amount."""
    if amount:
        program.report(statistic, amount)
    return amount


@dataclass(frozen=True)
class RemoveDeadCode(Pass):
    """Dead code elimination: remove pure ops without uses, and unused weights."""

    name: ClassVar[str] = "remove-dead-code"

    def apply(self, program: Program, history: History) -> int:
        """Remove dead ops and unused weights, and return the number of ops removed."""
        removed = 0
        for func in program.methods.values():
            for block in func.body.blocks:
                removed += _sweep(block)
        program.weights.keep_only(program.used_weights())
        return reported(program, "dead ops removed", removed)


def _sweep(block: Block) -> int:
    removed = 0
    for op in reversed(ops_in(block)):
        for region in op.regions:
            removed += sum(_sweep(inner) for inner in region.blocks)
        if is_dead(op):
            discard(op)
            removed += 1
    return removed
