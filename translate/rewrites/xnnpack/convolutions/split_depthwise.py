"""Split a depthwise convolution with more taps than a kernel holds into a sum of smaller ones.

XNNPACK's depthwise kernels end at 25 taps. A larger window runs as an indirect product of one
channel a group, whose every tap takes about ten times as long: half of a ConvNeXt's time. Split
into parts of at most 25 taps, each a convolution with other paddings, a 7×7 window takes a fifth to
an eighth of the time (`docs/xnnpack.md`). The cost model chooses the parts: four rows a step apart
by six columns, the three rows between by seven, and four single taps, of which one part reads a
slice. Images of halves and int8 are convolved in float32 between two converts: their own indirect
products are slower still.
"""

from __future__ import annotations

from math import prod

from xdsl.ir import SSAValue

from stepwell.dialects import xnnpack
from stepwell.dialects.quant import quantization
from stepwell.dialects.quant.recipes import store_parameters
from stepwell.dialects.xnnpack import DepthwiseConvolution2d
from stepwell.dialects.xnnpack.base import constant_of
from stepwell.dialects.xnnpack.costs import TAPS, costs_of, estimated
from stepwell.ir.choices import shape_of
from stepwell.ir.compat.torch.lazy_imports import torch
from stepwell.ir.declared.bounds import roundings
from stepwell.ir.declared.numerics import REORDERED
from stepwell.ir.dtypes import f16, f32
from stepwell.ir.rewriting.rewrite import Bound, Rewriter
from stepwell.ir.rewriting.rewrite import Value as RunTime
from stepwell.ir.types import dims, element, tensor, with_element
from stepwell.ir.weights import WeightStore, recipe
from stepwell.translate.decompositions.values import Value
from stepwell.translate.lowerings.lowering import lowerings_of, lowers, refuse
from stepwell.translate.lowerings.xnnpack.values import node
from stepwell.translate.rewrites.xnnpack.convolutions.window_parts import (
    Part,
    Prices,
    WindowAxis,
    least,
)
from stepwell.translate.rewrites.xnnpack.floats.singles import ONCE, single
from stepwell.translate.rewrites.xnnpack.nodes.lower_shape import clamps_of, slice_sizes
from stepwell.translate.rewrites.xnnpack.quantized.quantized_bounds import growth

SUMS = roundings("sums in another order")


@recipe("filter_part")
def filter_part(weight: torch.Tensor, *, rows: list[int], columns: list[int]) -> torch.Tensor:
    """Return taps of a filter `[1, h, w, channels]` as a view: `from`, `to`, `by` on both axes."""
    down, across = slice(*rows), slice(*columns)
    return weight[:, down, across]


def _bound(op: DepthwiseConvolution2d, value: RunTime) -> Bound:
    """Return the error bound: the split form, too, rounds halves and integers only once."""
    held = quantization(op.result.type)
    if held is None:
        return ONCE if element(op.result.type) == f16 else SUMS
    given, weight = quantization(op.input.type), quantization(op.filter.type)
    assert given is not None and weight is not None
    largest = float((value(op.input).double() - given.zero_point).abs().max()) * given.scale
    scales = weight.scale_values(torch.float64)
    reach = float((value(op.filter).double() * scales).abs().sum((0, 1, 2)).max())
    distance = 2.0 * growth(prod(op.window)) * largest * reach / held.scale
    return Bound(units=1 + int(distance), reason="sums in float32, rounded once")


@lowers(
    "xnnpack.depthwise_convolution_2d",
    to="aten",
    bound=SUMS,
    error_bound=_bound,
    deviation=lambda op, program: REORDERED,
    sample="""
    %w = stepwell.weight <"w"> "parameter" : tensor<1x9x3x16xf32>
    %b = stepwell.weight <"b"> "parameter" : tensor<16xf32>
    %y = xnnpack.depthwise_convolution_2d(%x, %w, %b, padding=[4, 1, 4, 1], stride=[1, 1], dilation=[1, 1]) : (tensor<1x64x64x16xf32>, tensor<1x9x3x16xf32>, tensor<16xf32>) -> tensor<1x64x64x16xf32>
    """,
)
def split_depthwise(*, op: DepthwiseConvolution2d, b: Rewriter) -> Value | None:
    """Replace a convolution of more than 25 taps by a sum of convolutions with at most 25.

    Each part is added to the previous sum; the first part includes the bias.
    """
    height, width = op.window
    if height * width <= TAPS[-1]:
        return None
    if op.filter_shape[3] != op.channels:
        refuse("a channel has several outputs: XNNPACK computes products, with windows of any size")
    rows, columns = axes_of(op)
    parts = _parts(op, rows, columns, b)
    filter_ = constant_of(op.filter)
    assert filter_ is not None, "filters are constants"
    image, made = op.input, with_element(op.result.type, f32)
    if element(image.type) != f32:
        image = node(b, xnnpack.Convert, image, element=f32).ssa
    key = reals(b.weights, op.filter, filter_.key.data)
    slices: dict[tuple[int, ...], SSAValue] = {}
    total: SSAValue | None = None
    for down, across in parts:
        tall, wide = rows.cut(down), columns.cut(across)
        assert tall is not None and wide is not None, "parts are as `least` found them"
        if (cut := (*tall, *wide)) not in slices:
            slices[cut] = inner(b, image, tall, wide)
        (top, bottom), (left, right) = (
            (max(0, padding) for padding in axis.paddings(run))
            for axis, run in ((rows, down), (columns, across))
        )
        taps = b.weights.derive(
            "filter_part",
            [key],
            rows=[down.first, down.last + 1, down.step],
            columns=[across.first, across.last + 1, across.step],
        )
        bias = _bias(op, b) if total is None else None
        part = node(
            b,
            DepthwiseConvolution2d,
            slices[cut],
            b.weight(taps),
            bias,
            result=made,
            padding=(top, right, bottom, left),
            stride=op.pair("stride"),
            dilation=(rows.dilation * down.step, columns.dilation * across.step),
        ).ssa
        is_last = (down, across) == parts[-1]
        fields = {"result": made, **(clamps_of(op) if is_last else {})}
        total = part if total is None else node(b, xnnpack.Add, total, part, **fields).ssa
    assert total is not None, "a window has several parts"
    if total.type != op.result.type:
        return node(b, xnnpack.Convert, total, result=op.result.type)
    return Value(total, b)


def _parts(
    op: DepthwiseConvolution2d, rows: WindowAxis, columns: WindowAxis, b: Rewriter
) -> tuple[Part, ...]:
    """Return the division of a window into parts that costs less than the whole."""
    costs, taps = costs_of(b.program.context), prod(op.window)
    prices = Prices(costs, _count(op.result), _count(op.input))
    found = least(rows, columns, prices)
    if found is None:
        refuse(
            "parts of the window read slices of the image, and its height or width is symbolic or too small"
        )
    cost, parts = found
    if element(op.input.type) != f32:
        cost += costs.convert * (prices.image + prices.elements) + 2 * costs.node
    forms = {"whole": prices.whole(taps), "in parts": cost}
    if b.program.context.choose("split-depthwise", shape_of(op), forms) == "whole":
        refuse("the convolution is so small that computing it in parts would cost more")
    return parts


def axes_of(op: DepthwiseConvolution2d) -> tuple[WindowAxis, WindowAxis]:
    """Return the rows and columns of a window."""
    top, right, bottom, left = op.paddings
    (height, width), (down, across) = op.window, op.pair("dilation")
    tall, wide = (size if isinstance(size, int) else None for size in dims(op.input.type)[1:3])
    return WindowAxis(height, top, bottom, down, tall), WindowAxis(width, left, right, across, wide)


def inner(
    rw: Rewriter, image: SSAValue, rows: tuple[int, int], columns: tuple[int, int]
) -> SSAValue:
    """Return an image `[N, H, W, C]` with some rows and columns cropped at its ends."""
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
    """Return a constant of halves or stored integers converted to float32."""
    if (value_quantization := quantization(value.type)) is not None:
        return store.derive("quant.reals", [key], **store_parameters(value_quantization))
    return store.derive(single.__name__, [key]) if element(value.type) == f16 else key


def _bias(op: DepthwiseConvolution2d, rw: Rewriter) -> SSAValue | None:
    if op.bias is None:
        return None
    constant = constant_of(op.bias)
    assert constant is not None, "biases are constants"
    return rw.weight(reals(rw.weights, op.bias, constant.key.data))


def _count(value: SSAValue) -> int:
    return estimated(dims(value.type))


RULES = lowerings_of(__name__)
