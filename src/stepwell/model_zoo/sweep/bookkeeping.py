"""What stands outside the delegates of an XNNPACK program, bookkeeping aside.

Ids, positions and masks of them are integers, which XNNPACK has no nodes for: what is computed of
integer inputs and constants alone is bookkeeping, also where it ends in floats, as a mask of zeros
and −∞ does that attention adds. So is a look-up: whole rows taken out of a table, or out of what a
delegate gave, at places that are such bookkeeping themselves. What a look-up gives is an
activation, as is a float that comes in and whatever a delegate gives. Every other op that reads an
activation counts, also where its result is an integer (an `argmax` of scores, a row at the place
that it says); and so do floats that are computed of constants alone, for these are to be folded.
"""

from __future__ import annotations

from collections.abc import Callable
from enum import IntEnum

from xdsl.dialects.builtin import AnyFloat, TensorType
from xdsl.dialects.func import FuncOp
from xdsl.ir import BlockArgument, Operation, SSAValue

from stepwell.backends.inventory import outside_and_delegates
from stepwell.dialects.aten.op import SchemaOp
from stepwell.dialects.xnnpack import DelegateOp
from stepwell.ir.core import StateOp, WeightOp, weight_key
from stepwell.ir.diagnostics import op_name
from stepwell.ir.program import Program
from stepwell.ir.types import element
from stepwell.translate.rewrites.sizes.open_rows import keeps_rows

LOOKUPS = frozenset(
    f"aten.{name}" for name in ("embedding.default", "index.Tensor", "index_select.default")
)
"""Ops that take rows at places."""


class Source(IntEnum):
    """What a value is computed of; of several operands, the greatest."""

    CONSTANTS = 0
    INTEGERS = 1
    ACTIVATIONS = 2


Ask = Callable[[SSAValue], Source]


def counted(program: Program) -> list[Operation]:
    """The ops outside delegates that are no bookkeeping."""
    ask = sources()
    outside = (op for op in outside_and_delegates(program) if not isinstance(op, DelegateOp))
    return [op for op in outside if not is_bookkeeping(op, ask)]


def is_bookkeeping(op: Operation, ask: Ask) -> bool:
    """Whether an op looks rows up, or computes with integers that come in (or with sizes)."""
    if not any(isinstance(result.type, TensorType) for result in op.results) or looks_up(op, ask):
        return True
    source = max(map(ask, op.operands), default=Source.CONSTANTS)
    if source == Source.CONSTANTS:
        return not any(map(is_float, op.results))
    return source == Source.INTEGERS


def sources() -> Ask:
    """What values are computed of; answers are kept, so that a program is walked once."""
    known: dict[SSAValue, Source] = {}

    def ask(value: SSAValue) -> Source:
        waiting = [value]
        while waiting:
            top = waiting[-1]
            found = known.get(top, at_once(top))
            if found is None:
                operands = top.owner.operands if isinstance(top.owner, Operation) else ()
                if fresh := [operand for operand in operands if operand not in known]:
                    waiting += fresh
                    continue
                found = max((known[one] for one in operands), default=Source.CONSTANTS)
            known[waiting.pop()] = found
        return known[value]

    return ask


def at_once(value: SSAValue) -> Source | None:
    """What a value is computed of, where its operands need not be asked."""
    owner = value.owner
    if not isinstance(value.type, TensorType):
        return Source.INTEGERS  # A size.
    if isinstance(value, BlockArgument):
        is_input = isinstance(value.block.parent_op(), FuncOp)
        return Source.INTEGERS if is_input and not is_float(value) else Source.ACTIVATIONS
    if isinstance(owner, WeightOp):
        return Source.CONSTANTS
    if isinstance(owner, StateOp):
        return Source.ACTIVATIONS if is_float(value) else Source.INTEGERS
    if isinstance(owner, Operation) and (owner.regions or is_computed_look_up(owner)):
        return Source.ACTIVATIONS if owner.regions or is_float(value) else None
    return None


def is_float(value: SSAValue) -> bool:
    """Whether a value is a tensor of floats."""
    return isinstance(value.type, TensorType) and isinstance(element(value.type), AnyFloat)


def is_computed_look_up(op: Operation) -> bool:
    """Whether an op takes rows at places that are known only at run time."""
    places = op.operands[1:] if op_name(op) in LOOKUPS else ()
    return any(weight_key(place) is None for place in places)


def looks_up(op: Operation, ask: Ask) -> bool:
    """Whether an op takes whole rows at places that are computed of integers which come in.

    Places that are constants are slices, which a delegate runs.
    """
    if not is_computed_look_up(op) or Source.ACTIVATIONS in map(ask, op.operands[1:]):
        return False
    is_table = weight_key(op.operands[0]) is not None
    return is_table or (isinstance(op, SchemaOp) and keeps_rows(op))
