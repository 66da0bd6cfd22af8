"""Scheduling: choose the calls that run row by row, so that a program's activations fit the arena.

Layer by layer, a net needs at least the operands and results of the largest layer. Row by row, the
net needs less: a result reuses the rows of its operand once they are dead, and a value between two
layers never exists as a whole (`translate/memory/rows.py`). No multiplication is repeated. The cost
is additional calls, each of which has a few tensors in the runtime's records.

The choice is a shortest path. Nodes are the positions between the program's kernel calls. Edges are
unchanged calls and runs of image ops as streams in tiles of some height, each with its peak of live
bytes and its number of additional calls. For a limit in bytes, the path with the fewest additional
calls over edges below the limit is used; the plan of the emitted program decides.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from math import inf, prod
from typing import ClassVar, cast

from xdsl.dialects.builtin import IntegerAttr, TensorType, i64
from xdsl.dialects.func import FuncOp, ReturnOp
from xdsl.ir import BlockArgument, Operation, SSAValue

from stepwell.backends.cortex_m.emit import emit
from stepwell.backends.cortex_m.read import stated_target
from stepwell.backends.executorch.kernels.kernel_calls import is_reshape
from stepwell.dialects.aten.op import SchemaOp
from stepwell.dialects.cmsis.ops import QuantizedActivation
from stepwell.dialects.cmsis.ops.places import IN_PLACE, is_view
from stepwell.dialects.cmsis.target import Target
from stepwell.dialects.quant import StorageCast
from stepwell.dialects.quant.types import stored_dtype
from stepwell.ir.core import WeightOp
from stepwell.ir.diagnostics import UnsupportedError
from stepwell.ir.program import Program
from stepwell.ir.rewriting.rewrite import History, Pass
from stepwell.ir.types import dims, is_static
from stepwell.translate.memory.rows import schedule, usage
from stepwell.translate.rewrites.cmsis.layout.stream_rows import (
    ELEMENTWISE,
    Segment,
    images,
    scratch_of,
    segment_of,
    write_stream,
)

CALL_BYTES = 64
"""The minimal saving of an additional call: the RAM of its records in the runtime, in bytes."""

_HEIGHTS = (1, 2, 3, 4, 5, 6, 7, 8, 10, 12, 16, 24, 32, 48)
_LONGEST = 12
_MOST_TILES = 48
_TRIALS = 6


@dataclass(frozen=True)
class Edge:
    """An edge from call `start` to `stop` (exclusive): unchanged calls, or a stream in tiles of
    `height`.
    """

    start: int
    stop: int
    peak: int
    calls: int
    height: int | None = None


@dataclass(frozen=True)
class PlanMemory(Pass):
    """Scheduling: stream ops row by row and compute in place, for a limit or a small arena.

    With `arena`, as many streams are formed as the limit requires; otherwise those that save more
    than their calls cost (`CALL_BYTES`).
    """

    name: ClassVar[str] = "plan-memory"
    arena: int | None = None

    def apply(self, program: Program, history: History) -> int:
        """Make runs of ops compute row by row and mark in-place results; return the count of both.

        Raises:
            UnsupportedError: no plan that was found fits the limit; the error names the smallest.
        """
        target = stated_target(program)
        if target is None or not all(
            is_static(value.type)
            for func in program.methods.values()
            for op in func.walk()
            for value in (*op.operands, *op.results)
            if isinstance(value.type, TensorType)
        ):
            return 0
        return sum(
            self._method(program, name, func, target) for name, func in program.methods.items()
        )

    def _method(self, program: Program, name: str, func: FuncOp, target: Target) -> int:
        as_it_is = _emitted(program, name)
        if self.arena is not None and as_it_is <= self.arena:
            return 0
        calls = Calls(func)
        edges = list(calls.edges())
        best: tuple[float, int, list[Edge]] | None = None
        for path in self._paths(edges, len(calls.ops)):
            size = _arena_of(program, name, path, target)
            added = sum(edge.calls for edge in path)
            fits = self.arena is None or size <= self.arena
            price = size + CALL_BYTES * added if self.arena is None else size
            if best is None or price < best[0]:
                best = price, size, path
            if self.arena is not None and fits:
                break
        assert best is not None
        price, size, path = best
        if price >= as_it_is:  # In-place results constrain the plan, which may become larger.
            return 0
        if self.arena is not None and size > self.arena:
            raise UnsupportedError(
                f"no plan of {self.arena} bytes was found; the smallest has {size} bytes",
                f"method @{name}",
                f'set arena={size}; io="int8" removes float inputs and outputs from the arena',
            )
        return _write(func, path, target)

    def _paths(self, edges: Sequence[Edge], count: int) -> Iterator[list[Edge]]:
        """Yield candidate paths, the most promising first."""
        peaks = sorted({edge.peak for edge in edges}, reverse=True)
        if self.arena is not None:
            limit = self.arena
            for _ in range(2 * _TRIALS):
                path = _path(edges, count, limit)
                if path is None:
                    yield _least(edges, count, peaks)
                    return
                yield path
                top = max(edge.peak for edge in path)
                below = [peak for peak in peaks if peak < min(top, limit - limit // 64)]
                if not below:
                    return
                limit = below[0]
            return
        found: dict[tuple[Edge, ...], float] = {}
        for limit in peaks:
            path = _path(edges, count, limit)
            if path is None:
                break
            top, added = max(edge.peak for edge in path), sum(edge.calls for edge in path)
            found.setdefault(tuple(path), top + CALL_BYTES * added)
        yield from (list(path) for path in sorted(found, key=found.__getitem__)[:_TRIALS])


def _path(edges: Sequence[Edge], count: int, limit: float) -> list[Edge] | None:
    """Return the path with the fewest added calls over edges of at most `limit` bytes."""
    cost: list[float] = [0.0] + [inf] * count
    through: list[Edge | None] = [None] * (count + 1)
    for edge in edges:  # In order of their start.
        if edge.peak <= limit and cost[edge.start] + edge.calls < cost[edge.stop]:
            cost[edge.stop], through[edge.stop] = cost[edge.start] + edge.calls, edge
    if cost[count] == inf:
        return None
    path: list[Edge] = []
    at = count
    while at:
        edge = through[at]
        assert edge is not None
        path.append(edge)
        at = edge.start
    return path[::-1]


def _least(edges: Sequence[Edge], count: int, peaks: Sequence[int]) -> list[Edge]:
    """Return the path with the smallest peak."""
    path: list[Edge] = []
    for limit in peaks:
        found = _path(edges, count, limit)
        if found is None:
            break
        path = found
    return path


class Calls:
    """The kernel calls of a method in order, and the bytes alive at each."""

    def __init__(self, func: FuncOp) -> None:
        block = func.body.block
        self.ops = [op for op in block.ops if _is_call(op)]
        self.size: dict[SSAValue, int] = {}
        self.span: dict[SSAValue, tuple[int, int]] = {}
        end = len(self.ops)
        for argument in block.args:
            self._touch(argument, -1)
        for step, op in enumerate(self.ops):
            for value in (*op.operands, *op.results):
                self._touch(value, step)
        last = block.last_op
        assert isinstance(last, ReturnOp)
        for value in last.operands:
            self._touch(value, end)
        self.alive = [0] * (end + 1)
        for root, (first, until) in self.span.items():
            for step in range(max(first, 0), min(until, end) + 1):
                self.alive[step] += self.size[root]

    def _touch(self, value: SSAValue, step: int) -> None:
        root = root_of(value)
        if root is None or not isinstance(root.type, TensorType):
            return
        first, last = self.span.get(root, (step, step))
        self.span[root] = min(first, step), max(last, step)
        self.size.setdefault(root, bytes_of(root))

    def edges(self) -> Iterator[Edge]:
        """Return the edges by their start: each unchanged call, and each run of image ops as a
        stream.
        """
        for start, op in enumerate(self.ops):
            shared = 0 if in_place_operand(op, self, start) is None else bytes_of(op.results[0])
            yield Edge(start, start + 1, self.alive[start] + scratch_of(op) - shared, 0)
            for stop in range(start + 1, min(len(self.ops), start + _LONGEST) + 1):
                if not images(self.ops[stop - 1]):
                    break
                segment = segment_of(self.ops[start:stop])
                if segment is not None:
                    yield from self._streams(segment, start, stop)

    def _streams(self, segment: Segment, start: int, stop: int) -> Iterator[Edge]:
        stream, values = segment.stream, segment.values
        dying = frozenset(n for n in stream.inputs if self._dies(values[n], stop))
        roots = {root_of(values[n]) for n in dying}
        inside = {op.results[0] for op in segment.ops}
        beside = sum(
            self.size[root]
            for root, (first, last) in self.span.items()
            if first < stop and last >= start and root not in roots and root not in inside
        )
        rows = stream.images[stream.output].rows
        for height in _HEIGHTS:
            if height >= rows or -(-rows // height) > _MOST_TILES:
                continue
            used = usage(stream, schedule(stream, height), dying)
            yield Edge(start, stop, beside + used.peak, used.calls - (stop - start), height)

    def _dies(self, value: SSAValue, stop: int) -> bool:
        root = root_of(value)
        if root is None:
            return False
        return self.span[root][1] < stop and self.size[root] == bytes_of(value)


def _is_call(op: Operation) -> bool:
    if isinstance(op, WeightOp | ReturnOp | StorageCast) or is_view(op):
        return False
    return not (isinstance(op, SchemaOp) and is_reshape(op))


def root_of(value: SSAValue) -> SSAValue | None:
    """Return the value that owns a value's bytes; None for a constant's."""
    while not isinstance(value, BlockArgument):
        op = value.owner
        if isinstance(op, WeightOp):
            return None
        if isinstance(op, Operation) and not _is_call(op) and op.operands:
            value = op.operands[0]
            continue
        break
    return value


def bytes_of(value: SSAValue) -> int:
    """Return the number of bytes of a static tensor."""
    return prod(cast("tuple[int, ...]", dims(value.type))) * stored_dtype(value.type).itemsize


def in_place_operand(op: Operation, calls: Calls, step: int) -> int | None:
    """Return the operand whose bytes an elementwise result may reuse, because it is dead
    afterwards.
    """
    if not isinstance(op, ELEMENTWISE) or IN_PLACE in op.attributes:
        return None
    result = op.results[0]
    for index, value in enumerate(op.operands[: 1 if isinstance(op, QuantizedActivation) else 2]):
        root = root_of(value)
        if root is None or isinstance(root, BlockArgument) or dims(value.type) != dims(result.type):
            continue
        if calls.span[root][1] == step and calls.size[root] == bytes_of(result):
            return index
    return None


def _arena_of(program: Program, name: str, path: Sequence[Edge], target: Target) -> int:
    """Return the bytes of a method's arena as emitted after a path was applied."""
    copy = program.clone()
    _write(copy.methods[name], path, target)
    return _emitted(copy, name)


def _emitted(program: Program, name: str) -> int:
    return emit(program).method(name).arena_sizes[1]


def _write(func: FuncOp, path: Sequence[Edge], target: Target) -> int:
    """Create the streams and in-place results of a path; return the number of both."""
    calls = Calls(func)
    changed = 0
    for step, op in enumerate(calls.ops):
        index = in_place_operand(op, calls, step)
        streamed = any(e.height is not None and e.start <= step < e.stop for e in path)
        if index is not None and not streamed:
            op.attributes[IN_PLACE] = IntegerAttr(index, i64)
            changed += 1
    upwards = False
    for edge in path:
        if edge.height is None:
            continue
        segment = segment_of(calls.ops[edge.start : edge.stop])
        assert segment is not None
        write_stream(segment, schedule(segment.stream, edge.height, upwards=upwards), target)
        upwards, changed = not upwards, changed + 1
    return changed
