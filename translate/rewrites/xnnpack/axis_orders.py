"""Orders of axes: what a tensor's order makes of the tensors computed from it.

An order `P` of a value says that the value is `transpose(base, perm=P)` of a base that may be held
in its place. `carried` follows an order through one node to its other operands and its result,
by axes and never by sizes: a reshape carries an order if each group of axes that it splits or
merges stands together, in the order of elements, in the base too.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from xdsl.ir import Operation, SSAValue

from stepwell.dialects import xnnpack
from stepwell.dialects.xnnpack import XnnpackOp
from stepwell.dialects.xnnpack.datatypes import datatype
from stepwell.dialects.xnnpack.elementwise import Binary, Unary
from stepwell.dialects.xnnpack.movement import Concatenate
from stepwell.ir.axes import aligned as aligned_axes
from stepwell.ir.types import Dim, dims
from stepwell.translate.rewrites.xnnpack.merge_transposes import inverse, passes

Order = tuple[int, ...]


def carries(op: Operation, order: Order) -> bool:
    """Whether a node may work on bases: `order` is that of its result."""
    match op:
        case xnnpack.StaticReshape():
            return source_order(op, order) is not None
        case xnnpack.Softmax():
            return order[-1] == len(order) - 1
        case xnnpack.FullyConnected():
            data = datatype(op.input.type)
            return data != "qdint8" and order[-1] == len(order) - 1
        case xnnpack.StaticSlice():
            whole, part = dims(op.input.type), dims(op.output.type)
            cut = [
                a for a, (one, other) in enumerate(zip(whole, part, strict=True)) if one != other
            ]
            return not any(takes_elements(part, order, axis) for axis in cut)
        case xnnpack.StaticConstantPad():
            return True
        case Unary() | Binary():
            return passes(op) and len(dims(op.output.type)) == len(order)
        case Concatenate():
            at = op.integer("axis", 0)
            return not any(takes_elements(dims(v.type), order, at) for v in op.operands)
        case _:
            return False


FEW = 2
"""Elements of the last axis that XNNPACK copies no faster together than alone."""


def takes_elements(part: Sequence[Dim], order: Order, axis: int) -> bool:
    """Whether a base has the axis last of which a part has a few elements, and the value has not.

    Slices and concatenations there copy element by element; where the axis leads, whole blocks.
    """
    size = part[axis]
    if not isinstance(size, int) or size > FEW or axis == len(order) - 1:
        return False
    return order[axis] == len(order) - 1


def carried(op: XnnpackOp, value: SSAValue, order: Order) -> Order | None:
    """The order of a node's result if `value`, its operand or its result, has this order."""
    if isinstance(op, xnnpack.StaticReshape) and value is not op.output:
        found = reshaped_order(dims(op.input.type), dims(op.output.type), order)
    else:
        found = order if len(dims(op.output.type)) == len(order) else None
    return found if found is not None and carries(op, found) else None


def source_order(op: xnnpack.StaticReshape, order: Order) -> Order | None:
    """The order of a reshape's input that gives its result this one.

    Axes of size one may stand anywhere: where a transpose already has them, they stay.
    """
    before, after = dims(op.input.type), dims(op.output.type)
    found = reshaped_order(after, before, order)
    if found is None:
        return None
    owner = op.input.owner
    stands = owner.ints("perm") if isinstance(owner, xnnpack.StaticTranspose) else found
    return stands if are_alike(before, stands, found) else found


def are_alike(shape: Sequence[Dim], one: Order, other: Order) -> bool:
    """Whether two orders of a shape differ in where axes of size one stand, if at all."""
    first, second = ([a for a in inverse(o) if shape[a] != 1] for o in (one, other))
    return first == second


def reads_in(op: XnnpackOp, order: Order) -> Iterator[tuple[int, Order]]:
    """(operand, its order) of the operands that a node reads in another order with its result."""
    match op:
        case xnnpack.StaticReshape():
            source = source_order(op, order)
            assert source is not None
            yield 0, source
        case xnnpack.FullyConnected():
            yield 0, order
        case _:
            for index in range(len(op.operands)):
                yield index, order


def reshaped_order(before: Sequence[Dim], after: Sequence[Dim], order: Order) -> Order | None:
    """The order that a reshape's result has if its input has `order`; None if it has none."""
    found = aligned_axes(before, after)
    if found is None:
        return None
    standing = [axis for axis in inverse(order) if before[axis] != 1]
    groups = {sources[0]: (sources, targets) for sources, targets in found}
    placed: list[int] = []
    while standing:
        group = groups.get(standing[0])
        if group is None or tuple(standing[: len(group[0])]) != group[0]:
            return None
        placed.extend(group[1])
        del standing[: len(group[0])]
    waiting = iter(placed)
    base = [axis if size == 1 else next(waiting) for axis, size in enumerate(after)]
    return inverse(tuple(base))
