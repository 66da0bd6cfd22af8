"""Count the ops outside the delegates of an XNNPACK program, except for bookkeeping.

Ids, positions and their masks are integers, for which XNNPACK has no nodes. A value computed only
from integer inputs and constants is bookkeeping, even if it is a float, for example the mask of
zeros and −∞ that attention adds. A look-up is bookkeeping, too: it takes whole rows from a table
or from the result of a delegate, at indices that are bookkeeping. The result of a look-up is an
activation, as are float inputs and the results of delegates. Every other op that reads an
activation counts, even if its result is an integer (an `argmax` of scores, a row at this index).
Floats that are computed only from constants count as well, because these should be folded.
"""

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
"""Ops that take rows at given indices."""


class Origin(IntEnum):
    """The kind of data from which a value is computed; of several operands, the greatest counts."""

    CONSTANTS = 0
    INTEGERS = 1
    ACTIVATIONS = 2


Ask = Callable[[SSAValue], Origin]


def counted(program: Program) -> list[Operation]:
    """Return the ops outside delegates that are not bookkeeping."""
    ask = sources()
    outside = (op for op in outside_and_delegates(program) if not isinstance(op, DelegateOp))
    return [op for op in outside if not is_bookkeeping(op, ask)]


def is_bookkeeping(op: Operation, ask: Ask) -> bool:
    """Whether an op looks up rows, or computes with integer inputs or sizes."""
    if not any(isinstance(result.type, TensorType) for result in op.results) or looks_up(op, ask):
        return True
    source = max(map(ask, op.operands), default=Origin.CONSTANTS)
    if source == Origin.CONSTANTS:
        return not any(map(is_float, op.results))
    return source == Origin.INTEGERS


def sources() -> Ask:
    """Return the kind of data from which each value is computed. Results are cached, so that a
    program is walked once.
    """
    known: dict[SSAValue, Origin] = {}

    def ask(value: SSAValue) -> Origin:
        waiting = [value]
        while waiting:
            top = waiting[-1]
            found = known.get(top, at_once(top))
            if found is None:
                operands = top.owner.operands if isinstance(top.owner, Operation) else ()
                if fresh := [operand for operand in operands if operand not in known]:
                    waiting += fresh
                    continue
                found = max((known[one] for one in operands), default=Origin.CONSTANTS)
            known[waiting.pop()] = found
        return known[value]

    return ask


def at_once(value: SSAValue) -> Origin | None:
    """Return the source of a value that does not depend on operands, else None."""
    owner = value.owner
    if not isinstance(value.type, TensorType):
        return Origin.INTEGERS  # A size.
    if isinstance(value, BlockArgument):
        is_input = isinstance(value.block.parent_op(), FuncOp)
        return Origin.INTEGERS if is_input and not is_float(value) else Origin.ACTIVATIONS
    if isinstance(owner, WeightOp):
        return Origin.CONSTANTS
    if isinstance(owner, StateOp):
        return Origin.ACTIVATIONS if is_float(value) else Origin.INTEGERS
    if isinstance(owner, Operation) and (owner.regions or is_computed_look_up(owner)):
        return Origin.ACTIVATIONS if owner.regions or is_float(value) else None
    return None


def is_float(value: SSAValue) -> bool:
    """Whether a value is a tensor of floats."""
    return isinstance(value.type, TensorType) and isinstance(element(value.type), AnyFloat)


def is_computed_look_up(op: Operation) -> bool:
    """Whether an op takes rows at indices that are computed at run time."""
    places = op.operands[1:] if op_name(op) in LOOKUPS else ()
    return any(weight_key(place) is None for place in places)


def looks_up(op: Operation, ask: Ask) -> bool:
    """Whether an op takes whole rows at indices that are computed from integer inputs.

    Constant indices are slices, which a delegate runs.
    """
    if not is_computed_look_up(op) or Origin.ACTIVATIONS in map(ask, op.operands[1:]):
        return False
    is_table = weight_key(op.operands[0]) is not None
    return is_table or (isinstance(op, SchemaOp) and keeps_rows(op))
