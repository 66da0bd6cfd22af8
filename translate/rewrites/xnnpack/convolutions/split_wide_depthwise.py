"""Tiling: split a depthwise convolution whose filter exceeds the L1 cache by channels.

XNNPACK's depthwise kernel goes from pixel to pixel and reads the whole filter at each. A filter
larger than the first-level cache comes from the second-level cache every time, and each tap takes
twice as long: 5×5 over 672 channels at 14² does 33 GFLOP/s, in three parts of 224 channels 60
(`docs/peers.md`). The ops that compute the image for this node alone are split as well, from its
layer on, so that no slices are needed; the parts are then concatenated.

Before:
    %l = stepwell.weight <"l"> "parameter" : tensor<384x16xf32>
    %w = stepwell.weight <"w"> "parameter" : tensor<1x5x5x384xf32>
    %i = xnnpack.fully_connected(%x, %l) : (tensor<1x24x24x16xf32>, tensor<384x16xf32>) -> tensor<1x24x24x384xf32>
    %y = xnnpack.depthwise_convolution_2d(%i, %w, padding=[2, 2, 2, 2], stride=[1, 1], dilation=[1, 1]) : (tensor<1x24x24x384xf32>, tensor<1x5x5x384xf32>) -> tensor<1x24x24x384xf32>
After:
    %0 = stepwell.weight <"l#box_of.6b73f9fbff4a"> "constant" : tensor<192x16xf32>
    %1 = stepwell.weight <"w#box_of.1a1324d7e8fa"> "constant" : tensor<1x5x5x192xf32>
    %2 = stepwell.weight <"l#box_of.097ca795f1c8"> "constant" : tensor<192x16xf32>
    %3 = stepwell.weight <"w#box_of.6352d02380d0"> "constant" : tensor<1x5x5x192xf32>
    %4 = xnnpack.fully_connected(%x, %0) : (tensor<1x24x24x16xf32>, tensor<192x16xf32>) -> tensor<1x24x24x192xf32>
    %5 = xnnpack.depthwise_convolution_2d(%4, %1, padding=[2, 2, 2, 2], stride=[1, 1], dilation=[1, 1]) : (tensor<1x24x24x192xf32>, tensor<1x5x5x192xf32>) -> tensor<1x24x24x192xf32>
    %6 = xnnpack.fully_connected(%x, %2) : (tensor<1x24x24x16xf32>, tensor<192x16xf32>) -> tensor<1x24x24x192xf32>
    %7 = xnnpack.depthwise_convolution_2d(%6, %3, padding=[2, 2, 2, 2], stride=[1, 1], dilation=[1, 1]) : (tensor<1x24x24x192xf32>, tensor<1x5x5x192xf32>) -> tensor<1x24x24x192xf32>
    %y = xnnpack.concatenate2(%5, %7, axis=3) : (tensor<1x24x24x192xf32>, tensor<1x24x24x192xf32>) -> tensor<1x24x24x384xf32>
"""

from __future__ import annotations

from dataclasses import dataclass
from math import prod
from typing import ClassVar, cast

from xdsl.ir import Operation, SSAValue

from stepwell.dialects import xnnpack
from stepwell.dialects.xnnpack import DepthwiseConvolution2d, XnnpackOp
from stepwell.dialects.xnnpack.costs import TAPS, Costs, costs_of
from stepwell.dialects.xnnpack.elementwise import Binary, PReLU, Unary
from stepwell.ir.choices import shape_of
from stepwell.ir.core import weight_key
from stepwell.ir.declared.bounds import roundings
from stepwell.ir.dtypes import f32
from stepwell.ir.program import Program
from stepwell.ir.rewriting.rewrite import Bound, Refusal, Rewrite, Rewriter
from stepwell.ir.rewriting.rewriter import remade
from stepwell.ir.types import dims, element, is_static, tensor
from stepwell.translate.rewrites.xnnpack.nodes.lower_shape import concatenate
from stepwell.translate.rewrites.xnnpack.partitioning.parts import box_of

WIDTH = 32
"""Parts are multiples of this many channels: the widest tile of XNNPACK's products."""


@dataclass(frozen=True)
class Wide:
    """A depthwise convolution, and its parts as ranges of channels."""

    op: DepthwiseConvolution2d
    parts: tuple[tuple[int, int], ...]


@dataclass(frozen=True)
class SplitWideDepthwise(Rewrite[Wide]):
    """`depthwise_convolution_2d` over many channels to several over some channels each."""

    name: ClassVar[str] = "split-wide-depthwise"
    anchors: ClassVar[tuple[type[Operation], ...]] = (DepthwiseConvolution2d,)
    bound: ClassVar[Bound] = roundings("a product of another width sums in another order")
    costs: Costs | None = None
    """The decision that replaces the cost model of the target CPU, if one is given."""

    def match(self, op: DepthwiseConvolution2d, program: Program) -> Wide | Refusal | None:
        """Guards: float32, a kernel whose filter exceeds the cache, static sizes, the cost."""
        height, width = op.window
        taps, channels = height * width, op.channels
        if taps > TAPS[-1] or op.filter_shape[3] != channels or element(op.input.type) != f32:
            return None
        assert isinstance(channels, int)
        costs = self.costs or costs_of(program.context)
        most = costs.channels_at_hand(taps) // WIDTH * WIDTH
        if channels <= max(most, WIDTH):
            return None
        if not is_static(op.input.type):
            return Refusal("an axis of the image is symbolic, and so is the cost of the parts")
        makers = makers_alone(op)
        if _is_sliced(op.input, makers):
            return Refusal(
                "its image is not computed for it alone by layers and elementwise nodes: slices "
                "of it cost what a cached filter saves"
            )
        count = -(-channels // max(most, WIDTH))
        each = -(-channels // (count * WIDTH)) * WIDTH
        parts = tuple((at, min(at + each, channels)) for at in range(0, channels, each))
        whole = (1 - costs.worth) * _cost(op, 1, makers, costs)
        forms = {"whole": whole, "in parts": _cost(op, len(parts), makers, costs)}
        if program.context.choose(self.name, shape_of(op), forms) == "whole":
            return Refusal("joining the parts costs what a cached filter saves, or little less")
        return Wide(op, parts)

    def build(self, match: Wide, rw: Rewriter) -> None:
        """Build part by part, each from its layer on, so that few values are live between them."""
        op = match.op
        joined: list[SSAValue] = []
        for part in match.parts:
            values: dict[SSAValue, SSAValue] = {}
            operands = [_part(rw, op.input, part, values)]
            operands += [_channels(rw, value, part) for value in op.operands[1:]]
            joined.append(rw.insert(_rebuilt(op, operands, part)).results[0])
        rw.replace(op, [concatenate(rw, joined, 3)])


def makers_alone(op: DepthwiseConvolution2d) -> set[Operation]:
    """Return the elementwise nodes and layers to split by channels, which only `op` reads."""
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
    """Whether an image that parts read is, somewhere, not computed in parts."""
    seen: set[SSAValue] = set()
    waiting = [image]
    while waiting:
        value = waiting.pop()
        if value in seen:
            continue
        seen.add(value)
        maker = value.owner
        if not isinstance(maker, Operation) or maker not in makers:
            return True
        waiting += [] if _is_layer(maker) else _images(cast(XnnpackOp, maker))
    return False


def _count(value: SSAValue) -> int:
    return prod(cast(tuple[int, ...], dims(value.type)))


def _part(
    rw: Rewriter,
    value: SSAValue,
    part: tuple[int, int],
    values: dict[SSAValue, SSAValue],
) -> SSAValue:
    """Build some channels of an image with a new copy of the op that computes it."""
    if value in values:
        return values[value]
    maker = cast(XnnpackOp, value.owner)
    if _is_layer(maker):
        operands = [maker.operands[0]]
        operands += [_channels(rw, weight, part, axis=0) for weight in maker.operands[1:]]
    else:
        images = _images(maker)
        operands = [
            _part(rw, operand, part, values) if operand in images else _channels(rw, operand, part)
            for operand in maker.operands
        ]
    values[value] = rw.insert(_rebuilt(maker, operands, part)).results[0]
    return values[value]


def _channels(rw: Rewriter, value: SSAValue, part: tuple[int, int], axis: int = -1) -> SSAValue:
    """Return some channels of a value: constants by a recipe, a value for all as it is."""
    shape = cast(tuple[int, ...], dims(value.type))
    axis %= len(shape) or 1
    if not shape or shape[axis] == 1:
        return value
    starts, stops = [0] * len(shape), list(shape)
    starts[axis], stops[axis] = part
    key = weight_key(value)
    if key is not None:
        return rw.weight(rw.weights.derive(box_of.__name__, [key], starts=starts, stops=stops))
    sizes = [stop - start for start, stop in zip(starts, stops, strict=True)]
    node = xnnpack.StaticSlice.make(value, result=tensor(sizes, f32), offsets=starts, sizes=sizes)
    return rw.insert(node).results[0]


def _rebuilt(op: XnnpackOp, operands: list[SSAValue], part: tuple[int, int]) -> Operation:
    """Build the same node for some of its channels."""
    shape = (*dims(op.results[0].type)[:-1], part[1] - part[0])
    return remade(op, operands, [tensor(shape, f32)])


def _cost(op: DepthwiseConvolution2d, parts: int, makers: set[Operation], costs: Costs) -> float:
    """Return the nanoseconds of the convolution and its image's ops, in some parts."""
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
