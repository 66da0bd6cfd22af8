"""Strength reduction: a 3×3 convolution by Winograd's method, 16 products for 2×2 results, not 36.

F(2×2, 3×3) of Lavin and Gray ("Fast Algorithms for Convolutional Neural Networks", 2015): each tile
of 4×4 pixels is transformed by additions (V = Bᵀ d B), the filter at compile time (U = G g Gᵀ), the
sixteen elements of both are multiplied over the channels, and additions turn the products into 2×2
results (Y = Aᵀ M A). In XNNPACK's nodes, V is sixteen depthwise convolutions of four taps ±1 with
stride two, the products are linear layers, and Y is sums and two concatenations. It pays from about
64 channels on, for images of at least about 10×10: 1.15 to 1.8 times as fast (`docs/xnnpack.md`).

Its sums are shorter than sums of 9 · C products, and errors are no greater (measured: 0.4 to 0.7 of
the direct form's). But infinities cancel to NaN in all four results of the tiles that read one, so
that it needs `numerics="finite"`, or a proof that no sum overflows: from the declared range of an
input (`ranges=`), or from inputs of bytes and tokens. The weights take 16/9 of their size.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from math import inf, prod
from typing import cast

import torch
from xdsl.ir import SSAValue

from stepwell.dialects import xnnpack
from stepwell.dialects.xnnpack.base import constant_of
from stepwell.dialects.xnnpack.costs import Costs, choose, costs_of
from stepwell.dialects.xnnpack.spatial import Convolution2d
from stepwell.ir.declared.bounds import roundings
from stepwell.ir.declared.numerics import Deviation
from stepwell.ir.dtypes import f32
from stepwell.ir.program import Program
from stepwell.ir.rewriting.rewrite import Bound, Rewriter
from stepwell.ir.rewriting.rewrite import Value as RunTime
from stepwell.ir.types import Dim, dims, element, tensor
from stepwell.ir.weights import recipe
from stepwell.translate.decompositions.values import Value
from stepwell.translate.lowerings.lowering import lowerings_of, lowers, refuse
from stepwell.translate.lowerings.xnnpack.values import node
from stepwell.translate.range_analysis import Interval, sums_are_finite, values_of
from stepwell.translate.rewrites.xnnpack.convolutions.convolve_by_rows import directly, rows_of
from stepwell.translate.rewrites.xnnpack.nodes.lower_shape import (
    clamps_of,
    reshape,
    slice_sizes,
)
from stepwell.translate.rewrites.xnnpack.quantized.quantized_bounds import growth

WINDOW = 3
TILE = 2
"""Results of a tile along an axis."""
ELEMENTS = WINDOW + TILE - 1
"""Pixels of a tile along an axis, and elements of the transformed tile."""
G = ((1.0, 0.0, 0.0), (0.5, 0.5, 0.5), (0.5, -0.5, 0.5), (0.0, 0.0, 1.0))
"""The transform of three taps to four elements."""


LARGEST_WEIGHT = torch.finfo(torch.float32).max / WINDOW**2
"""Sums of the weights of a window are finite up to this bound."""
SUMS = roundings("sums of a thousand products in another order")


@dataclass(frozen=True)
class PixelDifference:
    """A row of Bᵀ: two pixels of a tile, `first` and `first + step`, with their signs."""

    first: int
    step: int
    signs: tuple[float, float]


B = (
    PixelDifference(0, 2, (1.0, -1.0)),
    PixelDifference(1, 1, (1.0, 1.0)),
    PixelDifference(1, 1, (-1.0, 1.0)),
    PixelDifference(1, 2, (1.0, -1.0)),
)
"""The transform of four pixels. Aᵀ is (1, 1, 1, 0), (0, 1, −1, −1): see `_pair`."""


@recipe("winograd_filter", "of the first")
def winograd_filter(weight: torch.Tensor, *, row: int, column: int) -> torch.Tensor:
    """Transform a filter `[out, 3, 3, in]` to one element of G g Gᵀ, `[out, in]`, in float64."""
    factors = torch.outer(*(torch.tensor(G[index], dtype=torch.float64) for index in (row, column)))
    return torch.einsum("ohwi,hw->oi", weight.double(), factors.to(weight.device)).float()


SPREADS = Deviation("an infinity or NaN makes NaN of every result of the tiles that read it")
"""V takes differences of pixels, and Y takes differences of products."""
TERMS = 36
"""An element of V is at most 4 max|x|, Σ|U| at most Σ|w|, and a result sums nine products."""


def _loses(op: Convolution2d, program: Program) -> Deviation | None:
    return SPREADS.unless(sums_are_finite(op, TERMS, program))


def _keep_interval(op: Convolution2d, made: SSAValue, program: Program) -> None:
    """Store the interval of the convolution, widened by the error bound, as that of its tiles.

    The sums of the tiles, one by one, would give an interval that is some 30 times as wide.
    """
    if _loses(op, program) is not None:
        return
    values = values_of(program)
    held, rows = values.of(op.result), values.row_sums(op.filter)
    assert rows is not None, "the proof has read them"
    most = values.of(op.input).most * rows.most(1.0, -1.0)
    error = TERMS * growth(op.filter_shape[3] + 16) * most
    low, high = op.output_range or (-inf, inf)
    low, high = max(low, held.low - error), min(high, held.high + error)
    values.known[made] = Interval(low, high, held.nan)


def _bound(op: Convolution2d, value: RunTime) -> Bound:
    """Return the error bound of both forms."""
    largest = float(value(op.input).abs().max())
    reach = float(value(op.filter).double().abs().sum((1, 2, 3)).max())
    terms = op.filter_shape[3]
    direct = growth(WINDOW * WINDOW * terms) * largest * reach
    tiled = TERMS * growth(terms + 16) * largest * reach
    return Bound(absolute=direct + tiled, reason=SUMS.reason)


@lowers(
    "xnnpack.convolution_2d",
    to="aten",
    bound=SUMS,
    error_bound=_bound,
    deviation=_loses,
    sample="""
    %w = stepwell.weight <"w"> "parameter" : tensor<48x3x3x64xf32>
    %b = stepwell.weight <"b"> "parameter" : tensor<48xf32>
    %y = xnnpack.convolution_2d(%x, %w, %b, groups=1, padding=[1, 1, 1, 1], stride=[1, 1], dilation=[1, 1]) : (tensor<1x31x32x64xf32>, tensor<48x3x3x64xf32>, tensor<48xf32>) -> tensor<1x31x32x48xf32>
    """,
)
def convolve_by_winograd(
    *, op: Convolution2d, b: Rewriter, costs: Costs | None = None
) -> Value | None:
    """Convolve by tiles: depthwise convolutions, linear layers, sums and concatenations.

    V is built column by column, so that few of its elements are live at once.

    Args:
        op: a convolution of 3×3.
        b: the builder.
        costs: a cost model that replaces that of the target CPU.
    """
    if op.window != (WINDOW, WINDOW) or element(op.input.type) != f32:
        return None
    if op.pair("stride") != (1, 1) or op.pair("dilation") != (1, 1) or op.integer("groups", 1) != 1:
        return None
    weight = constant_of(op.filter)
    assert weight is not None, "a node's filter is a constant"
    if not all(isinstance(size, int) for size in dims(op.input.type)[1:]):
        refuse("tiles are laid out at compile time, and the image's sizes are symbolic")
    top, _, _, left = op.paddings
    if not top or not left:
        refuse("the image has no padding above or at the left, where the first tiles begin")
    height, width = _image(op.result)
    tiles = -(-height // TILE), -(-width // TILE)
    by_rows = rows_of(op)

    def untiled(costs: Costs) -> float:
        return min(directly(op, costs), by_rows.cost(costs))

    def times(costs: Costs) -> dict[str, float]:
        here = (1 - 2 * costs.worth) * untiled(costs)
        return {"directly": here, "by tiles": by_tiles(op, tiles, costs)}

    if choose(b.program.context, "convolve-by-winograd", op, times, costs) == "directly":
        refuse("the sums cost more than the products that they save")
    costs = costs or costs_of(b.program.context)
    b.saving = untiled(costs) - by_tiles(op, tiles, costs)
    key = weight.key.data
    columns = [_column(op, tiles, key, column, b) for column in range(ELEMENTS)]
    # After the first node, where a forbidden deviation refuses: only this guard reads elements.
    if not all(bool((rows.abs() <= LARGEST_WEIGHT).all()) for rows in b.weights.rows(key)):
        refuse("a weight, or a sum of weights, is not finite")
    rows: list[SSAValue] = []
    for row in range(TILE):
        # No later op changes a number, so that these clamp.
        pair = _pair(b, [column[row] for column in columns], op)
        rows.append(node(b, xnnpack.Concatenate2, *pair, axis=3).ssa)
    joined = node(b, xnnpack.Concatenate2, *rows, axis=2).ssa
    # Row by row: one row of all tiles across, in which a tile's two columns are adjacent.
    batch, *_, outputs = shape = dims(op.result.type)
    image = reshape(b, joined, (batch, TILE * tiles[0], TILE * tiles[1], outputs))
    if image.type != op.result.type:
        fields = {"offsets": [0, 0, 0, 0], "sizes": slice_sizes(shape)}
        image = node(b, xnnpack.StaticSlice, image, result=op.result.type, **fields).ssa
    _keep_interval(op, image, b.program)
    return Value(image, b)


def by_tiles(op: Convolution2d, tiled: tuple[int, int], costs: Costs) -> float:
    """Return the nanoseconds of the nodes that convolve by tiles."""
    outputs, _, _, inputs = op.filter_shape
    tiles = _least(dims(op.input.type)[0]) * prod(tiled)
    elements = ELEMENTS * ELEMENTS
    layers = tiles * inputs * outputs * costs.product + inputs * outputs * costs.weight
    layers += tiles * inputs * costs.window(4) + 2 * costs.node
    sums = tiles * outputs * costs.addition + costs.node
    joins = 2 * tiles * TILE * TILE * outputs * costs.slice + 3 * costs.node
    return elements * layers + 24 * sums + joins


def _column(
    op: Convolution2d, tiles: tuple[int, int], filter_: str, column: int, b: Rewriter
) -> tuple[SSAValue, SSAValue]:
    """Return both rows of Aᵀ M at a column: Aᵀ takes the four elements of M in that column."""
    values: list[SSAValue] = []
    for row in range(ELEMENTS):
        key = b.weights.derive("winograd_filter", [filter_], row=row, column=column)
        # The element that all four results of a tile take with factor 1 carries the bias.
        bias = op.bias if row == column == 1 else None
        element_ = _element(op, tiles, B[row], B[column], b)
        values.append(node(b, xnnpack.FullyConnected, element_, b.weight(key), bias).ssa)
    return _pair(b, values)


def _image(value: SSAValue) -> tuple[int, int]:
    """Return the height and width of an image, which are static."""
    _, height, width, _ = dims(value.type)
    return cast("int", height), cast("int", width)


def _least(batch: Dim) -> int:
    """Return the smallest possible batch size; a gain for one image grows with more images."""
    return batch if isinstance(batch, int) else 1


def _pair(
    b: Rewriter, elements: Sequence[SSAValue], clamped_as: Convolution2d | None = None
) -> tuple[SSAValue, SSAValue]:
    """Apply Aᵀ to four elements: first + second + third, and second − third − fourth."""
    first, second, third, fourth = elements
    fields = {} if clamped_as is None else clamps_of(clamped_as)
    total = node(b, xnnpack.Add, node(b, xnnpack.Add, first, second).ssa, third, **fields)
    less = node(b, xnnpack.Subtract, second, third)
    return total.ssa, node(b, xnnpack.Subtract, less.ssa, fourth, **fields).ssa


def _element(
    op: Convolution2d,
    tiles: tuple[int, int],
    down: PixelDifference,
    across: PixelDifference,
    b: Rewriter,
) -> SSAValue:
    """Return an element of V for every tile: `[N, tiles down, tiles across, C]`."""
    batch, *_, channels = dims(op.input.type)
    height, width = _image(op.input)
    top, _, _, left = op.paddings
    signs = torch.outer(torch.tensor(down.signs), torch.tensor(across.signs))
    taps = b.constant(signs[None, :, :, None].repeat(1, 1, 1, cast("int", channels)), "signs")
    above, below = _paddings(height, top, tiles[0], down)
    before, after = _paddings(width, left, tiles[1], across)
    return node(
        b,
        xnnpack.DepthwiseConvolution2d,
        op.input,
        taps,
        result=tensor((batch, *tiles, channels), f32),
        padding=(above, after, below, before),
        stride=(TILE, TILE),
        dilation=(down.step, across.step),
    ).ssa


def _paddings(size: int, before: int, tiles: int, taken: PixelDifference) -> tuple[int, int]:
    """Return the padding before and after an axis for windows of two pixels, one for each tile."""
    start = before - taken.first
    last = TILE * (tiles - 1) + taken.step - start
    return start, max(0, last - (size - 1))


RULES = lowerings_of(__name__)
