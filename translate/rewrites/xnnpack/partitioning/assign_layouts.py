"""Layout assignment: choose an axis order for every value at once so that data movement is least.

A convolution is lowered between a transpose to channels-last and a transpose back. Some nodes
between these transposes work in any order: elementwise nodes, slices, pads, concatenations,
reshapes, linear layers, and normalizations over an axis that stays last. Each of these may work on
its values or on the values before the transpose. `translate/layout` finds the minimum cut; this
file has XNNPACK's table of nodes and copy costs for it. A second run removes transposes that are
left between two values that can both be transposed.

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

from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar

from xdsl.dialects.builtin import IntegerAttr, i64
from xdsl.ir import Attribute, Operation, SSAValue

from stepwell.dialects import xnnpack
from stepwell.dialects.xnnpack import XnnpackOp
from stepwell.dialects.xnnpack.base import constant_of, to_attribute
from stepwell.dialects.xnnpack.costs import LAYOUT, costs_of, estimated
from stepwell.dialects.xnnpack.datatypes import datatype
from stepwell.dialects.xnnpack.elementwise import Binary, Unary
from stepwell.dialects.xnnpack.movement import Concatenate
from stepwell.ir.axes.layout_cost import LayoutCost
from stepwell.ir.axes.maps import AxisMap, Order, inverse
from stepwell.ir.core import weight_key
from stepwell.ir.declared.bounds import roundings
from stepwell.ir.declared.families import is_of
from stepwell.ir.program import Program
from stepwell.ir.rewriting.rewrite import Bound, Rewriter
from stepwell.ir.types import Dim, dims, element, tensor
from stepwell.translate.layout.assign import PlaceTransposes
from stepwell.translate.layout.table import Layouts, Turning, is_one
from stepwell.translate.rewrites.building import is_open_once
from stepwell.translate.rewrites.xnnpack.nodes.lower_shape import slice_sizes
from stepwell.translate.rewrites.xnnpack.partitioning.merge_transposes import moves_units_only

FEW = 2
"""The largest last axis for which XNNPACK copies a row no faster than its single elements."""


class XnnpackLayouts(Layouts):
    """XNNPACK's layout table: nodes for any order, nodes with a fixed last axis, copy costs."""

    def __init__(self, moving: LayoutCost = LAYOUT, run: float = 0.0) -> None:
        self.moving, self.run = moving, run

    KINDS: ClassVar[tuple[type[Operation], ...]] = (
        xnnpack.StaticReshape,
        xnnpack.StaticConstantPad,
        xnnpack.StaticSlice,
        Concatenate,
        xnnpack.FullyConnected,
        Unary,
        Binary,
    )

    def transposed(self, value: SSAValue) -> tuple[SSAValue, Order] | None:
        owner = value.owner
        if type(owner) is not xnnpack.StaticTranspose:  # This is faster than `isinstance`.
            return None
        return owner.input, owner.ints("perm")

    def data(self, op: Operation, axes: AxisMap) -> list[int]:
        return [0] if isinstance(op, xnnpack.FullyConnected) else super().data(op, axes)

    def may_turn(self, op: Operation, turning: Turning) -> bool:
        order = turning.order
        if is_of(op, "normalization"):
            return order[-1] == len(order) - 1
        match op:
            case xnnpack.StaticReshape():  # The new shape may have one size that XNNPACK infers, not more.
                return is_open_once(dims(op.output.type))
            case xnnpack.FullyConnected():
                data = datatype(op.input.type)
                return data != "qdint8" and order[-1] == len(order) - 1
            case xnnpack.StaticSlice():
                whole, part = dims(op.input.type), dims(op.output.type)
                cut = [a for a, (d, e) in enumerate(zip(whole, part, strict=True)) if d != e]
                return not any(takes_elements(part, order, axis) for axis in cut)
            case Concatenate():
                at = op.integer("axis", 0)
                return not any(takes_elements(dims(v.type), order, at) for v in op.operands)
            case xnnpack.PReLU():
                return False
            case xnnpack.Convert():
                return datatype(op.output.type) != "qdint8"  # The scales belong to the last axes.
            case _:
                return True

    def is_constant(self, value: SSAValue) -> bool:
        return constant_of(value) is not None

    def can_be_had(self, value: SSAValue, order: Order) -> bool:
        if not self.is_free(value):
            return super().can_be_had(value, order)
        # A cast gives a constant its type; the axes of the constant do not change.
        return weight_key(value) is not None or is_one(value)

    def cost(self, value: SSAValue, order: Order) -> float:
        return self.moving.of(dims(value.type), moves_units_only(value, inverse(order)))

    def gain(self, op: Operation, turning: Turning) -> float:
        """Return the cost that another order of a slice saves: a slice copies contiguous runs."""
        if not isinstance(op, xnnpack.StaticSlice):
            return 0.0
        whole, part = dims(op.input.type), dims(op.output.type)
        back = inverse(turning.order)
        turned = [whole[a] for a in back], [part[a] for a in back]
        return self.run * (stretches(whole, part) - stretches(*turned))

    def base(self, rw: Rewriter, value: SSAValue, order: Order) -> SSAValue:
        back, key, shape = inverse(order), weight_key(value), dims(value.type)
        if key is not None:
            return rw.weight(rw.weights.derive("transposed_to", [key], order=list(back)))
        if is_one(value):
            return value
        result = tensor([shape[axis] for axis in back], element(value.type))
        new = xnnpack.StaticTranspose.make(value, result=result, perm=list(back))
        return rw.insert(new).results[0]

    def back(self, rw: Rewriter, base: SSAValue, order: Order, type_: Attribute) -> SSAValue:
        new = xnnpack.StaticTranspose.make(base, result=type_, perm=list(order))
        return rw.insert(new).results[0]

    def rebuilt(
        self, rw: Rewriter, op: Operation, operands: list[SSAValue], order: Order
    ) -> SSAValue:
        assert isinstance(op, XnnpackOp)
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
        new = type(op).create(
            operands=operands,
            result_types=[tensor(made, element(op.output.type))],
            properties=properties,
            attributes=dict(op.attributes),
        )
        return rw.insert(new).results[0]


def stretches(whole: Sequence[Dim], part: Sequence[Dim]) -> int:
    """Return the number of contiguous runs of elements in a part of a tensor."""
    last = max((axis for axis, size in enumerate(whole) if size != part[axis]), default=0)
    return estimated(part[:last])


def takes_elements(part: Sequence[Dim], order: Order, axis: int) -> bool:
    """Whether an order puts a thinly sliced axis last that is not the last axis of the value.

    A slice or concatenation along the last axis copies element by element. Along a leading axis it
    copies whole blocks.
    """
    size = part[axis]
    if not isinstance(size, int) or size > FEW or axis == len(order) - 1:
        return False
    return order[axis] == len(order) - 1


@dataclass(frozen=True)
class AssignLayouts(PlaceTransposes):
    """Rebuild the nodes on one side of a minimum cut so that they work before the transposes."""

    name: ClassVar[str] = "assign-layouts"
    bound: ClassVar[Bound] = roundings(
        "a kernel may sum a row of a linear layer otherwise where it stands otherwise"
    )
    TABLE: ClassVar[Layouts] = XnnpackLayouts()

    def table(self, program: Program) -> Layouts:
        costs = costs_of(program.context)
        return XnnpackLayouts(costs.moving, costs.runs_moved)
