"""Scheduling: order the operators so that the peak of live bytes is least.

The search is exact for graphs with few branches. Every set of operators that have run is a state,
and a transition runs one more operator. Best-first search finds the path with the lowest peak of
live bytes. Graphs of more than `MOST` states keep their order, and so do graphs whose own order is
as good. If the peak is that of one operator's operands and results alone (most chains), no search
is done.
"""

from __future__ import annotations

import heapq
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from math import prod
from typing import ClassVar, cast

from xdsl.dialects.func import FuncOp, ReturnOp
from xdsl.ir import Operation, SSAValue

from stepwell.dialects.aten.op import SchemaOp
from stepwell.dialects.aten.reshapes import only_reshapes
from stepwell.dialects.cmsis.ops import CmsisOp, Copy, Join, Part, Relabel
from stepwell.dialects.quant import StorageCast
from stepwell.dialects.quant.types import quantization, storage_element
from stepwell.ir.core import WeightOp
from stepwell.ir.dtypes import element_bytes
from stepwell.ir.program import Program
from stepwell.ir.rewriting.rewrite import History, Pass
from stepwell.ir.side_effects import is_pure
from stepwell.ir.types import AnyTensor, dims, element, is_static
from stepwell.translate.rewrites.cmsis.layout.stream_rows import scratch_of

MOST = 2_000


@dataclass(frozen=True)
class OrderOperators(Pass):
    """Order operators so that they need the least memory."""

    name: ClassVar[str] = "order-operators"

    def apply(self, program: Program, history: History) -> int:
        """Return the number of methods whose order changed."""
        return sum(_reorder(func) for func in program.methods.values())


def lower_bound(func: FuncOp) -> int | None:
    """Return a lower bound on the peak of bytes over all orders; None where ops run row by row.

    It is the optimum of a search over all orders, or, if there are too many orders, the size of the
    largest operator.
    """
    graph = _graph_of(func)
    if graph is None:
        return None
    order = least(graph)
    return graph.unavoidable() if order is None else graph.busiest(order)


def _graph_of(func: FuncOp) -> OperatorGraph | None:
    """Return the operators of a method as a graph, if all of them are known."""
    block = func.body.block
    operators = [op for op in block.ops if not isinstance(op, WeightOp | ReturnOp)]
    is_known = bool(operators) and all(map(_is_known, operators))
    return OperatorGraph(operators, block.last_op) if is_known else None


def _reorder(func: FuncOp) -> bool:
    graph = _graph_of(func)
    if graph is None:
        return False
    own = graph.busiest(range(graph.count))
    if own <= graph.unavoidable():
        return False
    order = least(graph)
    if order is None or graph.busiest(order) >= own:
        return False
    block = func.body.block
    last = block.last_op
    assert last is not None
    for index in order:
        graph.operators[index].detach()
        block.insert_op_before(graph.operators[index], last)
    return True


def _is_known(op: Operation) -> bool:
    """Whether an op computes results of known sizes and has no side effects."""
    if isinstance(op, Part | Join | Copy) or op.regions or not is_pure(op):
        return False
    return isinstance(op, CmsisOp | SchemaOp | StorageCast) and all(
        is_static(value.type) for value in (*op.operands, *op.results)
    )


class OperatorGraph:
    """Operators by index, with the values that each one reads, writes and needs as scratch."""

    def __init__(self, held: Sequence[Operation], last: Operation | None) -> None:
        index = {op: i for i, op in enumerate(held)}
        roots: dict[SSAValue, SSAValue] = {}
        self.operators, self.count = held, len(held)
        self.needs = [0] * len(held)
        """The operators before each, as bits."""
        self.is_view = [_is_view(op) for op in held]
        """Ops whose result shares its operand's bytes."""
        readers: dict[SSAValue, int] = {}
        self.makes: list[list[SSAValue]] = []
        for i, op in enumerate(held):
            for operand in op.operands:
                if isinstance(operand.owner, WeightOp):
                    continue
                if isinstance(operand.owner, Operation):
                    self.needs[i] |= 1 << index[operand.owner]
                root = roots.get(operand, operand)
                readers[root] = readers.get(root, 0) | 1 << i
            if self.is_view[i]:
                roots[op.results[0]] = roots.get(op.operands[0], op.operands[0])
            self.makes.append([] if self.is_view[i] else list(op.results))
        self.adds = [
            sum(map(_bytes, made)) + scratch_of(op)
            for made, op in zip(self.makes, held, strict=True)
        ]
        """The bytes of the results and scratch of each."""
        kept = {roots.get(v, v) for v in last.operands} if last is not None else set[SSAValue]()
        self.buffers = [
            (
                _bytes(root),
                1 << index[root.owner] if root.owner in index else 0,  # pyright: ignore
                readers.get(root, 0),
                root in kept,
            )
            for root in {*readers, *(v for made in self.makes for v in made)}
            if not isinstance(root.owner, WeightOp)
        ]
        """Bytes, producers (none: an input), readers, and whether the value is a result."""
        self.touched = [
            [buffer for buffer in self.buffers if (buffer[1] | buffer[2]) >> i & 1]
            for i in range(self.count)
        ]
        """The buffers that each writes or reads."""

    def grows(self, done: int, index: int) -> int:
        """Return by how much the live bytes grow when an operator has run after others."""
        touched = self.touched[index]
        return _alive(touched, done | 1 << index) - _alive(touched, done)

    def unavoidable(self) -> int:
        """Return the bytes of the operands and results of one operator, in any order."""
        return max(
            sum(size for size, *_ in touched) + scratch_of(op)
            for touched, op in zip(self.touched, self.operators, strict=True)
        )

    def busiest(self, order: Sequence[int]) -> int:
        """Return the peak number of live bytes if the ops run in this order."""
        done = most = 0
        live = _alive(self.buffers, done)
        for index in order:
            most = max(most, live + self.adds[index])
            live += self.grows(done, index)
            done |= 1 << index
        return most


def _alive(buffers: Iterable[tuple[int, int, int, bool]], done: int) -> int:
    """Return the bytes of the buffers that are live when a set of operators has run."""
    return sum(
        size
        for size, maker, readers, kept in buffers
        if (not maker or maker & done) and (kept or readers & ~done)
    )


def _is_view(op: Operation) -> bool:
    return isinstance(op, StorageCast | Relabel) or only_reshapes(op)


def least(graph: OperatorGraph) -> list[int] | None:
    """Return an order of the operators with the lowest peak; None beyond `MOST` states."""
    whole = (1 << graph.count) - 1
    begins = _alive(graph.buffers, 0)
    queue: list[tuple[int, int, int, tuple[int, ...], int]] = [(0, 0, 0, (), begins)]
    seen: set[int] = set()
    while queue:
        peak, _, done, order, live = heapq.heappop(queue)
        if done in seen:
            continue
        seen.add(done)
        if done == whole:
            return list(order)
        if len(seen) > MOST:
            return None
        ready = [i for i in range(graph.count) if not done >> i & 1 and not graph.needs[i] & ~done]
        views = [i for i in ready if graph.is_view[i]]
        for i in views[:1] or ready:
            after, then = max(peak, live + graph.adds[i]), live + graph.grows(done, i)
            heapq.heappush(queue, (after, -len(order), done | 1 << i, (*order, i), then))
    return None


def _bytes(value: SSAValue) -> int:
    value_quantization = quantization(value.type)
    stored = (
        element(cast(AnyTensor, value.type))
        if value_quantization is None
        else storage_element(value_quantization)
    )
    return prod(cast("tuple[int, ...]", dims(value.type))) * element_bytes(stored)
