"""Strength reduction: a convolution as a sum of linear layers, one for each row of its window.

XNNPACK computes a convolution whose windows overlap by an indirect product, which on x86 CPUs with
AVX2 and without AVX-512 runs at less than half the speed of its product of matrices
(`docs/xnnpack.md`). So the image is padded, the pixels that a row of the window reads are laid next
to each other (im2col of one row), and each row of the window is a linear layer on the image's rows
that it reads. The layers' results are added. With a stride s, the image's rows and pixels are grouped
by their remainder modulo s, so that the taps of a group are neighbors in memory, and neighboring rows
of the window are one layer. A large image is gathered and multiplied in blocks of rows that stay in a
second-level cache, so that memory grows by a few megabytes at most.

The int8 kernel runs at the speed of the matrix kernel, but it pads channels to eight. An image of
three channels is gathered likewise, and all rows of the window are one layer, because sums of int8
are rounded once.

The sums are those of the convolution in another order, and no value is multiplied that the
convolution does not multiply, so that infinities and NaNs stay where they are.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from math import prod
from typing import cast

from xdsl.ir import SSAValue

from stepwell.dialects import xnnpack
from stepwell.dialects.quant import quantization
from stepwell.dialects.xnnpack.base import constant_of
from stepwell.dialects.xnnpack.costs import Costs, choose
from stepwell.dialects.xnnpack.datatypes import datatype
from stepwell.dialects.xnnpack.spatial import Convolution2d
from stepwell.ir.compat.torch.lazy_imports import torch
from stepwell.ir.declared.bounds import roundings
from stepwell.ir.rewriting.rewrite import EXACT, Bound, Rewriter
from stepwell.ir.rewriting.rewrite import Value as RunTime
from stepwell.ir.types import Dim, dims, element, tensor
from stepwell.ir.weights import recipe
from stepwell.translate.decompositions.values import Value
from stepwell.translate.lowerings.lowering import lowerings_of, lowers, refuse
from stepwell.translate.lowerings.xnnpack.values import node
from stepwell.translate.rewrites.xnnpack.convolutions.patches_to_linear import PADDED_CHANNELS
from stepwell.translate.rewrites.xnnpack.nodes.lower_shape import (
    MOST_JOINED,
    clamps_of,
    concatenate,
    reshape,
    slice_sizes,
)
from stepwell.translate.rewrites.xnnpack.quantized.quantized import typed_constant
from stepwell.translate.rewrites.xnnpack.quantized.quantized_bounds import growth

SUMS = roundings("sums of a window's products, row by row")
BLOCK = 1 << 20
"""Bytes of gathered pixels that stay in a second-level cache; of x86 CPUs it has 0.5 to 2 MB."""
FEWEST = 4
"""Rows of a block: a block gathers again the rows that its windows share with the one before."""


@recipe("filter_rows_of", "of the first")
def filter_rows_of(weight: torch.Tensor, *, first: int, count: int) -> torch.Tensor:
    """Turn some rows of a filter `[out, h, w, in]` into `[out, count · w · in]`."""
    return weight[:, first : first + count].reshape(weight.shape[0], -1).contiguous()


def _bound(op: Convolution2d, value: RunTime) -> Bound:
    """Return the error bound of two orders of one sum: exact for integers."""
    if quantization(op.input.type) is not None:
        return EXACT
    terms = prod(op.filter_shape[1:]) + op.window[0]
    reach = float(value(op.filter).double().abs().sum((1, 2, 3)).max())
    largest = float(value(op.input).abs().max())
    if op.bias is not None:
        reach, largest = reach + float(value(op.bias).abs().max()), max(1.0, largest)
    return Bound(absolute=2 * growth(terms + 1) * largest * reach, reason=SUMS.reason)


@dataclass(frozen=True)
class Axis:
    """One axis of an image that a window moves along."""

    size: int
    taps: int
    before: int
    stride: int
    dilation: int
    results: int

    @property
    def padded(self) -> int:
        """Return the size with the padding, as a multiple of the stride that holds all windows."""
        read = self.stride * (self.results - 1) + self.dilation * (self.taps - 1) + 1
        return -(-max(read, self.before + self.size) // self.stride) * self.stride

    @property
    def after(self) -> int:
        """Return the padding after the image."""
        return self.padded - self.before - self.size

    def place(self, tap: int) -> tuple[int, int]:
        """Return where a tap's first pixel is: how many strides in, and its remainder."""
        return divmod(tap * self.dilation, self.stride)

    @property
    def remainders(self) -> list[int]:
        """List the remainders of the pixels that taps read."""
        return sorted({self.place(tap)[1] for tap in range(self.taps)})

    def runs(self) -> list[tuple[int, int]]:
        """List the runs of taps that read neighbors in one group: the first tap, and how many."""
        starts = [tap for tap in range(self.taps) if self.dilation > 1 or self.place(tap)[1] == 0]
        return [(a, b - a) for a, b in pairwise([*starts, self.taps])]


@dataclass(frozen=True)
class Rows:
    """The sizes of a convolution that is computed row by row."""

    batch: Dim
    down: Axis
    across: Axis
    channels: int
    outputs: int
    is_int8: bool = False

    @property
    def is_strided(self) -> bool:
        """Whether rows and pixels are taken apart by their remainder."""
        return (self.down.stride, self.across.stride) != (1, 1)

    @property
    def count(self) -> int:
        """Return the number of images, or the least of a symbolic batch."""
        return self.batch if isinstance(self.batch, int) else 1

    @property
    def width(self) -> int:
        """Return the elements that a row of the window reads."""
        return self.across.taps * self.channels

    @property
    def layers(self) -> list[list[tuple[int, int]]]:
        """List the rows of the window that each layer multiplies, as `Axis.runs`."""
        return [self.down.runs()] if self.is_int8 else [[run] for run in self.down.runs()]

    @property
    def blocks(self) -> list[tuple[int, int]]:
        """List the blocks of the result's rows: the first one, and how many.

        XNNPACK packs the weights of each node, so that blocks take no more memory for weights than
        they save for pixels.
        """
        size = self.count * self.down.padded * self.across.results * self.width
        size *= self.down.taps if self.is_int8 else 4
        weights = 4 * self.down.taps * self.width * self.outputs
        count = max(1, min(-(-size // BLOCK), self.down.results // FEWEST, size // weights))
        each = -(-self.down.results // count)
        starts = range(0, self.down.results, each)
        return [(start, min(each, self.down.results - start)) for start in starts]

    def read_by(self, results: int) -> int:
        """Return how many groups of `stride` rows a block of the result's rows reads."""
        return results + self.down.place(self.down.taps - 1)[0]

    def cost(self, costs: Costs) -> float:
        """Return the nanoseconds of the nodes that `convolve_by_rows` inserts."""
        down, across, width, blocks = self.down, self.across, self.width, self.blocks
        results = self.count * down.results * across.results
        image = self.count * down.padded * across.padded * self.channels
        parts, layers = len(down.remainders) * len(across.runs()), len(self.layers)
        tall = self.count * sum(self.read_by(most) for _, most in blocks)
        gathered = tall * len(down.remainders) * across.results * width
        copied = image * (1 + self.is_strided) + gathered + down.taps * results * width
        pieces = tall * parts
        if parts > 1:
            levels = 1 + (parts > MOST_JOINED)
            copied, pieces = copied + levels * gathered, pieces * (1 + levels * across.results)
        if self.is_int8:
            copied = (copied + down.taps * results * width) / 4
            pieces += len(down.runs()) * results
        copied += results * self.outputs * (len(blocks) > 1)
        product = costs.product * (costs.integers if self.is_int8 else 1)
        nodes = 3 + len(blocks) * (1 + parts + 3 * layers)
        products = (
            down.taps * (results * product + costs.weight * len(blocks)) * width * self.outputs
        )
        sums = (layers - 1) * results * self.outputs * costs.addition
        return copied * costs.slice + pieces * costs.run + products + sums + nodes * costs.node


def directly(op: Convolution2d, costs: Costs) -> float:
    """Return the nanoseconds of the unchanged node."""
    batch, *image, _ = dims(op.result.type)
    results = (batch if isinstance(batch, int) else 1) * prod(cast("list[int]", image))
    *window, channels = op.filter_shape
    factor = costs.indirect
    if quantization(op.input.type) is not None:
        factor, channels = costs.integers, -(-channels // PADDED_CHANNELS) * PADDED_CHANNELS
    return results * prod(window) * channels * costs.product * factor + costs.node


def rows_of(op: Convolution2d) -> Rows:
    """Return the sizes of a convolution as rows; refuse what has none."""
    batch, *image, channels = dims(op.input.type)
    if not all(isinstance(size, int) for size in image):
        refuse("slices of the image have static sizes, and its height or width is symbolic")
    sizes, results = cast("list[int]", image), cast("list[int]", dims(op.result.type)[1:3])
    top, _, _, left = op.paddings
    window, befores, strides = op.window, (top, left), op.pair("stride")
    sides = zip(sizes, window, befores, strides, op.pair("dilation"), results, strict=True)
    down, across = (Axis(*side) for side in sides)
    is_int8 = datatype(op.input.type) == "qint8"
    return Rows(batch, down, across, cast("int", channels), op.filter_shape[0], is_int8)


@lowers(
    "xnnpack.convolution_2d",
    to="aten",
    bound=SUMS,
    error_bound=_bound,
    sample="""
    %w = stepwell.weight <"w"> "parameter" : tensor<64x3x3x64xf32>
    %b = stepwell.weight <"b"> "parameter" : tensor<64xf32>
    %y = xnnpack.convolution_2d(%x, %w, %b, groups=1, padding=[1, 1, 1, 1], stride=[1, 1], dilation=[1, 1]) : (tensor<1x28x28x64xf32>, tensor<64x3x3x64xf32>, tensor<64xf32>) -> tensor<1x28x28x64xf32>
    """,
)
def convolve_by_rows(*, op: Convolution2d, b: Rewriter, costs: Costs | None = None) -> Value | None:
    """Convolve by a linear layer for each row of the window.

    Args:
        op: a convolution in float32 or int8.
        b: the builder.
        costs: a cost model that replaces that of the target CPU.
    """
    is_pointwise = op.window == op.pair("stride") == (1, 1) and not any(op.paddings)
    if datatype(op.input.type) not in ("fp32", "qint8") or is_pointwise:
        return None
    if op.integer("groups", 1) != 1:
        refuse("a group's products are too narrow for the matrix kernel")
    rows = rows_of(op)
    weight = constant_of(op.filter)
    assert weight is not None, "a node's filter is a constant"

    def times(costs: Costs) -> dict[str, float]:
        here = (1 - 2 * costs.worth) * directly(op, costs)
        return {"directly": here, "by rows": rows.cost(costs)}

    if choose(b.program.context, "convolve-by-rows", op, times, costs) == "directly":
        refuse("copies of the image cost more than faster products save")
    return summed_by_rows(op, rows, weight.key.data, b)


def summed_by_rows(op: Convolution2d, rows: Rows, key: str, b: Rewriter) -> Value:
    """Build the nodes that compute a convolution with the filter of a key row by row."""
    image, layers = _padded(op.input, rows, b), list[SSAValue]()
    for runs in rows.layers:
        count = sum(count for _, count in runs)
        part = b.weights.derive("filter_rows_of", [key], first=runs[0][0], count=count)
        held = quantization(op.filter.type)
        layers.append(b.weight(part) if held is None else typed_constant(b, part, held))
    blocks = [_block(op, rows, image, layers, start, count, b) for start, count in rows.blocks]
    return Value(concatenate(b, blocks, 1), b)


def _padded(image: SSAValue, rows: Rows, b: Rewriter) -> SSAValue:
    """Return the padded image `[N, H, W, C]`, or `[N, H / s, s · W / t, t · C]` for strides s, t."""
    down, across = rows.down, rows.across
    before, after = [0, down.before, across.before, 0], [0, down.after, across.after, 0]
    if any((*before, *after)):
        fields = {"pre_paddings": before, "post_paddings": after, "padding_value": 0.0}
        image = node(b, xnnpack.StaticConstantPad, image, **fields).ssa
    tall, wide = down.padded // down.stride, down.stride * across.padded // across.stride
    return reshape(b, image, (rows.batch, tall, wide, across.stride * rows.channels))


def _block(
    op: Convolution2d,
    rows: Rows,
    image: SSAValue,
    layers: Sequence[SSAValue],
    start: int,
    count: int,
    b: Rewriter,
) -> SSAValue:
    """Return `count` rows of the result from row `start` on."""
    down, across = rows.down, rows.across
    parts: list[SSAValue] = []
    for remainder in down.remainders:
        begin = remainder * (across.padded // across.stride)
        for tap, taps in across.runs():
            first, place = across.place(tap)
            offsets = (start, begin + first, place * rows.channels)
            sizes = (rows.read_by(count), across.results, taps * rows.channels)
            parts.append(_cut(image, offsets, sizes, b))
    gathered, total = concatenate(b, parts, 3), None
    for runs, layer in zip(rows.layers, layers, strict=True):
        pixels: list[SSAValue] = []
        for row, taps in runs:
            first, remainder = down.place(row)
            offsets = (first, 0, down.remainders.index(remainder) * rows.width)
            pixels.append(_cut(gathered, offsets, (count, across.results, taps * rows.width), b))
        bias, read = op.bias, concatenate(b, pixels, 3)
        if bias is not None and total is not None:  # Beginning with -0.0 keeps a zero's sign.
            bias = b.constant(torch.full((rows.outputs,), -0.0), "nothing")
        clamps = clamps_of(op) if layer is layers[-1] else {}
        if total is None:
            shape = (*dims(read.type)[:-1], rows.outputs)
            result = tensor(shape, element(op.result.type))
            total = node(b, xnnpack.FullyConnected, read, layer, bias, result=result, **clamps).ssa
        else:
            part = node(b, xnnpack.FullyConnected, read, layer, bias).ssa
            total = node(b, xnnpack.Add, total, part, **clamps).ssa
    assert total is not None, "a window has a row"
    return total


def _cut(image: SSAValue, offsets: Sequence[int], sizes: Sequence[Dim], b: Rewriter) -> SSAValue:
    """Return a part of the axes behind the batch, or the value itself if it is the whole."""
    shape = (dims(image.type)[0], *sizes)
    if shape == dims(image.type):
        return image
    result = tensor(shape, element(image.type))
    fields = {"offsets": [0, *offsets], "sizes": slice_sizes(shape)}
    return node(b, xnnpack.StaticSlice, image, result=result, **fields).ssa


RULES = lowerings_of(__name__)
