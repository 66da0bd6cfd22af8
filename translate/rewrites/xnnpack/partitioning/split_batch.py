"""Tiling: compute a batch in pieces where a whole batch does not fit in the cache.

Eight images of 112 by 112 pixels and 96 channels are 38 MB: each node writes them to memory, and
the next node reads them from there. Computed in pieces, the result of a node is still in the cache
when the next node reads it, and less memory is in use by the same factor. The axis maps say which
nodes can be split: each row of the result's first axis depends on the same part of the first axis
of each operand, or on all of an operand that is not split. Each piece costs the start of its nodes,
and each node packs weights of its own. A sequence of nodes is split only if the savings exceed
these costs.

Before:
    %a = xnnpack.batch_matrix_multiply(%x, %w) : (tensor<2x16384x1xf32>, tensor<1x1x128xf32>) -> tensor<2x16384x128xf32>
    %b = xnnpack.negate(%a) : (tensor<2x16384x128xf32>) -> tensor<2x16384x128xf32>
    %y = xnnpack.batch_matrix_multiply(%b, %v) : (tensor<2x16384x128xf32>, tensor<1x128x1xf32>) -> tensor<2x16384x1xf32>
After:
    %0 = xnnpack.static_slice(%x, offsets=[0, 0, 0], sizes=[1, 16384, 1]) : (tensor<2x16384x1xf32>) -> tensor<1x16384x1xf32>
    %1 = xnnpack.batch_matrix_multiply(%0, %w) : (tensor<1x16384x1xf32>, tensor<1x1x128xf32>) -> tensor<1x16384x128xf32>
    %2 = xnnpack.negate(%1) : (tensor<1x16384x128xf32>) -> tensor<1x16384x128xf32>
    %3 = xnnpack.batch_matrix_multiply(%2, %v) : (tensor<1x16384x128xf32>, tensor<1x128x1xf32>) -> tensor<1x16384x1xf32>
    %4 = xnnpack.static_slice(%x, offsets=[1, 0, 0], sizes=[1, 16384, 1]) : (tensor<2x16384x1xf32>) -> tensor<1x16384x1xf32>
    %5 = xnnpack.batch_matrix_multiply(%4, %w) : (tensor<1x16384x1xf32>, tensor<1x1x128xf32>) -> tensor<1x16384x128xf32>
    %6 = xnnpack.negate(%5) : (tensor<1x16384x128xf32>) -> tensor<1x16384x128xf32>
    %7 = xnnpack.batch_matrix_multiply(%6, %v) : (tensor<1x16384x128xf32>, tensor<1x128x1xf32>) -> tensor<1x16384x1xf32>
    %y = xnnpack.concatenate2(%3, %7, axis=0) : (tensor<1x16384x1xf32>, tensor<1x16384x1xf32>) -> tensor<2x16384x1xf32>
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from math import ceil, gcd, inf, log
from typing import ClassVar, cast

from xdsl.dialects.builtin import TensorType
from xdsl.ir import Block, Operation, SSAValue

from stepwell.dialects.xnnpack import XnnpackOp
from stepwell.dialects.xnnpack.base import constant_of
from stepwell.dialects.xnnpack.costs import Costs, costs_of
from stepwell.dialects.xnnpack.datatypes import DynamicInt8Type
from stepwell.ir.axes.boxes import Box, whole
from stepwell.ir.axes.maps import axis_map
from stepwell.ir.core import WeightOp
from stepwell.ir.diagnostics import describe_op, node_name, op_name
from stepwell.ir.program import Program
from stepwell.ir.rewriting.rewrite import Bound, Event, History, Pass, Rewriter
from stepwell.ir.types import dims, element, is_static
from stepwell.translate.rewrites.xnnpack.nodes.lower_shape import MOST_JOINED, concatenate
from stepwell.translate.rewrites.xnnpack.partitioning.partition import bytes_in_memory
from stepwell.translate.rewrites.xnnpack.partitioning.parts import cut_out, rebuilt

MOST_PIECES = 64
"""The largest number of pieces. With more, the starts of nodes cost what is saved."""
WORD = 4
"""Bytes of an element in the cost estimate."""


@dataclass(frozen=True)
class SplitBatch(Pass):
    """Compute sequences of nodes for a part of the batch at a time, if the cost model favors it."""

    name: ClassVar[str] = "split-batch"
    bound: ClassVar[Bound] = Bound(1e-5, 1e-6, "a product of fewer rows may sum in another order")

    def apply(self, program: Program, history: History) -> int:
        """Return the number of nodes that were split."""
        costs, count = costs_of(program.context), 0
        for func in program.methods.values():
            block = func.body.block
            while (best := _best(block, costs)) is not None:
                _write(best, program, history)
                count += len(best.nodes)
                program.report("runs of nodes split")
                program.report("pieces", best.pieces)
        return count


@dataclass(frozen=True)
class Stretch:
    """Consecutive nodes with the operands that they read in pieces, and the savings of a split."""

    nodes: Mapping[XnnpackOp, tuple[bool, ...]]
    before: Operation
    pieces: int
    saved: float


def _best(block: Block, costs: Costs) -> Stretch | None:
    """Return the most profitable sequence, if the values of a block exceed the cache."""
    rows = [
        cast("int", dims(value.type)[0])
        for op in block.ops
        if isinstance(op, XnnpackOp)
        for value in op.results
        if is_static(value.type) and bytes_in_memory(value) > costs.cache
    ]
    most = gcd(*rows)
    counts = [count for count in range(2, min(most, MOST_PIECES) + 1) if most % count == 0]
    found = [Nodes.of(block, count, costs).best() for count in counts]
    return max(filter(None, found), key=lambda stretch: stretch.saved, default=None)


@dataclass(frozen=True)
class Nodes:
    """The ops of a block in order, with the operands that each reads in pieces; None for an op that
    cannot be split.

    `opening` and `closing` are the costs of beginning and ending a split sequence before each op.
    """

    ops: Sequence[Operation]
    reads: Sequence[tuple[bool, ...] | None]
    opening: Sequence[float]
    closing: Sequence[float]
    pieces: int
    costs: Costs

    @classmethod
    def of(cls, block: Block, pieces: int, costs: Costs) -> Nodes:
        ops = [op for op in block.ops if not isinstance(op, WeightOp)]
        reads = [pieces_read(op, pieces) for op in ops]
        return cls(ops, reads, *_edges(block, ops, pieces, costs), pieces, costs)

    def best(self) -> Stretch | None:
        """Return the sequence that saves most and in which no node reads a whole value that is
        computed in pieces.
        """
        span, most = None, 0.0
        made: set[Operation] = set()
        start, saved, work = 0, -inf, 0.0
        for at, (op, reads) in enumerate(zip(self.ops, self.reads, strict=True)):
            parts = reads or (False,) * len(op.operands)
            is_whole = any(
                v.owner in made for v, part in zip(op.operands, parts, strict=True) if not part
            )
            if is_whole or saved < -self.opening[at]:
                made, start, saved, work = set(), at, -self.opening[at], 0.0
            if reads is None:
                continue
            made.add(op)
            saved += self._saved(op, reads)
            work += self._work(op)
            gain = saved - self.closing[at + 1]
            if gain > max(most, self.costs.worth * work):
                span, most = (start, at + 1), gain
        if span is None:
            return None
        start, end = span
        pairs = zip(self.ops[start:end], self.reads[start:end], strict=True)
        nodes = {cast("XnnpackOp", op): reads for op, reads in pairs if reads is not None}
        return Stretch(nodes, self.ops[end], self.pieces, most)

    def _saved(self, op: Operation, reads: Sequence[bool]) -> float:
        """Return the saved memory traffic, less the cost of additional nodes and packed weights."""
        values = [*(v for v, part in zip(op.operands, reads, strict=True) if part), op.results[0]]
        weights = [v for v, part in zip(op.operands, reads, strict=True) if not part]
        more = self.costs.node + self.costs.weight * sum(
            bytes_in_memory(value) / WORD for value in weights
        )
        return sum(map(self._way, values)) - (self.pieces - 1) * more

    def _way(self, value: SSAValue) -> float:
        """Return the memory traffic of a whole value beyond that of its pieces."""
        size = bytes_in_memory(value)
        return self.costs.missed(size) - self.pieces * self.costs.missed(size / self.pieces)

    def _work(self, op: Operation) -> float:
        """Return a lower bound of a node's nanoseconds from its elements and a layer's products."""
        made = bytes_in_memory(op.results[0]) / WORD
        weights = max(
            (bytes_in_memory(v) / WORD for v in op.operands if constant_of(v) is not None),
            default=0,
        )
        channels = cast("int", dims(op.results[0].type)[-1])
        return made * (self.costs.element + self.costs.product * weights / channels)


def pieces_read(op: Operation, pieces: int) -> tuple[bool, ...] | None:
    """Return the operands that a piece of the result reads in pieces; None if it has none."""
    axes = axis_map(op) if isinstance(op, XnnpackOp) and len(op.results) == 1 else None
    if axes is None or not _has_pieces(op.results[0], pieces):
        return None
    box = piece(op.results[0], 0, pieces)
    reads = [axes.reads(index, box) for index in range(len(op.operands))]
    values = list(zip(op.operands, reads, strict=True))
    parts = [_has_pieces(v, pieces) and read == piece(v, 0, pieces) for v, read in values]
    rest = [
        read == whole(v.type) for (v, read), part in zip(values, parts, strict=True) if not part
    ]
    return tuple(parts) if any(parts) and all(rest) else None


def _has_pieces(value: SSAValue, pieces: int) -> bool:
    """Whether the first axis can be cut into this many pieces."""
    shape = dims(value.type) if is_static(value.type) else ()
    return bool(shape) and cast("int", shape[0]) % pieces == 0 and constant_of(value) is None


def piece(value: SSAValue, index: int, pieces: int) -> Box:
    """Return the box of one piece."""
    (_, rows), *rest = whole(value.type)
    step = cast("int", rows) // pieces
    return ((index * step, (index + 1) * step), *rest)


def _edges(
    block: Block, ops: Sequence[Operation], pieces: int, costs: Costs
) -> tuple[list[float], list[float]]:
    """Return the nanoseconds of cutting and joining the values that are live at each op's start.

    Dynamically quantized rows have one scale each and can be neither cut nor joined.
    """
    place = {op: index for index, op in enumerate(ops)}
    opening, closing = [0.0] * (len(ops) + 1), [0.0] * (len(ops) + 1)
    copies = ceil(log(pieces, MOST_JOINED))
    values = [*block.args, *(value for op in ops for value in op.results)]
    for value in values:
        if not isinstance(value.type, TensorType) or not _has_pieces(value, pieces):
            continue
        size = bytes_in_memory(value)
        copied = size / WORD * costs.slice
        cut = copied + costs.missed(size) + pieces * costs.node
        join = copies * copied + costs.missed(size) + pieces * costs.node
        if isinstance(element(value.type), DynamicInt8Type):
            cut = join = inf
        readers = (block.find_ancestor_op_in_block(use.operation) for use in value.uses)
        first = place[value.owner] if isinstance(value.owner, Operation) else -1
        for at in range(first + 1, max((place[op] for op in readers if op), default=-1) + 1):
            opening[at] += cut
            closing[at] += join
    return opening, closing


def _write(stretch: Stretch, program: Program, history: History) -> None:
    """Build every node for one piece after another, then join the values that other ops read."""
    anchor, pieces = Rewriter(stretch.before, program), stretch.pieces
    made: dict[SSAValue, list[SSAValue]] = {op.results[0]: [] for op in stretch.nodes}
    cuts: dict[tuple[SSAValue, int], SSAValue] = {}

    def part(value: SSAValue, index: int) -> SSAValue:
        if value in made:
            return made[value][index]
        if (value, index) not in cuts:
            box = piece(value, index, pieces)
            cuts[value, index] = cut_out(anchor, value, whole(value.type), box)
        return cuts[value, index]

    for index in range(pieces):
        for op, reads in stretch.nodes.items():
            operands = [
                part(value, index) if cut else value
                for value, cut in zip(op.operands, reads, strict=True)
            ]
            new = anchor.insert(rebuilt(op, operands, piece(op.results[0], index, pieces)))
            new.location = op.location
            made[op.results[0]].append(new.results[0])
    nodes = stretch.nodes
    for op in reversed([*nodes]):
        (value,) = op.results
        if any(use.operation not in nodes for use in value.uses):
            whole_again = concatenate(anchor, made[value], 0)
            whole_again.name_hint = value.name_hint
            value.replace_uses_with_if(whole_again, lambda use: use.operation not in nodes)
        root = (op_name(op), node_name(op.location))
        event = Event(SplitBatch.name, root, (root,), (root,) * pieces, describe_op(op))
        history.events.append(event)
    for op in reversed([*nodes]):
        op.detach()
        op.erase()
