"""Which part of each operand a node needs for a part of its result: a box of ranges, by axis.

A box has a range `(start, stop)` for each axis of a tensor. `needed` answers for one node: the box
of the result that it can compute alone (at least what was asked for) and, for each operand, the
box it reads for that. Axes are followed through reshapes by element order, never by size.
"""

from __future__ import annotations

from collections.abc import Sequence
from math import prod

from xdsl.ir import Attribute, Operation, SSAValue

from stepwell.dialects import xnnpack
from stepwell.dialects.xnnpack import XnnpackOp
from stepwell.dialects.xnnpack.datatypes import DynamicInt8Type
from stepwell.dialects.xnnpack.elementwise import Binary, Unary
from stepwell.dialects.xnnpack.movement import Concatenate
from stepwell.ir.types import Dim, dims, element

Range = tuple[Dim, Dim]
Box = tuple[Range, ...]
"""For each axis what is read; a symbolic axis is read whole, `(0, its size)`."""


def whole(type_: Attribute) -> Box:
    """All of a tensor."""
    return tuple((0, size) for size in dims(type_))


def nothing(type_: Attribute) -> Box:
    """None of a tensor."""
    return tuple((0, 0) for _ in dims(type_))


def is_nothing(box: Box) -> bool:
    """Whether a box holds no element."""
    return any(start == stop for start, stop in box)


def join(first: Box, second: Box) -> Box:
    """The least box that holds two boxes of one tensor."""
    if is_nothing(first) or is_nothing(second):
        return second if is_nothing(first) else first
    return tuple(
        a if a == b or not all(isinstance(end, int) for end in (*a, *b)) else _hull(a, b)
        for a, b in zip(first, second, strict=True)
    )


def _hull(first: Range, second: Range) -> Range:
    (a, b), (c, d) = first, second
    assert isinstance(a, int) and isinstance(b, int) and isinstance(c, int) and isinstance(d, int)
    return min(a, c), max(b, d)


def shape_of(box: Box) -> tuple[Dim, ...]:
    """The shape of a box's elements."""
    return tuple(
        stop - start if isinstance(start, int) and isinstance(stop, int) else stop
        for start, stop in box
    )


def needed(op: Operation, box: Box) -> tuple[Box, tuple[Box, ...]] | None:
    """What a node reads for a box of its result; None if it must compute all of it.

    Returns:
        The box it then computes, which holds `box`, and a box for each operand, perhaps of nothing.
    """
    match op:
        case xnnpack.StaticSlice():
            return box, (sliced(op, box),)
        case xnnpack.StaticTranspose():
            perm = op.ints("perm")
            return box, (tuple(box[perm.index(axis)] for axis in range(len(perm))),)
        case xnnpack.StaticReshape():
            return _reshaped(op, box)
        case xnnpack.FullyConnected():
            rest = tuple(whole(value.type) for value in op.operands[1:])
            (inner,) = whole(op.input.type)[-1:]
            return _widened(op, box, 1), ((*box[:-1], inner), *rest)
        case xnnpack.BatchMatrixMultiply():
            return box, _factors(op, box)
        case Concatenate():
            return _parts(op, box)
        case xnnpack.Softmax():
            wide = _widened(op, box, 1)
            return wide, (wide,)
        case xnnpack.Convert() if isinstance(held := element(op.output.type), DynamicInt8Type):
            wide = _widened(op, box, held.data)
            return wide, (wide,)
        case xnnpack.PReLU():
            return None
        case Unary() | Binary():
            return box, tuple(_broadcast(value, box) for value in op.operands)
        case _:
            return None


def sliced(op: xnnpack.StaticSlice, box: Box) -> Box:
    """The box of a slice's input that is a box of its result."""
    found: list[Range] = []
    for offset, (start, stop) in zip(op.ints("offsets"), box, strict=True):
        if isinstance(start, int) and isinstance(stop, int):
            found.append((start + offset, stop + offset))
        else:
            found.append((start, stop))
    return tuple(found)


def _widened(op: XnnpackOp, box: Box, axes: int) -> Box:
    """A box with the last axes whole."""
    return (*box[: len(box) - axes], *whole(op.output.type)[len(box) - axes :])


def _broadcast(value: SSAValue, box: Box) -> Box:
    """The box of an elementwise operand, which may have fewer axes or axes of size one."""
    sizes = dims(value.type)
    aligned = box[len(box) - len(sizes) :]
    return tuple((0, 1) if size == 1 else asked for size, asked in zip(sizes, aligned, strict=True))


def _factors(op: xnnpack.BatchMatrixMultiply, box: Box) -> tuple[Box, Box]:
    left, right = whole(op.left.type), whole(op.right.type)
    batch, rows, columns = box[:-2], box[-2], box[-1]
    over = [
        tuple(
            (0, 1) if size == 1 else asked
            for size, asked in zip(
                dims(value.type)[:-2], batch[len(batch) - len(held) + 2 :], strict=True
            )
        )
        for value, held in ((op.left, left), (op.right, right))
    ]
    last = (columns, right[-1]) if op.flag("transpose_b") else (right[-2], columns)
    return (*over[0], rows, left[-1]), (*over[1], *last)


def _parts(op: Concatenate, box: Box) -> tuple[Box, tuple[Box, ...]] | None:
    """The boxes of concatenated tensors; nothing of those that a box does not touch."""
    at = op.integer("axis", 0)
    start, stop = box[at]
    reads: list[Box] = []
    begin = 0
    for value in op.operands:
        size = dims(value.type)[at]
        if not (isinstance(size, int) and isinstance(start, int) and isinstance(stop, int)):
            return None
        first, last = max(start - begin, 0), min(stop - begin, size)
        part = (*box[:at], (first, last), *box[at + 1 :])
        reads.append(part if first < last else nothing(value.type))
        begin += size
    return box, tuple(reads)


def _reshaped(op: XnnpackOp, box: Box) -> tuple[Box, tuple[Box, ...]] | None:
    """Axes that stay, and the leading part of axes that are split or merged."""
    before, after = _static(op.operands[0].type), _static(op.output.type)
    if before is None:
        return None
    assert after is not None, "a reshape of known sizes has known sizes"
    asked, made = [*whole(op.operands[0].type)], [*whole(op.output.type)]
    for sources, targets in aligned_axes(before, after) or ():
        cut = [axis for axis in targets if box[axis] != made[axis]]
        if not cut:
            continue
        lead, (start, stop) = targets[0], box[cut[0]]
        if cut != [lead] or not isinstance(start, int) or not isinstance(stop, int):
            continue
        inner = prod(after[axis] for axis in targets[1:])
        unit = prod(before[axis] for axis in sources[1:])
        if start * inner % unit or stop * inner % unit:
            continue
        made[lead] = (start, stop)
        asked[sources[0]] = (start * inner // unit, stop * inner // unit)
    return tuple(made), (tuple(asked),)


def aligned_axes(
    before: Sequence[Dim], after: Sequence[Dim]
) -> list[tuple[tuple[int, ...], tuple[int, ...]]] | None:
    """The finest groups of axes, in order, that hold the same elements on both sides of a reshape.

    Axes of size one belong to none: they say nothing about the order of elements. None where a
    symbolic axis is split or merged, whose parts cannot be compared.
    """
    groups: list[tuple[tuple[int, ...], tuple[int, ...]]] = []
    left = [axis for axis, size in enumerate(before) if size != 1]
    right = [axis for axis, size in enumerate(after) if size != 1]
    i = j = 0
    while i < len(left):
        sources, targets = [left[i]], [right[j]]
        first, second = before[left[i]], after[right[j]]
        i, j = i + 1, j + 1
        while first != second:
            if isinstance(first, str) or isinstance(second, str):
                return None
            if first < second:
                axis, size = left[i], before[left[i]]
                sources.append(axis)
                first = size if isinstance(size, str) else first * size
                i += 1
            else:
                axis, size = right[j], after[right[j]]
                targets.append(axis)
                second = size if isinstance(size, str) else second * size
                j += 1
        groups.append((tuple(sources), tuple(targets)))
    return groups


def _static(type_: Attribute) -> tuple[int, ...] | None:
    shape = dims(type_)
    sizes = tuple(size for size in shape if isinstance(size, int))
    return sizes if len(sizes) == len(shape) else None
