"""Split a depthwise convolution with more taps than a kernel holds into a sum of smaller ones.

XNNPACK's depthwise kernels end at 25 taps. A larger window runs as an indirect product of one
channel a group, whose every tap takes about ten times as long: half of a ConvNeXt's time. Split
into parts of at most 25 taps, each a convolution with other paddings, a 7×7 window takes a fifth to
an eighth of the time (`docs/xnnpack.md`). The cost model chooses the parts: four rows a step apart
by six columns, the three rows between by seven, and four single taps, of which one part reads a
slice. Images of halves and int8 are convolved in float32 between two converts: their own indirect
products are slower still.

Before:
    %w = stepwell.weight <"w"> "parameter" : tensor<1x9x3x16xf32>
    %b = stepwell.weight <"b"> "parameter" : tensor<16xf32>
    %y = xnnpack.depthwise_convolution_2d(%x, %w, %b, padding=[4, 1, 4, 1], stride=[1, 1], dilation=[1, 1]) : (tensor<1x64x64x16xf32>, tensor<1x9x3x16xf32>, tensor<16xf32>) -> tensor<1x64x64x16xf32>
After:
    %b = stepwell.weight <"b"> "parameter" : tensor<16xf32>
    %0 = stepwell.weight <"w#filter_part.defc5e4df6a6"> "constant" : tensor<1x3x3x16xf32>
    %1 = stepwell.weight <"w#filter_part.06c239c7c787"> "constant" : tensor<1x3x3x16xf32>
    %2 = stepwell.weight <"w#filter_part.1b7f15a27d3b"> "constant" : tensor<1x3x3x16xf32>
    %3 = xnnpack.depthwise_convolution_2d(%x, %0, %b, padding=[4, 1, 2, 1], stride=[1, 1], dilation=[3, 1]) : (tensor<1x64x64x16xf32>, tensor<1x3x3x16xf32>, tensor<16xf32>) -> tensor<1x64x64x16xf32>
    %4 = xnnpack.depthwise_convolution_2d(%x, %1, padding=[3, 1, 3, 1], stride=[1, 1], dilation=[3, 1]) : (tensor<1x64x64x16xf32>, tensor<1x3x3x16xf32>) -> tensor<1x64x64x16xf32>
    %5 = xnnpack.add(%3, %4) : (tensor<1x64x64x16xf32>, tensor<1x64x64x16xf32>) -> tensor<1x64x64x16xf32>
    %6 = xnnpack.depthwise_convolution_2d(%x, %2, padding=[2, 1, 4, 1], stride=[1, 1], dilation=[3, 1]) : (tensor<1x64x64x16xf32>, tensor<1x3x3x16xf32>) -> tensor<1x64x64x16xf32>
    %y = xnnpack.add(%5, %6) : (tensor<1x64x64x16xf32>, tensor<1x64x64x16xf32>) -> tensor<1x64x64x16xf32>
"""

from __future__ import annotations

from dataclasses import dataclass
from math import prod
from typing import ClassVar

import torch
from xdsl.ir import Operation, SSAValue

from stepwell.dialects import xnnpack
from stepwell.dialects.quant import quantization
from stepwell.dialects.quant.recipes import store_parameters
from stepwell.dialects.xnnpack import DepthwiseConvolution2d
from stepwell.dialects.xnnpack.base import constant_of
from stepwell.dialects.xnnpack.costs import TAPS, Costs, costs_of, estimated
from stepwell.ir.choices import shape_of
from stepwell.ir.declared.bounds import roundings
from stepwell.ir.declared.numerics import REORDERED, Deviation
from stepwell.ir.dtypes import f16, f32
from stepwell.ir.program import Program
from stepwell.ir.rewriting.rewrite import Bound, Refusal, Rewrite, Rewriter, Value
from stepwell.ir.types import dims, element, tensor, with_element
from stepwell.ir.weights import WeightStore, recipe
from stepwell.translate.rewrites.xnnpack.convolutions.window_parts import (
    Part,
    Prices,
    WindowAxis,
    least,
)
from stepwell.translate.rewrites.xnnpack.floats.singles import ONCE, single
from stepwell.translate.rewrites.xnnpack.nodes.lower_shape import slice_sizes
from stepwell.translate.rewrites.xnnpack.quantized.quantized_bounds import growth


@recipe("filter_part")
def filter_part(weight: torch.Tensor, *, rows: list[int], columns: list[int]) -> torch.Tensor:
    """Return some taps of a filter `[1, h, w, channels]`: from, to, and by; a view."""
    down, across = slice(*rows), slice(*columns)
    return weight[:, down, across]


@dataclass(frozen=True)
class SplitWindow:
    """A depthwise convolution, and the parts of its window."""

    op: DepthwiseConvolution2d
    filter: str
    rows: WindowAxis
    columns: WindowAxis
    parts: tuple[Part, ...]


@dataclass(frozen=True)
class SplitDepthwise(Rewrite[SplitWindow]):
    """`depthwise_convolution_2d` of more than 25 taps to a sum of such with at most 25."""

    name: ClassVar[str] = "split-depthwise"
    anchors: ClassVar[tuple[type[Operation], ...]] = (DepthwiseConvolution2d,)
    bound: ClassVar[Bound] = roundings("sums in another order")
    deviation: ClassVar[Deviation | None] = REORDERED
    costs: Costs | None = None
    """The decision that replaces the cost model of the target CPU, if one is given."""

    def match(self, op: DepthwiseConvolution2d, program: Program) -> SplitWindow | Refusal | None:
        """Guards: no kernel holds the window, and it has a division into parts that costs less."""
        height, width = op.window
        if height * width <= TAPS[-1]:
            return None
        if op.filter_shape[3] != op.channels:
            return Refusal(
                "several results a channel: each is an indirect product whatever its taps"
            )
        rows, columns = axes_of(op)
        filter = constant_of(op.filter)
        assert filter is not None, "filters are constants"
        costs = self.costs or costs_of(program.context)
        prices = Prices(costs, _count(op.result), _count(op.input))
        found = least(rows, columns, prices)
        if found is None:
            return Refusal(
                "parts of the window read slices of the image, whose height or width is symbolic "
                "or less than what they leave out"
            )
        cost, parts = found
        if element(op.input.type) != f32:
            cost += costs.convert * (prices.image + prices.elements) + 2 * costs.node
        forms = {"whole": prices.whole(height * width), "in parts": cost}
        if program.context.choose(self.name, shape_of(op), forms) == "whole":
            return Refusal("so few elements cost less than the nodes of the parts")
        return SplitWindow(op, filter.key.data, rows, columns, parts)

    def bound_at(self, match: SplitWindow, value: Value) -> Bound:
        """Halves and integers are rounded once, in either form."""
        op = match.op
        result_quantization = quantization(op.result.type)
        if result_quantization is None:
            return ONCE if element(op.result.type) == f16 else self.bound
        given, weight = quantization(op.input.type), quantization(op.filter.type)
        assert given is not None and weight is not None
        largest = float((value(op.input).double() - given.zero_point).abs().max()) * given.scale
        scales = weight.scale_values(torch.float64)
        reach = float((value(op.filter).double() * scales).abs().sum((0, 1, 2)).max())
        distance = 2.0 * growth(prod(op.window)) * largest * reach / result_quantization.scale
        return Bound(units=1 + int(distance), reason="sums in float32, rounded once")

    def build(self, match: SplitWindow, rw: Rewriter) -> None:
        """Build the parts in order, each added to the sum so far; the first has the bias."""
        op = match.op
        image, made = op.input, with_element(op.result.type, f32)
        if image.type != with_element(image.type, f32):
            image = rw.insert(xnnpack.Convert.make(image, element=f32)).results[0]
        filter = reals(rw.weights, op.filter, match.filter)
        slices: dict[tuple[int, ...], SSAValue] = {}
        total: SSAValue | None = None
        for rows, columns in match.parts:
            down, across = match.rows.cut(rows), match.columns.cut(columns)
            assert down is not None and across is not None, "parts are as `least` found them"
            if (cut := (*down, *across)) not in slices:
                slices[cut] = inner(rw, image, down, across)
            (top, bottom), (left, right) = (
                (max(0, padding) for padding in axis.paddings(run))
                for axis, run in ((match.rows, rows), (match.columns, columns))
            )
            key = rw.weights.derive(
                "filter_part",
                [filter],
                rows=[rows.first, rows.last + 1, rows.step],
                columns=[columns.first, columns.last + 1, columns.step],
            )
            bias = [] if total is not None else _bias(op, rw)
            part = DepthwiseConvolution2d.make(
                slices[cut],
                rw.weight(key),
                *bias,
                result=made,
                padding=(top, right, bottom, left),
                stride=op.pair("stride"),
                dilation=(match.rows.dilation * rows.step, match.columns.dilation * columns.step),
            )
            value = rw.insert(part).results[0]
            if total is not None:
                value = rw.insert(xnnpack.Add.make(total, value, result=made)).results[0]
            total = value
        assert total is not None and isinstance(total.owner, Operation)
        for name in ("output_min", "output_max"):
            if name in op.properties:
                total.owner.properties[name] = op.properties[name]
        if total.type != op.result.type:
            total = rw.insert(xnnpack.Convert.make(total, result=op.result.type)).results[0]
        rw.replace(op, [total])


def axes_of(op: DepthwiseConvolution2d) -> tuple[WindowAxis, WindowAxis]:
    """Return the rows and columns of a window."""
    top, right, bottom, left = op.paddings
    (height, width), (down, across) = op.window, op.pair("dilation")
    tall, wide = (size if isinstance(size, int) else None for size in dims(op.input.type)[1:3])
    return WindowAxis(height, top, bottom, down, tall), WindowAxis(width, left, right, across, wide)


def inner(
    rw: Rewriter, image: SSAValue, rows: tuple[int, int], columns: tuple[int, int]
) -> SSAValue:
    """Return an image `[N, H, W, C]` without some rows and columns at its ends."""
    if not any((*rows, *columns)):
        return image
    shape = list(dims(image.type))
    offsets = [0] * len(shape)
    for axis, (before, after) in ((1, rows), (2, columns)):
        size = shape[axis]
        if before or after:
            assert isinstance(size, int), "axes of symbolic size stay whole"
            offsets[axis], shape[axis] = before, size - before - after
    result = tensor(shape, element(image.type))
    node = xnnpack.StaticSlice.make(
        image, result=result, offsets=offsets, sizes=slice_sizes(tuple(shape))
    )
    return rw.insert(node).results[0]


def reals(store: WeightStore, value: SSAValue, key: str) -> str:
    """Return a constant of halves or stored integers as float32."""
    if (value_quantization := quantization(value.type)) is not None:
        return store.derive("quant.reals", [key], **store_parameters(value_quantization))
    return store.derive(single.__name__, [key]) if element(value.type) == f16 else key


def _bias(op: DepthwiseConvolution2d, rw: Rewriter) -> list[SSAValue]:
    if op.bias is None:
        return []
    constant = constant_of(op.bias)
    assert constant is not None, "biases are constants"
    return [rw.weight(reals(rw.weights, op.bias, constant.key.data))]


def _count(value: SSAValue) -> int:
    return estimated(dims(value.type))
