"""Compute XNNPACK's workspace of a delegate: the location and live range of each value.

XNNPACK plans the workspace when a method starts and does not report it. Here the plan is computed
from the graph by the planner's rules (XNNPACK's `src/memory-planner.c` and `src/runtime.c`). A
value lives from the node that writes it to its last user. An elementwise node overwrites an operand
that has no other user. Values are placed from the largest to the smallest, each in the smallest gap
between values that live at the same time, else above these. Inputs, outputs and weights are stored
elsewhere. The scratch memory of operators is not known from the graph, and is omitted.
"""

from dataclasses import dataclass
from math import prod

from xdsl.ir import Operation, SSAValue

from stepwell.dialects.xnnpack import DelegateOp, DynamicInt8Type, StaticReshape, XnnpackOp
from stepwell.dialects.xnnpack.elementwise import Binary, Convert, Unary
from stepwell.inspection.viewer.memory import Held, MemoryPlan
from stepwell.inspection.viewer.weights import weight_bytes
from stepwell.ir.diagnostics import node_name, op_name
from stepwell.ir.program import Program
from stepwell.ir.types import TensorType, dims, is_static

ALIGNMENT = 64
"""Bytes to which XNNPACK rounds a value on desktop x86 (`XNN_ALLOCATION_ALIGNMENT`)."""
_ROW_PARAMETERS = 8
"""Bytes of the scale and zero point of each row that XNNPACK quantizes dynamically."""


@dataclass
class _Block:
    """The bytes of one value, or of several values that overwrite each other, from node to node."""

    labels: list[str]
    bytes: int
    first: int
    last: int
    offset: int = 0


def workspace_plans(program: Program) -> tuple[MemoryPlan, ...]:
    """Return the workspace of each delegate with static sizes, in the order of the program."""
    plans: list[MemoryPlan] = []
    for method, func in program.methods.items():
        delegates = [op for op in func.body.block.ops if isinstance(op, DelegateOp)]
        for number, delegate in enumerate(delegates):
            name = f"{method}, delegate {number}" if len(delegates) > 1 else method
            plan = workspace_plan(delegate, name)
            if plan is not None and plan.held:
                plans.append(plan)
    return tuple(plans)


def workspace_plan(delegate: DelegateOp, name: str) -> MemoryPlan | None:
    """Return the plan of one delegate; None if a size is dynamic."""
    nodes = [op for op in delegate.block.ops if isinstance(op, XnnpackOp)]
    if not all(_is_known(result) for op in nodes for result in op.results):
        return None
    blocks = _blocks(delegate, nodes)
    size = _place(blocks)
    held = [
        Held(" → ".join(block.labels), block.offset, block.bytes, block.first, block.last)
        for block in blocks
    ]
    held.sort(key=lambda one: (one.offset, one.first))
    return MemoryPlan(name, size, len(nodes), tuple(held), workspace=True)


def _is_known(value: SSAValue) -> bool:
    return isinstance(value.type, TensorType) and is_static(value.type)


def _blocks(delegate: DelegateOp, nodes: list[XnnpackOp]) -> list[_Block]:
    """Return the inner values; values that share bytes form one block."""
    ends = delegate.block.last_op
    outside = {*delegate.block.args, *(ends.operands if ends is not None else ())}
    numbers: dict[Operation, int] = {op: number for number, op in enumerate(nodes)}
    made: dict[SSAValue, _Block] = {}
    blocks: list[_Block] = []
    for number, op in enumerate(nodes):
        for result in op.results:
            if result in outside:
                continue
            readers = [numbers[use.operation] for use in result.uses if use.operation in numbers]
            last = max(readers, default=number)
            reused = _reused(op, result, made) if len(readers) == 1 else None
            if reused is not None:
                block = made[reused]
                block.last = max(block.last, last)
                block.labels.append(_label(op))
            else:
                block = _Block([f"{_label(op)}"], _rounded(result), number, last)
                blocks.append(block)
            made[result] = block
    return blocks


def _reused(op: Operation, result: SSAValue, made: dict[SSAValue, _Block]) -> SSAValue | None:
    """Return the operand that a node overwrites: of the same size, inside the delegate, without
    other users.
    """
    if not isinstance(op, Unary | Binary | StaticReshape) or isinstance(op, Convert):
        return None
    for operand in op.operands:
        is_read_once = operand in made and len(list(operand.uses)) == 1
        if is_read_once and _bytes(operand) == _bytes(result):
            return operand
    return None


def _bytes(value: SSAValue) -> int:
    if _is_dynamic(value):
        return prod(dim for dim in dims(value.type) if isinstance(dim, int))
    return weight_bytes(value.type)


def _is_dynamic(value: SSAValue) -> bool:
    return isinstance(getattr(value.type, "element_type", None), DynamicInt8Type)


def _rounded(value: SSAValue) -> int:
    size = -(-_bytes(value) // ALIGNMENT) * ALIGNMENT
    if _is_dynamic(value):
        rows = prod(dim for dim in dims(value.type)[:-1] if isinstance(dim, int))
        size += -(-rows * _ROW_PARAMETERS // ALIGNMENT) * ALIGNMENT
    return size


def _label(op: XnnpackOp) -> str:
    node = node_name(op.location)
    name = op_name(op).removeprefix("xnnpack.")
    return f"{name} ({node})" if node else name


def _place(blocks: list[_Block]) -> int:
    """Set the offset of each block, the largest first; return the total bytes."""
    done: list[_Block] = []
    size = 0
    for block in sorted(blocks, key=lambda one: -one.bytes):
        beside = sorted(
            (other.offset, other.offset + other.bytes)
            for other in done
            if other.first <= block.last and block.first <= other.last
        )
        block.offset = _gap(beside, block.bytes)
        size = max(size, block.offset + block.bytes)
        done.append(block)
    return size


def _gap(taken: list[tuple[int, int]], size: int) -> int:
    """Return the start of the smallest sufficient gap below or between the occupied ranges, else
    their end.
    """
    best, smallest, end = -1, 0, 0
    for start, stop in taken:
        if start > end and start - end >= size and (best < 0 or start - end < smallest):
            best, smallest = end, start - end
        end = max(end, stop)
    return end if best < 0 else best
