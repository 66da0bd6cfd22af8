"""Unrolling: compute each index of an axis separately where XNNPACK cannot split or merge the axis.

XNNPACK infers one size of a reshape. Where batch and length are both symbolic, it can neither split
the channels of `[b, n, h·d]` into heads nor merge the heads again, although every op in between
keeps the head axis. Each head therefore becomes a slice of the channels, every op is computed for
each head by its axis map, and the results are concatenated along the channels.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from itertools import pairwise

from xdsl.ir import Operation, SSAValue

from stepwell.dialects import aten
from stepwell.dialects.xnnpack import XnnpackOp
from stepwell.dialects.xnnpack.elementwise import Binary, Unary
from stepwell.dialects.xnnpack.matmul import BatchMatrixMultiply, FullyConnected
from stepwell.dialects.xnnpack.movement import StaticTranspose
from stepwell.ir.axes.maps import AxisMap, Once, axis_map
from stepwell.ir.core import weight_key
from stepwell.ir.declared.bounds import roundings
from stepwell.ir.dtypes import is_float
from stepwell.ir.rewriting.rewrite import Rewriter
from stepwell.ir.rewriting.rewriter import remade
from stepwell.ir.sizes.size import number_of
from stepwell.ir.types import Dim, dims, element, tensor
from stepwell.translate.decompositions.values import Value, cat
from stepwell.translate.lowerings.lowering import Out, lowerings_of, lowers, refuse
from stepwell.translate.rewrites.building import is_known, is_open_once, slice_axis, view

MOST_NODES = 1024
"""The most nodes that an axis may become. Beyond it, delegates between the views cost less."""

BLIND = (Unary, Binary, BatchMatrixMultiply, FullyConnected)
"""Nodes with no field that names an axis: they work the same with one leading axis less."""


@dataclass(frozen=True)
class UnrolledAxis:
    """A value, and the axis along which each index is computed separately."""

    value: SSAValue
    at: int


@dataclass(frozen=True)
class Read:
    """The operand axis that corresponds to a result axis, or has size 1 there."""

    at: int
    is_one: bool = False


Reads = dict[UnrolledAxis, list[Read | None]]
"""For each value up to the views that split, the axis of each operand of its node that it reads."""


@lowers(
    "aten.view.default",
    to="aten",
    bound=roundings("a batched GEMM may sum in another order"),
    sample="""
    %b = aten.sym_size.int(%x, 0) : (tensor<?x?x6xf32, #stepwell.shape<["b", "n", 6]>>) -> !stepwell.int<"b">
    %n = aten.sym_size.int(%x, 1) : (tensor<?x?x6xf32, #stepwell.shape<["b", "n", 6]>>) -> !stepwell.int<"n">
    %p = aten.view.default(%x, [%b, %n, 2, 3]) : (tensor<?x?x6xf32, #stepwell.shape<["b", "n", 6]>>, !stepwell.int<"b">, !stepwell.int<"n">) -> tensor<?x?x2x3xf32, #stepwell.shape<["b", "n", 2, 3]>>
    %s = xnnpack.tanh(%p) : (tensor<?x?x2x3xf32, #stepwell.shape<["b", "n", 2, 3]>>) -> tensor<?x?x2x3xf32, #stepwell.shape<["b", "n", 2, 3]>>
    %y = aten.view.default(%s, [%b, %n, 6]) : (tensor<?x?x2x3xf32, #stepwell.shape<["b", "n", 2, 3]>>, !stepwell.int<"b">, !stepwell.int<"n">) -> tensor<?x?x6xf32, #stepwell.shape<["b", "n", 6]>>
    """,
)
def unroll_axis(x: Value, *, op: aten.ViewDefault, out: Out, b: Rewriter) -> Value | None:
    """Replace `merge(op(part(x)))` by `cat(op(slice(x)), …)` where no reshape can do both."""
    at = _first_of_two(out.shape, x.shape)
    if at is None:
        return None
    axis, reads = UnrolledAxis(x.ssa, at), Reads()
    _collect(axis, reads)
    count = number_of(x.shape[at])
    if count * len(reads) > MOST_NODES:
        refuse(f"unrolling {count} times {len(reads)} nodes is too much")
    nodes = {axis.value.owner for axis in reads} | {op}
    if any(use.operation not in nodes for axis in reads for use in axis.value.uses):
        refuse("a value between the views is read elsewhere, too")
    shared: dict[SSAValue, SSAValue] = {}
    pieces = [Value(_Index(index, reads, shared, b).of(axis), b) for index in range(count)]
    return cat(pieces, at)


def _first_of_two(merged: tuple[Dim, ...], apart: tuple[Dim, ...]) -> int | None:
    """Return the first of two axes that `merged` joins, of static size or of size 1.

    None where XNNPACK can infer the sizes.
    """
    if not is_known((*apart, *merged)) or is_open_once(apart):
        return None
    for at, (one, other) in enumerate(pairwise(apart)):
        product = other if one == 1 else one * other
        are_numbers = isinstance(one, int) and (one == 1 or isinstance(other, int))
        if are_numbers and (*apart[:at], product, *apart[at + 2 :]) == merged:
            return at
    return None


def _is_parted(axis: UnrolledAxis) -> bool:
    """Whether a view splits off an axis, so that each index is a slice of the view's operand."""
    op, shape = axis.value.owner, dims(axis.value.type)
    return (
        isinstance(op, aten.ViewDefault)
        and _first_of_two(dims(op.operands[0].type), shape) == axis.at
    )


def _collect(axis: UnrolledAxis, reads: Reads) -> None:
    """Collect the nodes through which an axis passes, up to the views that split it off."""
    if _is_parted(axis) or is_open_once(dims(axis.value.type)):
        return
    node = axis.value.owner
    if not isinstance(node, (*BLIND, StaticTranspose)):
        where = node.name if isinstance(node, Operation) else "an input"
        refuse(f"an axis that XNNPACK cannot split comes from {where}")
    links = axis_map(node)
    assert links is not None, node.name
    reads[axis] = []
    for operand, value in enumerate(node.operands):
        read = _read(links, operand, axis.at)
        reads[axis].append(read)
        if read is not None and not read.is_one and UnrolledAxis(value, read.at) not in reads:
            _collect(UnrolledAxis(value, read.at), reads)


def _read(links: AxisMap, operand: int, axis: int) -> Read | None:
    """Return the operand axis that corresponds to a result axis; None if the operand has none."""
    own = links.links[operand] or ()
    if Once(axis) in own:
        return Read(own.index(Once(axis)), is_one=True)
    at = links.before(operand, axis)
    if at is None and any(axis in links.seen(operand, each) for each in range(len(own))):
        refuse("a node computes along an axis that XNNPACK cannot split")
    return None if at is None else Read(at)


@dataclass(frozen=True)
class _Index:
    """The values at one index of the axis; `without` are operands that have size 1 there."""

    index: int
    reads: Mapping[UnrolledAxis, list[Read | None]]
    without: dict[SSAValue, SSAValue]
    b: Rewriter
    known: dict[UnrolledAxis, SSAValue] = field(default_factory=dict[UnrolledAxis, SSAValue])

    def of(self, axis: UnrolledAxis) -> SSAValue:
        """Return a value's slice at this index of the unrolled axis, without the axis."""
        if axis not in self.known:
            self.known[axis] = self._made(axis)
        return self.known[axis]

    def _made(self, axis: UnrolledAxis) -> SSAValue:
        value, at = axis.value, axis.at
        shape, node = dims(value.type), value.owner
        if axis not in self.reads:
            return self._part(axis)
        assert isinstance(node, XnnpackOp)
        reads = self.reads[axis]
        operands = [*map(self._operand, node.operands, reads)]
        result = tensor(dropped(shape, at), element(value.type))
        if not isinstance(node, StaticTranspose):
            return self.b.insert(remade(node, operands, [result])).results[0]
        gone = node.ints("perm")[at]
        order = [each - (each > gone) for each in node.ints("perm") if each != gone]
        if order == sorted(order):
            return operands[0]
        new = StaticTranspose.make(operands[0], result=result, perm=order)
        return self.b.insert(new).results[0]

    def _part(self, axis: UnrolledAxis) -> SSAValue:
        """Return the slice for an index, from a view's operand or a shape that XNNPACK can
        infer.
        """
        value, at = axis.value, axis.at
        shape, merge = dims(value.type), value.owner
        if not isinstance(merge, aten.ViewDefault) or not _is_parted(axis):
            part = slice_axis(self.b, value, at, self.index, self.index + 1)
            return view(self.b, part, dropped(shape, at))
        (source, *_) = merge.operands
        if shape[at] == 1:
            return source
        step = number_of(shape[at + 1])
        start = self.index * step
        if (layer := _layer(source, at)) is not None:
            return self._outputs(layer, start, start + step)
        return slice_axis(self.b, source, at, start, start + step)

    def _outputs(self, layer: FullyConnected, start: int, stop: int) -> SSAValue:
        """Build a layer for some outputs of another layer, with those rows of the weight."""
        store, part = self.b.weights, {"start": start, "stop": stop}
        weights = [self.b.weight(store.derive("rows", [key], **part)) for key in _keys(layer)]
        (*before, _), of = dims(layer.output.type), element(layer.output.type)
        operands, result = [layer.operands[0], *weights], tensor([*before, stop - start], of)
        return self.b.insert(remade(layer, operands, [result])).results[0]

    def _operand(self, value: SSAValue, read: Read | None) -> SSAValue:
        if read is None:
            return value
        return (
            self._shared(value, read.at) if read.is_one else self.of(UnrolledAxis(value, read.at))
        )

    def _shared(self, value: SSAValue, at: int) -> SSAValue:
        """Return a value that all indices share, without its axis of size 1."""
        shape, node = dims(value.type), value.owner
        if value not in self.without:
            if isinstance(node, Unary | Binary) and all(
                dims(each.type) in (shape, ()) for each in node.operands
            ):
                operands = [self._shared(v, at) if dims(v.type) else v for v in node.operands]
                result = tensor(dropped(shape, at), element(value.type))
                self.without[value] = self.b.insert(remade(node, operands, [result])).results[0]
            else:
                self.without[value] = view(self.b, value, dropped(shape, at))
        return self.without[value]


def _layer(value: SSAValue, at: int) -> FullyConnected | None:
    """Return the layer whose outputs form an axis, if its constant rows have no other use."""
    layer = value.owner
    if not isinstance(layer, FullyConnected) or at != len(dims(value.type)) - 1:
        return None
    is_plain = is_float(element(layer.operands[1].type)) and not layer.flag("transpose_weights")
    keys = _keys(layer) if is_plain and value.has_one_use() else []
    return layer if len(keys) == len(layer.operands) - 1 and keys else None


def _keys(layer: FullyConnected) -> list[str]:
    keys = [weight_key(value) for value in layer.operands[1:]]
    return [key for key in keys if key is not None]


def dropped(shape: tuple[Dim, ...], at: int) -> tuple[Dim, ...]:
    """Return a shape without one axis."""
    return (*shape[:at], *shape[at + 1 :])


RULES = lowerings_of(__name__)
