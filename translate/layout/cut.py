"""The minimum cut: which ops of a block run on *bases* (values before transposes) at least cost.

A value that is read in another order is transposed once for all users of that order. The cost of
all transposes is the cost of a cut in a graph of ops, so that the optimum is a minimum cut. The
result is optimal if values have only one other order; of several orders, only the first that
reaches an op is used.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator, Mapping
from functools import lru_cache
from typing import Any

from xdsl.ir import Block, Operation, SSAValue

from stepwell.ir.axes.maps import Order, inverse
from stepwell.ir.compat.torch.lazy_imports import OnDemand
from stepwell.ir.traversal import connected
from stepwell.translate.layout.table import Layouts, Turning, is_as_it_is

networkx = OnDemand("networkx")


Turnings = Mapping[Operation, Turning]
AS_IS, TURNED = "as it is", "turned"
Edge = tuple[Any, Any, float]
INFINITE = float("inf")


def candidates(block: Block, table: Layouts) -> dict[Operation, Turning]:
    """Return each op that the order of a transpose reaches, with its axis orders after
    rebuilding.
    """
    found: dict[Operation, Turning] = {}
    waiting: deque[tuple[SSAValue, Order]] = deque()
    for op in block.ops:
        for result in op.results:
            if (standing := table.transposed(result)) is not None:
                waiting.append((result, standing[1]))
                waiting.append((standing[0], inverse(standing[1])))
    seen: set[SSAValue] = set()
    while waiting:
        value, order = waiting.popleft()
        if value in seen or table.is_free(value):  # Any order is free, so none is propagated.
            continue
        seen.add(value)
        for op in _neighbors(value):
            if op in found or op.parent is not block or _is_transpose(op, table):
                continue
            turning = table.turning(op, value, order)
            if turning is None:
                continue
            found[op] = turning
            reached = [(op.results[0], turning.order)]
            reached += [(op.operands[index], read) for index, read in turning.operands.items()]
            waiting.extend(pair for pair in reached if not is_as_it_is(pair[1]))
    return found


def _neighbors(value: SSAValue) -> list[Operation]:
    owner = value.owner
    near = [use.operation for use in value.uses]
    return [*near, owner] if isinstance(owner, Operation) else near


def _is_transpose(op: Operation, table: Layouts) -> bool:
    return len(op.results) == 1 and table.transposed(op.results[0]) is not None


def parts(turnings: Turnings, table: Layouts) -> Iterator[list[Operation]]:
    """Yield connected sets of ops, each of which is cut separately.

    Values between sets keep their order. A value that is free in any order connects no ops.
    """

    def sharing(op: Operation) -> Iterator[object]:
        """Yield the other ops that define or use the op's values in another order."""
        for value in (*(op.operands[index] for index in turnings[op].operands), op.results[0]):
            if not table.is_free(value):
                yield value.owner
                yield from (use.operation for use in value.uses)

    return connected(turnings, sharing)


def least_cost(part: list[Operation], turnings: Turnings, table: Layouts) -> set[Operation]:
    """Return the ops that should compute on values before their transposes, so that moving data
    costs least: one side of a minimum cut.
    """
    edges = list(_Graph(part, turnings, table).edges())
    ends = {end for one, other, _ in edges for end in (one, other)}
    if TURNED not in ends:
        return set()
    if AS_IS not in ends:
        return set(part)
    numbers: dict[Any, int] = {AS_IS: 0, TURNED: 1}
    for one, other, _ in edges:
        numbers.setdefault(one, len(numbers))
        numbers.setdefault(other, len(numbers))
    kept = _kept(tuple((numbers[one], numbers[other], capacity) for one, other, capacity in edges))
    return {op for op in part if numbers.get(op, 1) not in kept}


@lru_cache(maxsize=256)
def _kept(edges: tuple[tuple[int, int, float], ...]) -> frozenset[int]:
    """Return the nodes on node 0's side of the cheapest cut from node 1, cached for identical
    layers.
    """
    graph: Any = networkx.DiGraph()
    for other, one, capacity in edges:  # Reversed: of equal cuts, choose the fewest rebuilt ops.
        if graph.has_edge(one, other):
            graph[one][other]["capacity"] += capacity
        else:
            graph.add_edge(one, other, capacity=capacity)
    _, (kept, _) = networkx.minimum_cut(
        graph, 0, 1, flow_func=networkx.algorithms.flow.boykov_kolmogorov
    )
    return frozenset(kept)


class _Graph:
    """The cut graph of a set of ops: for each value, one transpose for all users of its base."""

    def __init__(self, part: list[Operation], found: Turnings, table: Layouts) -> None:
        self.part, self.table = part, table
        self.inside: dict[Any, Turning] = {op: found[op] for op in part}

    def edges(self) -> Iterator[Edge]:
        values: dict[SSAValue, None] = {op.results[0]: None for op in self.part}
        for op in self.part:
            gain = self.table.gain(op, self.inside[op])
            if gain:
                yield (TURNED, op, gain) if gain > 0 else (op, AS_IS, -gain)
            for index in self.inside[op].operands:
                values[op.operands[index]] = None
        for value in values:
            if not self.table.is_free(value):
                yield from self._edges_of(value)

    def _edges_of(self, value: SSAValue) -> Iterator[Edge]:
        order = self._order_of(value)
        maker = self._maker(value, order)
        cost = self._cost(value, order)
        readers = dict.fromkeys(self._readers(value, order))
        alone = next(iter(readers)) if len(readers) == 1 else None
        if alone is not None and alone[1] is None:  # No other user shares the transpose.
            reader = alone[0]
            if reader is not maker:
                yield reader, maker, cost
                yield maker, reader, cost
            return
        wanted, kept = ("read turned", value), ("read as it is", value)
        yield wanted, maker, cost
        yield maker, kept, cost
        for reader, third in readers:
            yield kept, reader, INFINITE
            if third is not None:
                yield reader, AS_IS, self._cost(value, third)  # A separate transpose.
            else:
                yield reader, wanted, INFINITE

    def _cost(self, value: SSAValue, order: Order) -> float:
        return 0.0 if is_as_it_is(order) else self.table.cost(value, order)

    def _readers(self, value: SSAValue, order: Order) -> Iterator[tuple[Any, Order | None]]:
        """Yield the graph node of each user of a value, and the order in which the user reads, if
        that is neither the value's own order nor `order`.
        """
        for use in value.uses:
            op = use.operation
            read = self._reads(op, use.index)
            standing = self._transposes(op, use.index)
            if op in self.inside:
                third = None if read == order else read
                yield (AS_IS, None) if read is None else (op, third)
            elif standing is None:
                yield AS_IS, None
            elif inverse(standing) == order:  # Any other remains one transpose in either case.
                yield TURNED, None

    def _transposes(self, op: Operation, index: int) -> Order | None:
        """Return the order of a transpose that an op applies to an operand."""
        found = self.table.transposed(op.results[0]) if len(op.results) == 1 else None
        return None if found is None or found[0] is not op.operands[index] else found[1]

    def _order_of(self, value: SSAValue) -> Order:
        """Return the alternative order of a value."""
        if value.owner in self.inside:
            return self.inside[value.owner].order
        if (standing := self.table.transposed(value)) is not None:
            return standing[1]
        for use in value.uses:
            if (read := self._reads(use.operation, use.index)) is not None:
                return read
        raise AssertionError("no op of the set has to do with the value")

    def _maker(self, value: SSAValue, order: Order) -> Any:
        if value.owner in self.inside:
            return value.owner
        standing = self.table.transposed(value)
        return TURNED if standing is not None and standing[1] == order else AS_IS

    def _reads(self, op: Operation, index: int) -> Order | None:
        """Return the order in which a rebuilt op reads an operand; None if it is unchanged."""
        turning = self.inside.get(op)
        return None if turning is None else turning.operands.get(index)
