"""The order of operators in which the fewest bytes are alive at the busiest moment.

Exact for graphs of few branches: every set of operators that can have run is a state, a step runs
one more, and the path whose busiest step is the least is found best first. Graphs of more than
`MOST` states keep their order, and so do those whose own is as good; where one operator's operands
and results alone are the busiest moment (most chains), nothing is searched.
"""

from __future__ import annotations

import heapq
from collections.abc import Sequence
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

MOST = 2_000


@dataclass(frozen=True)
class OrderOperators(Pass):
    """Operators in the order that needs the least memory."""

    name: ClassVar[str] = "order-operators"

    def apply(self, program: Program, history: History) -> int:
        """The number of methods whose order changed."""
        return sum(_reorder(func) for func in program.methods.values())


def lower_bound(func: FuncOp) -> int | None:
    """Bytes that no order of a method's operators gets below; None where they run row by row.

    By search over all orders, and where they are too many, by its largest operator.
    """
    operators = _operators(func)
    if not operators or not all(map(_is_known, operators)):
        return None
    graph = Graph(operators, func.body.block.last_op)
    order = least(graph)
    return graph.unavoidable() if order is None else graph.busiest(order)


def _operators(func: FuncOp) -> list[Operation]:
    return [op for op in func.body.block.ops if not isinstance(op, WeightOp | ReturnOp)]


def _reorder(func: FuncOp) -> bool:
    block = func.body.block
    operators = _operators(func)
    if not operators or not all(map(_is_known, operators)):
        return False
    graph = Graph(operators, block.last_op)
    own = graph.busiest(range(len(operators)))
    if own <= graph.unavoidable():
        return False
    order = least(graph)
    if order is None or graph.busiest(order) >= own:
        return False
    last = block.last_op
    assert last is not None
    for index in order:
        operators[index].detach()
        block.insert_op_before(operators[index], last)
    return True


def _is_known(op: Operation) -> bool:
    """Whether an op computes results of known sizes and does nothing else."""
    if isinstance(op, Part | Join | Copy) or op.regions or not is_pure(op):
        return False
    return isinstance(op, CmsisOp | SchemaOp | StorageCast) and all(
        is_static(value.type) for value in (*op.operands, *op.results)
    )


class Graph:
    """Operators by index: what each reads, makes and needs beside."""

    def __init__(self, held: Sequence[Operation], last: Operation | None) -> None:
        index = {op: i for i, op in enumerate(held)}
        roots: dict[SSAValue, SSAValue] = {}
        self.count = len(held)
        self.needs = [0] * len(held)
        """The operators before each, as bits."""
        self.is_view = [_is_view(op) for op in held]
        """Ops whose result is their operand's bytes."""
        self.extra = [_scratch(op) for op in held]
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
        """Bytes, who makes them (none: an input), who reads them, whether they are a result."""

    def alive(self, done: int) -> int:
        """Bytes that are made and still needed when a set of operators has run."""
        return sum(
            size
            for size, maker, readers, kept in self.buffers
            if (not maker or maker & done) and (kept or readers & ~done)
        )

    def step(self, done: int, index: int) -> int:
        """Bytes alive while an operator runs."""
        made = sum(map(_bytes, self.makes[index]))
        return self.alive(done) + made + self.extra[index]

    def unavoidable(self) -> int:
        """What the operands and results of one operator take, whatever the order."""
        return max(
            sum(size for size, maker, readers, _ in self.buffers if (maker | readers) >> i & 1)
            + self.extra[i]
            for i in range(self.count)
        )

    def busiest(self, order: Sequence[int]) -> int:
        """The most bytes alive at a step of an order."""
        done = most = 0
        for index in order:
            most = max(most, self.step(done, index))
            done |= 1 << index
        return most


def _is_view(op: Operation) -> bool:
    return isinstance(op, StorageCast | Relabel) or only_reshapes(op)


def least(graph: Graph) -> list[int] | None:
    """An order whose busiest step is the least there is; None beyond `MOST` states."""
    whole = (1 << graph.count) - 1
    queue: list[tuple[int, int, int, tuple[int, ...]]] = [(0, 0, 0, ())]
    seen: set[int] = set()
    while queue:
        peak, _, done, order = heapq.heappop(queue)
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
            after = max(peak, graph.step(done, i))
            heapq.heappush(queue, (after, -len(order), done | 1 << i, (*order, i)))
    return None


def _bytes(value: SSAValue) -> int:
    value_quantization = quantization(value.type)
    stored = (
        element(cast(AnyTensor, value.type))
        if value_quantization is None
        else storage_element(value_quantization)
    )
    return prod(cast("tuple[int, ...]", dims(value.type))) * element_bytes(stored)


def _scratch(op: Operation) -> int:
    if not isinstance(op, CmsisOp):
        return 0
    return sum(op.number(name) for name in ("scratch", "output_scratch") if name in op.properties)
