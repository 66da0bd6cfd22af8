"""Choose an order of axes for every value at once, so that the least is moved.

Convolutions are lowered between a transpose to channels-last and one back. Between them stand nodes
that do not care: elementwise ones, slices, pads, concatenations, reshapes, linear layers and
softmax over an axis that stays last. Each may work on its values as they are or on their bases
(before the transpose). A value read in the other order is transposed once for all who want it so.
What that costs is a cut of a graph whose nodes are these ops, and the least cost is a minimum cut:
exact where values have one other order; of several, the first that reaches a node counts. What a
transpose between two values that both can turn leaves over, a second run settles.

Before:
    func.func @forward(%x: tensor<1x2x3x4xf32>) -> tensor<1x2x12xf32> {
      %a = xnnpack.static_transpose(%x, perm=[0, 3, 1, 2]) : (tensor<1x2x3x4xf32>) -> tensor<1x4x2x3xf32>
      %b = xnnpack.tanh(%a) : (tensor<1x4x2x3xf32>) -> tensor<1x4x2x3xf32>
      %c = xnnpack.static_reshape(%b, new_shape=[1, 4, 6]) : (tensor<1x4x2x3xf32>) -> tensor<1x4x6xf32>
      %d = xnnpack.static_transpose(%c, perm=[0, 2, 1]) : (tensor<1x4x6xf32>) -> tensor<1x6x4xf32>
      %e = xnnpack.static_reshape(%d, new_shape=[1, 2, 12]) : (tensor<1x6x4xf32>) -> tensor<1x2x12xf32>
      func.return %e : tensor<1x2x12xf32>
    }
After, with `MergeTransposes` behind it: the same without a transpose.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Any, ClassVar, cast

from xdsl.dialects.builtin import IntegerAttr, i64
from xdsl.ir import Block, Operation, SSAValue

from stepwell.dialects import xnnpack
from stepwell.dialects.xnnpack import XnnpackOp
from stepwell.dialects.xnnpack.base import constant_of, to_attribute
from stepwell.dialects.xnnpack.costs import COSTS, UNKNOWN_SIZE
from stepwell.dialects.xnnpack.movement import Concatenate
from stepwell.ir.core import weight_key
from stepwell.ir.diagnostics import describe_op, node_name, op_name
from stepwell.ir.program import Program
from stepwell.ir.rewriting import Bound, Event, History, Pass, Rewriter
from stepwell.ir.types import dims, element, tensor
from stepwell.translate.rewrites.xnnpack.axis_orders import Order, carried, carries, reads_in
from stepwell.translate.rewrites.xnnpack.lower_shape import slice_sizes
from stepwell.translate.rewrites.xnnpack.merge_transposes import (
    inverse,
    moves_units_only,
)

NODE = COSTS.layout_node / COSTS.transpose
"""What a transpose or reshape costs beside its elements, in elements moved."""


@dataclass(frozen=True)
class AssignLayouts(Pass):
    """Nodes on one side of a minimum cut are rebuilt to work before the transposes."""

    name: ClassVar[str] = "assign-layouts"
    bound: ClassVar[Bound] = Bound(
        1e-5, 1e-6, "a kernel may sum a row of a linear layer otherwise where it stands otherwise"
    )

    def apply(self, program: Program, history: History) -> int:
        """Returns the number of nodes that work in another order."""
        count = 0
        for func in program.methods.values():
            block = func.body.block
            orders = candidates(block)
            turned = {op for part in parts(orders) for op in least_cost(part, orders)}
            if turned:
                _write(block, {op: orders[op] for op in turned}, program, history)
            count += len(turned)
        return count


def candidates(block: Block) -> dict[Operation, Order]:
    """Each node that a transpose's order reaches, with that order of its result."""
    orders: dict[Operation, Order] = {}
    waiting: deque[tuple[SSAValue, Order]] = deque()
    for op in block.ops:
        if isinstance(op, xnnpack.StaticTranspose):
            waiting.append((op.output, op.ints("perm")))
            waiting.append((op.input, inverse(op.ints("perm"))))
    seen: set[SSAValue] = set()
    while waiting:
        value, order = waiting.popleft()
        if value in seen or constant_of(value) is not None:
            continue
        seen.add(value)
        owner = value.owner
        near = [use.operation for use in value.uses]
        if isinstance(owner, Operation):
            near.append(owner)
        for op in near:
            if op in orders or op.parent is not block or _is_fixed(op):
                continue
            found = carried(cast(XnnpackOp, op), value, order)
            if found is None or not _fits(cast(XnnpackOp, op), found):
                continue
            orders[op] = found
            reached = [(op.results[0], found)]
            reached += [
                (op.operands[index], read) for index, read in reads_in(cast(XnnpackOp, op), found)
            ]
            waiting.extend(pair for pair in reached if not is_as_it_is(pair[1]))
    return orders


def is_as_it_is(order: Order) -> bool:
    """Whether an order moves no axis: nothing is to be gained behind a value that has it."""
    return order == tuple(range(len(order)))


def _is_fixed(op: Operation) -> bool:
    return not isinstance(op, XnnpackOp) or isinstance(op, xnnpack.StaticTranspose)


def _fits(op: XnnpackOp, order: Order) -> bool:
    """Whether every operand has as many axes as its order, or is a constant that can have."""
    for index, read in reads_in(op, order):
        value = op.operands[index]
        if _is_free(value):
            if weight_key(value) is None and len(dims(value.type)) > 0 and not _is_one(value):
                return False  # A cast gives the constant its type: its axes stay.
        elif len(dims(value.type)) != len(read):
            return False
    return carries(op, order)


def _is_one(value: SSAValue) -> bool:
    return all(size == 1 for size in dims(value.type))


def _is_free(value: SSAValue) -> bool:
    """Whether a value has any order at no cost: a constant, or one element."""
    return constant_of(value) is not None or _is_one(value)


def parts(orders: dict[Operation, Order]) -> Iterator[list[Operation]]:
    """Sets of nodes that hang together; what lies between them is fixed, so each is cut alone."""
    waiting = dict.fromkeys(orders)
    while waiting:
        first = next(iter(waiting))
        del waiting[first]
        part = [first]
        for op in part:
            for value in (*op.operands, op.results[0]):
                owner = value.owner
                near = [use.operation for use in value.uses]
                for other in (owner, *near) if isinstance(owner, Operation) else near:
                    if other in waiting:
                        del waiting[other]
                        part.append(other)
        yield part


AS_IS, TURNED = "as it is", "turned"
Edge = tuple[Any, Any, float]
INFINITE = float("inf")


def least_cost(part: list[Operation], orders: dict[Operation, Order]) -> set[Operation]:
    """The nodes of a set to rebuild on bases: the turned side of a minimum cut."""
    edges = list(_edges(part, orders))
    ends = {end for one, other, _ in edges for end in (one, other)}
    if TURNED not in ends:
        return set()
    if AS_IS not in ends:
        return set(part)
    import networkx

    graph: Any = networkx.DiGraph()
    for other, one, capacity in edges:  # Backwards: of equal cuts, that which turns the least.
        if graph.has_edge(one, other):
            graph[one][other]["capacity"] += capacity
        else:
            graph.add_edge(one, other, capacity=capacity)
    _, (kept, _) = networkx.minimum_cut(
        graph, AS_IS, TURNED, flow_func=networkx.algorithms.flow.boykov_kolmogorov
    )
    return {op for op in part if op not in kept}


def _edges(part: list[Operation], orders: dict[Operation, Order]) -> Iterator[Edge]:
    """The cut graph: for each value, one transpose for all who read it in its other order."""
    inside = set(part)
    values: dict[SSAValue, None] = {op.results[0]: None for op in part}
    for op in part:
        for index, _ in reads_in(cast(XnnpackOp, op), orders[op]):
            values[op.operands[index]] = None
    for value in values:
        if _is_free(value):
            continue
        order = _order_of(value, part, orders, inside)
        maker = _place_of_maker(value, order, inside)
        cost = _cost(value, order)
        readers = dict.fromkeys(_readers(value, order, orders, inside))
        alone = next(iter(readers)) if len(readers) == 1 else None
        if alone is not None and alone[1] is None:  # Nobody to share a transpose with.
            reader = alone[0]
            if reader is not maker:
                yield reader, maker, cost
                yield maker, reader, cost
            continue
        wanted, kept = ("read turned", value), ("read as it is", value)
        yield wanted, maker, cost
        yield maker, kept, cost
        for reader, third in readers:
            yield kept, reader, INFINITE
            if third is not None:
                yield reader, AS_IS, _cost(value, third)  # A transpose of its own.
            else:
                yield reader, wanted, INFINITE


def _readers(
    value: SSAValue, order: Order, orders: dict[Operation, Order], inside: set[Any]
) -> Iterator[tuple[Any, Order | None]]:
    """The nodes of the cut graph that read a value, and the third order in which they do so."""
    for use in value.uses:
        op = use.operation
        if isinstance(op, xnnpack.StaticTranspose) and inverse(op.ints("perm")) != order:
            continue  # It stays one transpose whatever it reads.
        reader = _place_of_reader(op, use.index, orders, inside)
        read = _reads(op, use.index, orders) if reader is op else None
        yield reader, None if read == order else read


def _order_of(
    value: SSAValue, part: Iterable[Operation], orders: dict[Operation, Order], inside: set[Any]
) -> Order:
    """The order in which a value may be held instead."""
    owner = value.owner
    if owner in inside:
        return orders[cast(Operation, owner)]
    if isinstance(owner, xnnpack.StaticTranspose):
        return owner.ints("perm")
    for use in value.uses:
        if use.operation in inside:
            read = _reads(use.operation, use.index, orders)
            if read is not None:
                return read
    raise AssertionError("no node of the set has to do with the value")


def _place_of_maker(value: SSAValue, order: Order, inside: set[Any]) -> Any:
    owner = value.owner
    if owner in inside:
        return owner
    if isinstance(owner, xnnpack.StaticTranspose) and owner.ints("perm") == order:
        return TURNED
    return AS_IS


def _place_of_reader(
    op: Operation, index: int, orders: dict[Operation, Order], inside: set[Any]
) -> Any:
    """The node of the cut graph that reads."""
    if op in inside:
        return AS_IS if _reads(op, index, orders) is None else op
    return TURNED if isinstance(op, xnnpack.StaticTranspose) else AS_IS


def _reads(op: Operation, index: int, orders: dict[Operation, Order]) -> Order | None:
    """The order in which a turned node reads an operand; None if it reads it as it is."""
    return dict(reads_in(cast(XnnpackOp, op), orders[op])).get(index)


def _cost(value: SSAValue, order: Order) -> float:
    """What a transpose of a value costs; one that moves unit axes only is a reshape."""
    if is_as_it_is(order):
        return 0.0
    size = 1
    for number in dims(value.type):
        size *= number if isinstance(number, int) else UNKNOWN_SIZE
    return NODE + size * (0.25 if moves_units_only(value, inverse(order)) else 1.0)


def _write(
    block: Block, turned: dict[Operation, Order], program: Program, history: History
) -> None:
    """Rebuild nodes in order on bases, each followed by its transpose back."""
    scopes: dict[Any, Any] = {}
    bases: dict[tuple[SSAValue, Order], SSAValue] = {}

    def base_of(rw: Rewriter, value: SSAValue, order: Order) -> SSAValue:
        if _is_one(value) and len(dims(value.type)) <= len(order) and weight_key(value) is None:
            return value
        owner = value.owner
        if isinstance(owner, xnnpack.StaticTranspose) and owner.ints("perm") == order:
            return owner.input
        if (value, order) not in bases:
            bases[value, order] = _turned(rw, value, order)
        return bases[value, order]

    for op in tuple(block.ops):
        if op not in turned:
            continue
        assert isinstance(op, XnnpackOp)
        order = turned[op]
        rw = Rewriter(op, program, scopes)
        operands = list(op.operands)
        for index, read in reads_in(op, order):
            operands[index] = base_of(rw, op.operands[index], read)
        new = rw.insert(_rebuilt(op, operands, order))
        new.results[0].name_hint = op.output.name_hint
        back = xnnpack.StaticTranspose.make(new.results[0], result=op.output.type, perm=list(order))
        root = (op_name(op), node_name(op.location))
        history.events.append(Event(AssignLayouts.name, root, (root,), (root,), describe_op(op)))
        op.output.replace_all_uses_with(rw.insert(back).results[0])
        op.detach()
        op.erase()
    for op in reversed(tuple(block.ops)):
        if isinstance(op, xnnpack.StaticTranspose) and not op.output.first_use:
            op.detach()
            op.erase()


def _turned(rw: Rewriter, value: SSAValue, order: Order) -> SSAValue:
    """A value in the order of its base: computed for a constant, else transposed."""
    back = inverse(order)
    key = weight_key(value)
    if key is not None:
        return rw.weight(rw.weights.derive("transposed_to", [key], order=list(back)))
    shape = dims(value.type)
    result = tensor([shape[axis] for axis in back], element(value.type))
    new = xnnpack.StaticTranspose.make(value, result=result, perm=list(back))
    return rw.insert(new).results[0]


def _rebuilt(op: XnnpackOp, operands: list[SSAValue], order: Order) -> Operation:
    """A node of the same kind whose result is the base of the old one's."""
    back = inverse(order)
    shape = dims(op.output.type)
    made = [shape[axis] for axis in back]
    properties = dict(op.properties)
    if isinstance(op, Concatenate):
        properties["axis"] = IntegerAttr(order[op.integer("axis", 0)], i64)
    elif isinstance(op, xnnpack.StaticReshape):
        properties["new_shape"] = to_attribute(slice_sizes(tuple(made)))
    for name in ("offsets", "sizes", "pre_paddings", "post_paddings"):
        if name in properties:
            numbers = op.ints(name)
            properties[name] = to_attribute([numbers[axis] for axis in back])
    return type(op).create(
        operands=operands,
        result_types=[tensor(made, element(op.output.type))],
        properties=properties,
        attributes=dict(op.attributes),
    )
