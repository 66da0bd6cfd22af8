"""Tiling: split a depthwise convolution whose filter exceeds the L1 cache by channels.

XNNPACK's depthwise kernel goes from pixel to pixel and reads the whole filter at each. A filter
larger than the first-level cache comes from the second-level cache every time, and each tap takes
twice as long: 5×5 over 672 channels at 14² does 33 GFLOP/s, in three parts of 224 channels 60
(`docs/peers.md`). The ops that compute the image for this node alone are split as well, from its
layer on, so that no slices are needed; the parts are then concatenated.
"""

from __future__ import annotations

from collections.abc import Iterable
from math import prod
from typing import cast

from xdsl.ir import Operation, SSAValue

from stepwell.dialects import xnnpack
from stepwell.dialects.xnnpack import DepthwiseConvolution2d, XnnpackOp
from stepwell.dialects.xnnpack.costs import TAPS, Costs, costs_of
from stepwell.dialects.xnnpack.elementwise import Binary, PReLU, Unary
from stepwell.ir.axes.boxes import whole
from stepwell.ir.axes.maps import axis_map
from stepwell.ir.choices import shape_of
from stepwell.ir.core import weight_key
from stepwell.ir.declared.bounds import roundings
from stepwell.ir.dtypes import f32
from stepwell.ir.rewriting.rewrite import Rewriter
from stepwell.ir.traversal import reached
from stepwell.ir.types import dims, element, is_static
from stepwell.translate.decompositions.values import Value
from stepwell.translate.lowerings.lowering import lowerings_of, lowers, refuse
from stepwell.translate.rewrites.xnnpack.nodes.lower_shape import concatenate
from stepwell.translate.rewrites.xnnpack.partitioning.parts import cut_out, rebuilt

WIDTH = 32
"""Parts are multiples of this many channels: the widest tile of XNNPACK's products."""


@lowers(
    "xnnpack.depthwise_convolution_2d",
    to="aten",
    bound=roundings("a product of another width sums in another order"),
    sample="""
    %l = stepwell.weight <"l"> "parameter" : tensor<384x16xf32>
    %w = stepwell.weight <"w"> "parameter" : tensor<1x5x5x384xf32>
    %i = xnnpack.fully_connected(%x, %l) : (tensor<1x24x24x16xf32>, tensor<384x16xf32>) -> tensor<1x24x24x384xf32>
    %y = xnnpack.depthwise_convolution_2d(%i, %w, padding=[2, 2, 2, 2], stride=[1, 1], dilation=[1, 1]) : (tensor<1x24x24x384xf32>, tensor<1x5x5x384xf32>) -> tensor<1x24x24x384xf32>
    """,
)
def split_wide_depthwise(*, op: DepthwiseConvolution2d, b: Rewriter) -> Value | None:
    """Convolve some channels at a time, including their layer, so that few values are live."""
    height, width = op.window
    taps, channels = height * width, op.channels
    if taps > TAPS[-1] or op.filter_shape[3] != channels or element(op.input.type) != f32:
        return None
    assert isinstance(channels, int)
    costs = costs_of(b.program.context)
    most = costs.channels_at_hand(taps) // WIDTH * WIDTH
    if channels <= max(most, WIDTH):
        return None
    if not is_static(op.input.type):
        refuse("an axis of the image is symbolic, and so is the cost of the parts")
    makers = makers_alone(op)
    if _is_sliced(op.input, makers):
        refuse(
            "the image is not computed for this op alone by layers and elementwise nodes: slicing the image costs as much as a cached filter saves"
        )
    count = -(-channels // max(most, WIDTH))
    each = -(-channels // (count * WIDTH)) * WIDTH
    parts = [(at, min(at + each, channels)) for at in range(0, channels, each)]
    undivided = (1 - costs.worth) * _cost(op, 1, makers, costs)
    forms = {"whole": undivided, "in parts": _cost(op, len(parts), makers, costs)}
    if b.program.context.choose("split-wide-depthwise", shape_of(op), forms) == "whole":
        refuse("joining the parts costs about as much as a cached filter saves")
    joined = [_Part(part, makers, b).of(op) for part in parts]
    return Value(concatenate(b, joined, 3), b)


class _Part:
    """Some channels of a convolution, together with the nodes that compute its image."""

    def __init__(self, channels: tuple[int, int], makers: set[Operation], b: Rewriter) -> None:
        self.channels, self.makers, self.b = channels, makers, b
        self.known: dict[SSAValue, SSAValue] = {}

    def of(self, op: XnnpackOp) -> SSAValue:
        """Build some channels of a node's result from the same channels of its operands."""
        if op.output not in self.known:
            box, axes = whole(op.output.type), axis_map(op)
            assert axes is not None, "nodes that are split by channels have axis maps"
            operands = [
                self._operand(value, axes.before(index, len(box) - 1))
                for index, value in enumerate(op.operands)
            ]
            new = rebuilt(op, operands, (*box[:-1], self.channels))
            self.known[op.output] = self.b.insert(new).results[0]
        return self.known[op.output]

    def _operand(self, value: SSAValue, at: int | None) -> SSAValue:
        """Return some channels of an operand, which are on axis `at` if the operand has them."""
        if at is None:
            return value
        if value.owner in self.makers:
            return self.of(cast(XnnpackOp, value.owner))
        box = whole(value.type)
        return cut_out(self.b, value, box, (*box[:at], self.channels, *box[at + 1 :]))


def makers_alone(op: DepthwiseConvolution2d) -> set[Operation]:
    """Return the elementwise nodes and layers that only `op` reads, to be split by channels."""
    found: dict[Operation, None] = {}
    waiting = [op.input]
    while waiting:
        maker = waiting.pop().owner
        if isinstance(maker, Operation) and maker not in found and _is_cut_by_channels(maker, op):
            found[maker] = None
            waiting += [] if _is_layer(maker) else _images(cast(XnnpackOp, maker))
    alone = set(found)
    while True:  # If another op reads this one, exclude the ops that it is computed from too.
        outside = {
            maker
            for maker in alone
            if any(use.operation not in alone | {op} for use in maker.results[0].uses)
        }
        if not outside:
            return alone
        alone -= outside


def _is_layer(op: Operation) -> bool:
    """Whether the node sums over all its input's channels, for each of its outputs."""
    if isinstance(op, xnnpack.FullyConnected):
        return not op.flag("transpose_weights")
    return isinstance(op, xnnpack.Convolution2d) and op.integer("groups", 1) == 1


def _is_cut_by_channels(op: Operation, reader: DepthwiseConvolution2d) -> bool:
    if not isinstance(op, XnnpackOp) or element(op.results[0].type) != f32:
        return False
    if dims(op.results[0].type) != dims(reader.input.type):
        return False
    if _is_layer(op):
        return all(weight_key(value) is not None for value in op.operands[1:])
    if not isinstance(op, Unary | Binary) or isinstance(op, PReLU):
        return False
    return all(element(value.type) == f32 for value in op.operands)


def _images(op: XnnpackOp) -> list[SSAValue]:
    """Return the operands that have the result's shape."""
    shape = dims(op.results[0].type)
    return [value for value in op.operands if dims(value.type) == shape]


def _is_sliced(image: SSAValue, makers: set[Operation]) -> bool:
    """Whether the parts would have to slice the image, or an operand of the ops that compute it."""

    def images(value: SSAValue) -> Iterable[SSAValue]:
        maker = cast(XnnpackOp, value.owner)
        return [] if _is_layer(maker) else _images(maker)

    return any(value.owner not in makers for value in reached(image, images))


def _count(value: SSAValue) -> int:
    return prod(cast(tuple[int, ...], dims(value.type)))


def _cost(op: DepthwiseConvolution2d, parts: int, makers: set[Operation], costs: Costs) -> float:
    """Return the nanoseconds of the convolution and its image's ops, computed in parts."""
    made = _count(op.result)
    height, width = op.window
    taps = height * width
    work = made * costs.window(taps) + parts * (1 + len(makers)) * costs.node
    for maker in makers:
        if _is_layer(maker):
            rows, weights = _count(maker.results[0]), _count(maker.operands[1])
            inputs = weights // cast(int, dims(maker.operands[1].type)[0])
            work += rows * inputs * costs.product + weights * costs.weight
        else:
            work += _count(maker.results[0]) * costs.element
    if parts == 1:
        return work + made * costs.far_tap * costs.tile(taps)
    return work + made * costs.slice + costs.node


RULES = lowerings_of(__name__)
