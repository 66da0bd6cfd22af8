"""Narrowing: compute only the part of a tensor that later nodes read.

A classifier that reads the class token alone needs one row of the last block: of its MLP, its
output projection and its queries. It needs the keys and values of all tokens. The pass propagates
the parts that are read from the slices up through every node that works on each row separately. It
narrows a connected set of nodes if that saves more multiplications and copies than the new slices
at the edge of the set cost. No node can slice from the end of an axis of dynamic length. Such a
slice is left to a kernel, and moves up as far as possible, at best to an input.

Before:
    %a = xnnpack.exp(%x) : (tensor<1x5x4xf32>) -> tensor<1x5x4xf32>
    %y = xnnpack.static_slice(%a, offsets=[0, 0, 0], sizes=[1, 1, 4]) : (tensor<1x5x4xf32>) -> tensor<1x1x4xf32>
After:
    %0 = xnnpack.static_slice(%x, offsets=[0, 0, 0], sizes=[1, 1, 4]) : (tensor<1x5x4xf32>) -> tensor<1x1x4xf32>
    %y = xnnpack.exp(%0) : (tensor<1x1x4xf32>) -> tensor<1x1x4xf32>
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any, ClassVar

from xdsl.dialects.builtin import TensorType
from xdsl.ir import Block, Operation, SSAValue

from stepwell.dialects import aten, xnnpack
from stepwell.dialects.xnnpack import XnnpackOp
from stepwell.dialects.xnnpack.base import constant_of
from stepwell.dialects.xnnpack.costs import costs_of
from stepwell.dialects.xnnpack.datatypes import DynamicInt8Type
from stepwell.dialects.xnnpack.elementwise import Binary, PReLU, Unary
from stepwell.dialects.xnnpack.movement import Concatenate
from stepwell.ir.axes.boxes import (
    Box,
    elements,
    estimated,
    is_nothing,
    join,
    nothing,
    whole,
)
from stepwell.ir.axes.maps import axis_map
from stepwell.ir.core import weight_key
from stepwell.ir.diagnostics import describe_op, node_name, op_name
from stepwell.ir.program import Program
from stepwell.ir.rewriting.rewrite import Bound, Event, History, Pass, Rewriter
from stepwell.ir.sizes.size import Size, settled
from stepwell.ir.traversal import connected, makers_and_readers
from stepwell.ir.types import dims, element, is_static
from stepwell.translate.rewrites.building import TO_THE_END, axis
from stepwell.translate.rewrites.xnnpack.nodes.lower_shape import concatenate
from stepwell.translate.rewrites.xnnpack.partitioning.parts import cut_out, rebuilt


@dataclass(frozen=True)
class Narrowed:
    """The part of a result that an op will compute, and the parts of its operands that it reads."""

    made: Box
    reads: tuple[Box, ...]


@dataclass(frozen=True)
class NarrowToWhatIsRead(Pass):
    """Rebuild nodes so that they compute only the part of their result that is read."""

    name: ClassVar[str] = "narrow-to-what-is-read"
    bound: ClassVar[Bound] = Bound(1e-5, 1e-6, "a product of fewer rows sums in another order")

    def apply(self, program: Program, history: History) -> int:
        """Return the number of nodes that compute a smaller part of their result."""
        count, copy = 0, costs_of(program.context).products_a_copy
        for func in program.methods.values():
            block = func.body.block
            found = demands(block)
            kept = {
                op
                for part in connected(found, makers_and_readers)
                if gains(part, found, copy)
                for op in part
            }
            if kept:
                _write(block, {op: found[op] for op in kept}, program, history)
            count += len(kept)
        return count


def demands(block: Block) -> dict[Operation, Narrowed]:
    """Return the nodes of a block whose results are read only in part."""
    asked: dict[SSAValue, Box] = {}
    found: dict[Operation, Narrowed] = {}
    for op in reversed(tuple(block.ops)):
        reads: tuple[Box, ...] | None = None
        if isinstance(op, XnnpackOp) and len(op.results) == 1:
            box, full = asked.get(op.output, nothing(op.output.type)), whole(op.output.type)
            is_part = box != full or isinstance(op, xnnpack.StaticSlice)
            narrowed = _reads(op, box) if is_part else None
            if narrowed is not None:
                made, reads = narrowed
                if made != full:
                    found[op] = Narrowed(made, reads)
        if (cut := cut_by_kernel(op)) is not None:
            reads = (cut,)
        for index, value in enumerate(op.operands):
            box = reads[index] if reads is not None else whole_or_nothing(value)
            asked[value] = join(asked[value], box) if value in asked else box
        for region in op.regions:
            for inner in region.walk():
                asked.update((value, whole_or_nothing(value)) for value in inner.operands)
    return found


def _reads(op: XnnpackOp, box: Box) -> tuple[Box, tuple[Box, ...]] | None:
    """Return the boxes that a narrowed node computes and reads; None if it computes its whole
    result.

    A node whose result is unused reads nothing.
    """
    if is_nothing(box) and not is_nothing(whole(op.output.type)):
        return box, tuple(nothing(value.type) for value in op.operands)
    axes = axis_map(op) if _takes_parts(op) else None
    if axes is None:
        return None
    computable = axes.computable(box)
    return computable, tuple(axes.reads(index, computable) for index in range(len(op.operands)))


def whole_or_nothing(value: SSAValue) -> Box:
    """Return the box of a whole tensor; values of other types have no axes."""
    return whole(value.type) if isinstance(value.type, TensorType) else ()


NARROWED = (
    xnnpack.StaticSlice,
    xnnpack.StaticTranspose,
    xnnpack.StaticReshape,
    Concatenate,
    Unary,
    Binary,
    xnnpack.FullyConnected,
    xnnpack.BatchMatrixMultiply,
)
"""Nodes whose fields do not state the size of the result, or that are built again."""


def _takes_parts(op: XnnpackOp) -> bool:
    """Whether a node can be rebuilt for a part of its result, with parts of its operands.

    A constant that gets its type from a cast cannot be cut. The shape of a reshape cannot be
    written where a size that no field states is symbolic.
    """
    if not isinstance(op, NARROWED) or isinstance(op, PReLU):
        return False
    if isinstance(op, xnnpack.StaticReshape):
        return is_static(op.input.type)
    return isinstance(op, xnnpack.FullyConnected) or all(
        constant_of(value) is None or weight_key(value) is not None for value in op.operands
    )


def cut_by_kernel(op: Operation) -> Box | None:
    """Return the part of a slice that reads constant distances from a dynamic axis' ends."""
    if not isinstance(op, aten.SliceTensor):
        return None
    shape = dims(op.operands[0].type)
    at = axis(op.arg("dim"), len(shape))
    size, ends = shape[at], (op.arg("start"), op.arg("end"))
    if not isinstance(size, Size) or not all(isinstance(end, int) for end in ends):
        return None
    start, stop = (end if 0 <= end < TO_THE_END else size + min(end, 0) for end in ends)
    stop = size if ends[1] == TO_THE_END else stop
    if settled(Size.of(stop) - start) != dims(op.results[0].type)[at]:
        return None
    return tuple((start, stop) if i == at else (0, d) for i, d in enumerate(shape))


def gains(part: Iterable[Operation], found: Mapping[Operation, Narrowed], copy: float) -> bool:
    """Whether the narrowed nodes with the slices at their edge cost less than the original nodes.

    `copy` is the cost of reading and writing one element, in multiplications of a matrix product.
    """
    before = after = 0.0
    edges: set[tuple[SSAValue, Box]] = set()
    readers: set[Operation] = set()
    for op in part:
        narrowed = found[op]
        if not isinstance(op, xnnpack.StaticSlice):
            before += _work(op, whole(op.results[0].type), copy)
            after += _work(op, narrowed.made, copy)
        edges |= _edges(op.operands, narrowed.reads, found)
        readers |= {use.operation for use in op.results[0].uses}
    for reader in readers - set(part):
        cut = sliced(reader) if isinstance(reader, xnnpack.StaticSlice) else cut_by_kernel(reader)
        if cut is not None:
            before += copy * elements(whole(reader.results[0].type))
            edges |= _edges(reader.operands[:1], [cut], found)
    after += copy * sum(elements(box) for value, box in edges if weight_key(value) is None)
    return after < before


def _edges(
    values: Iterable[SSAValue], boxes: Iterable[Box], found: Mapping[Operation, Narrowed]
) -> set[tuple[SSAValue, Box]]:
    """Return the operands that must be sliced, with the box that is read of each."""

    def has(value: SSAValue) -> Box:
        maker = value.owner
        narrowed = found.get(maker) if isinstance(maker, Operation) else None
        return whole_or_nothing(value) if narrowed is None else narrowed.made

    return {
        (value, box)
        for value, box in zip(values, boxes, strict=True)
        if not is_nothing(box) and box != has(value)
    }


def sliced(op: xnnpack.StaticSlice, box: Box | None = None) -> Box:
    """Return the box of a slice's input for a box of its result (by default all of it)."""
    axes = axis_map(op)
    assert axes is not None
    return axes.reads(0, whole(op.output.type) if box is None else box)


def _work(op: Operation, box: Box, copy: float) -> float:
    """Return the cost of a node, in multiplications."""
    size = elements(box)
    if isinstance(op, xnnpack.FullyConnected | xnnpack.BatchMatrixMultiply):
        inner = dims(op.operands[0].type)[-1]
        return size * estimated(inner)
    return 0 if isinstance(op, xnnpack.StaticReshape) else copy * size


def _write(
    block: Block, found: dict[Operation, Narrowed], program: Program, history: History
) -> None:
    """Rebuild narrowed nodes in order, and the slices that they read, each slice once."""
    scopes: dict[Any, Any] = {}
    made: dict[SSAValue, tuple[SSAValue, Box]] = {}
    cuts: dict[tuple[SSAValue, Box], SSAValue] = {}

    def part_of(rw: Rewriter, value: SSAValue, box: Box) -> SSAValue:
        if (value, box) not in cuts:
            source, have = made.get(value, (value, whole(value.type)))
            maker = value.owner
            if have == box:
                cuts[value, box] = source
            elif (
                isinstance(maker, xnnpack.Convert)
                and isinstance(element(value.type), DynamicInt8Type)
            ):  # Rows with one scale each cannot be sliced. The value that they are computed from can.
                rows = part_of(rw, maker.input, box)
                cuts[value, box] = rw.insert(rebuilt(maker, [rows], box)).results[0]
            else:
                cuts[value, box] = cut_out(rw, source, have, box)
        return cuts[value, box]

    for op in tuple(block.ops):
        narrowed, cut = found.get(op), cut_by_kernel(op)
        source = op.operands[0] if cut or isinstance(op, xnnpack.StaticSlice) else None
        if narrowed is None and source not in made:
            continue
        root = (op_name(op), node_name(op.location))
        if narrowed is not None and is_nothing(narrowed.made):
            history.events.append(
                Event(NarrowToWhatIsRead.name, root, (root,), (), describe_op(op))
            )
            continue
        rw, result = Rewriter(op, program, scopes), op.results[0]
        if cut is not None:
            box = whole(result.type)
            new = part_of(rw, op.operands[0], cut)
        elif isinstance(op, xnnpack.StaticSlice):
            box = narrowed.made if narrowed else whole(op.output.type)
            new = part_of(rw, op.input, sliced(op, box))
        else:
            assert narrowed is not None and isinstance(op, XnnpackOp)
            box = narrowed.made
            operands = [
                part_of(rw, value, read)
                for value, read in zip(op.operands, narrowed.reads, strict=True)
                if not is_nothing(read)
            ]
            if isinstance(op, Concatenate):
                new = concatenate(rw, operands, op.integer("axis", 0))
            else:
                new = rw.insert(rebuilt(op, operands, box)).results[0]
        new.name_hint = new.name_hint or result.name_hint
        made[result] = (new, box)
        history.events.append(
            Event(NarrowToWhatIsRead.name, root, (root,), (root,), describe_op(op))
        )
        if box == whole(result.type):
            result.replace_all_uses_with(new)
    for op in reversed(tuple(block.ops)):
        is_slice = isinstance(op, xnnpack.StaticSlice) or cut_by_kernel(op) is not None
        if (op in found or is_slice) and not op.results[0].first_use:
            op.detach()
            op.erase()
