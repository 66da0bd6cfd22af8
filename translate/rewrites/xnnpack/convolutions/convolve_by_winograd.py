"""Strength reduction: a 3×3 convolution by Winograd's method, 16 products for 2×2 results, not 36.

F(2×2, 3×3) of Lavin and Gray ("Fast Algorithms for Convolutional Neural Networks", 2015): each tile
of 4×4 pixels is transformed by additions (V = Bᵀ d B), the filter at compile time (U = G g Gᵀ), the
sixteen elements of both are multiplied over the channels, and additions turn the products into 2×2
results (Y = Aᵀ M A). In XNNPACK's nodes, V is sixteen depthwise convolutions of four taps ±1 with
stride two, the products are linear layers, and Y is sums and two concatenations. It pays from about
64 channels on, for images of at least about 10×10: 1.15 to 1.8 times as fast (`docs/xnnpack.md`).

Its sums are shorter than sums of 9 · C products, and errors are no greater (measured: 0.4 to 0.7 of
the direct form's). But infinities cancel to NaN in all four results of the tiles that read one, so
only `numerics="finite"` allows it. The weights take 16/9 of their size.

Before:
    %w = stepwell.weight <"w"> "parameter" : tensor<48x3x3x64xf32>
    %b = stepwell.weight <"b"> "parameter" : tensor<48xf32>
    %y = xnnpack.convolution_2d(%x, %w, %b, groups=1, padding=[1, 1, 1, 1], stride=[1, 1], dilation=[1, 1]) : (tensor<1x31x32x64xf32>, tensor<48x3x3x64xf32>, tensor<48xf32>) -> tensor<1x31x32x48xf32>
After:
    %b = stepwell.weight <"b"> "parameter" : tensor<48xf32>
    %0 = stepwell.weight <"signs#5d304f84397e"> "constant" : tensor<1x2x2x64xf32>
    %1 = stepwell.weight <"w#winograd_filter.6100bf1d7a3e"> "constant" : tensor<48x64xf32>
    %2 = stepwell.weight <"signs#2b391df12bbc"> "constant" : tensor<1x2x2x64xf32>
    %3 = stepwell.weight <"w#winograd_filter.a2ebf708995f"> "constant" : tensor<48x64xf32>
    %4 = stepwell.weight <"signs#f9e369caa68c"> "constant" : tensor<1x2x2x64xf32>
    %5 = stepwell.weight <"w#winograd_filter.0d52c274fec9"> "constant" : tensor<48x64xf32>
    %6 = stepwell.weight <"w#winograd_filter.70d2a7ad67b5"> "constant" : tensor<48x64xf32>
    %7 = stepwell.weight <"signs#18c73c70a977"> "constant" : tensor<1x2x2x64xf32>
    %8 = stepwell.weight <"w#winograd_filter.6a8d2dd4e15e"> "constant" : tensor<48x64xf32>
    %9 = stepwell.weight <"signs#bf12bf8fe571"> "constant" : tensor<1x2x2x64xf32>
    %10 = stepwell.weight <"w#winograd_filter.13932d4e54b1"> "constant" : tensor<48x64xf32>
    %11 = stepwell.weight <"signs#c086ec6173ad"> "constant" : tensor<1x2x2x64xf32>
    %12 = stepwell.weight <"w#winograd_filter.4d06da618ba0"> "constant" : tensor<48x64xf32>
    %13 = stepwell.weight <"w#winograd_filter.0c4da7ee1bc5"> "constant" : tensor<48x64xf32>
    %14 = stepwell.weight <"w#winograd_filter.b2f0129a9023"> "constant" : tensor<48x64xf32>
    %15 = stepwell.weight <"signs#38c282c778a2"> "constant" : tensor<1x2x2x64xf32>
    %16 = stepwell.weight <"w#winograd_filter.4f14524fa246"> "constant" : tensor<48x64xf32>
    %17 = stepwell.weight <"w#winograd_filter.457e3914e238"> "constant" : tensor<48x64xf32>
    %18 = stepwell.weight <"w#winograd_filter.6ffc3413ec05"> "constant" : tensor<48x64xf32>
    %19 = stepwell.weight <"w#winograd_filter.8399ab62a61a"> "constant" : tensor<48x64xf32>
    %20 = stepwell.weight <"w#winograd_filter.d3bf7a6def69"> "constant" : tensor<48x64xf32>
    %21 = stepwell.weight <"w#winograd_filter.ccb4c7697df7"> "constant" : tensor<48x64xf32>
    %22 = stepwell.weight <"w#winograd_filter.504ebe8cf4ae"> "constant" : tensor<48x64xf32>
    %23 = xnnpack.depthwise_convolution_2d(%x, %0, padding=[1, 0, 1, 1], stride=[2, 2], dilation=[2, 2]) : (tensor<1x31x32x64xf32>, tensor<1x2x2x64xf32>) -> tensor<1x16x16x64xf32>
    %24 = xnnpack.fully_connected(%23, %1) : (tensor<1x16x16x64xf32>, tensor<48x64xf32>) -> tensor<1x16x16x48xf32>
    %25 = xnnpack.depthwise_convolution_2d(%x, %2, padding=[0, 0, 1, 1], stride=[2, 2], dilation=[1, 2]) : (tensor<1x31x32x64xf32>, tensor<1x2x2x64xf32>) -> tensor<1x16x16x64xf32>
    %26 = xnnpack.fully_connected(%25, %3) : (tensor<1x16x16x64xf32>, tensor<48x64xf32>) -> tensor<1x16x16x48xf32>
    %27 = xnnpack.depthwise_convolution_2d(%x, %4, padding=[0, 0, 1, 1], stride=[2, 2], dilation=[1, 2]) : (tensor<1x31x32x64xf32>, tensor<1x2x2x64xf32>) -> tensor<1x16x16x64xf32>
    %28 = xnnpack.fully_connected(%27, %5) : (tensor<1x16x16x64xf32>, tensor<48x64xf32>) -> tensor<1x16x16x48xf32>
    %29 = xnnpack.depthwise_convolution_2d(%x, %0, padding=[0, 0, 2, 1], stride=[2, 2], dilation=[2, 2]) : (tensor<1x31x32x64xf32>, tensor<1x2x2x64xf32>) -> tensor<1x16x16x64xf32>
    %30 = xnnpack.fully_connected(%29, %6) : (tensor<1x16x16x64xf32>, tensor<48x64xf32>) -> tensor<1x16x16x48xf32>
    %31 = xnnpack.add(%24, %26) : (tensor<1x16x16x48xf32>, tensor<1x16x16x48xf32>) -> tensor<1x16x16x48xf32>
    %32 = xnnpack.add(%31, %28) : (tensor<1x16x16x48xf32>, tensor<1x16x16x48xf32>) -> tensor<1x16x16x48xf32>
    %33 = xnnpack.subtract(%26, %28) : (tensor<1x16x16x48xf32>, tensor<1x16x16x48xf32>) -> tensor<1x16x16x48xf32>
    %34 = xnnpack.subtract(%33, %30) : (tensor<1x16x16x48xf32>, tensor<1x16x16x48xf32>) -> tensor<1x16x16x48xf32>
    %35 = xnnpack.depthwise_convolution_2d(%x, %7, padding=[1, 0, 1, 0], stride=[2, 2], dilation=[2, 1]) : (tensor<1x31x32x64xf32>, tensor<1x2x2x64xf32>) -> tensor<1x16x16x64xf32>
    %36 = xnnpack.fully_connected(%35, %8) : (tensor<1x16x16x64xf32>, tensor<48x64xf32>) -> tensor<1x16x16x48xf32>
    %37 = xnnpack.depthwise_convolution_2d(%x, %9, padding=[0, 0, 1, 0], stride=[2, 2], dilation=[1, 1]) : (tensor<1x31x32x64xf32>, tensor<1x2x2x64xf32>) -> tensor<1x16x16x64xf32>
    %38 = xnnpack.fully_connected(%37, %10, %b) : (tensor<1x16x16x64xf32>, tensor<48x64xf32>, tensor<48xf32>) -> tensor<1x16x16x48xf32>
    %39 = xnnpack.depthwise_convolution_2d(%x, %11, padding=[0, 0, 1, 0], stride=[2, 2], dilation=[1, 1]) : (tensor<1x31x32x64xf32>, tensor<1x2x2x64xf32>) -> tensor<1x16x16x64xf32>
    %40 = xnnpack.fully_connected(%39, %12) : (tensor<1x16x16x64xf32>, tensor<48x64xf32>) -> tensor<1x16x16x48xf32>
    %41 = xnnpack.depthwise_convolution_2d(%x, %7, padding=[0, 0, 2, 0], stride=[2, 2], dilation=[2, 1]) : (tensor<1x31x32x64xf32>, tensor<1x2x2x64xf32>) -> tensor<1x16x16x64xf32>
    %42 = xnnpack.fully_connected(%41, %13) : (tensor<1x16x16x64xf32>, tensor<48x64xf32>) -> tensor<1x16x16x48xf32>
    %43 = xnnpack.add(%36, %38) : (tensor<1x16x16x48xf32>, tensor<1x16x16x48xf32>) -> tensor<1x16x16x48xf32>
    %44 = xnnpack.add(%43, %40) : (tensor<1x16x16x48xf32>, tensor<1x16x16x48xf32>) -> tensor<1x16x16x48xf32>
    %45 = xnnpack.subtract(%38, %40) : (tensor<1x16x16x48xf32>, tensor<1x16x16x48xf32>) -> tensor<1x16x16x48xf32>
    %46 = xnnpack.subtract(%45, %42) : (tensor<1x16x16x48xf32>, tensor<1x16x16x48xf32>) -> tensor<1x16x16x48xf32>
    %47 = xnnpack.depthwise_convolution_2d(%x, %4, padding=[1, 0, 1, 0], stride=[2, 2], dilation=[2, 1]) : (tensor<1x31x32x64xf32>, tensor<1x2x2x64xf32>) -> tensor<1x16x16x64xf32>
    %48 = xnnpack.fully_connected(%47, %14) : (tensor<1x16x16x64xf32>, tensor<48x64xf32>) -> tensor<1x16x16x48xf32>
    %49 = xnnpack.depthwise_convolution_2d(%x, %15, padding=[0, 0, 1, 0], stride=[2, 2], dilation=[1, 1]) : (tensor<1x31x32x64xf32>, tensor<1x2x2x64xf32>) -> tensor<1x16x16x64xf32>
    %50 = xnnpack.fully_connected(%49, %16) : (tensor<1x16x16x64xf32>, tensor<48x64xf32>) -> tensor<1x16x16x48xf32>
    %51 = xnnpack.depthwise_convolution_2d(%x, %0, padding=[0, 0, 1, 0], stride=[2, 2], dilation=[1, 1]) : (tensor<1x31x32x64xf32>, tensor<1x2x2x64xf32>) -> tensor<1x16x16x64xf32>
    %52 = xnnpack.fully_connected(%51, %17) : (tensor<1x16x16x64xf32>, tensor<48x64xf32>) -> tensor<1x16x16x48xf32>
    %53 = xnnpack.depthwise_convolution_2d(%x, %4, padding=[0, 0, 2, 0], stride=[2, 2], dilation=[2, 1]) : (tensor<1x31x32x64xf32>, tensor<1x2x2x64xf32>) -> tensor<1x16x16x64xf32>
    %54 = xnnpack.fully_connected(%53, %18) : (tensor<1x16x16x64xf32>, tensor<48x64xf32>) -> tensor<1x16x16x48xf32>
    %55 = xnnpack.add(%48, %50) : (tensor<1x16x16x48xf32>, tensor<1x16x16x48xf32>) -> tensor<1x16x16x48xf32>
    %56 = xnnpack.add(%55, %52) : (tensor<1x16x16x48xf32>, tensor<1x16x16x48xf32>) -> tensor<1x16x16x48xf32>
    %57 = xnnpack.subtract(%50, %52) : (tensor<1x16x16x48xf32>, tensor<1x16x16x48xf32>) -> tensor<1x16x16x48xf32>
    %58 = xnnpack.subtract(%57, %54) : (tensor<1x16x16x48xf32>, tensor<1x16x16x48xf32>) -> tensor<1x16x16x48xf32>
    %59 = xnnpack.depthwise_convolution_2d(%x, %0, padding=[1, 1, 1, 0], stride=[2, 2], dilation=[2, 2]) : (tensor<1x31x32x64xf32>, tensor<1x2x2x64xf32>) -> tensor<1x16x16x64xf32>
    %60 = xnnpack.fully_connected(%59, %19) : (tensor<1x16x16x64xf32>, tensor<48x64xf32>) -> tensor<1x16x16x48xf32>
    %61 = xnnpack.depthwise_convolution_2d(%x, %2, padding=[0, 1, 1, 0], stride=[2, 2], dilation=[1, 2]) : (tensor<1x31x32x64xf32>, tensor<1x2x2x64xf32>) -> tensor<1x16x16x64xf32>
    %62 = xnnpack.fully_connected(%61, %20) : (tensor<1x16x16x64xf32>, tensor<48x64xf32>) -> tensor<1x16x16x48xf32>
    %63 = xnnpack.depthwise_convolution_2d(%x, %4, padding=[0, 1, 1, 0], stride=[2, 2], dilation=[1, 2]) : (tensor<1x31x32x64xf32>, tensor<1x2x2x64xf32>) -> tensor<1x16x16x64xf32>
    %64 = xnnpack.fully_connected(%63, %21) : (tensor<1x16x16x64xf32>, tensor<48x64xf32>) -> tensor<1x16x16x48xf32>
    %65 = xnnpack.depthwise_convolution_2d(%x, %0, padding=[0, 1, 2, 0], stride=[2, 2], dilation=[2, 2]) : (tensor<1x31x32x64xf32>, tensor<1x2x2x64xf32>) -> tensor<1x16x16x64xf32>
    %66 = xnnpack.fully_connected(%65, %22) : (tensor<1x16x16x64xf32>, tensor<48x64xf32>) -> tensor<1x16x16x48xf32>
    %67 = xnnpack.add(%60, %62) : (tensor<1x16x16x48xf32>, tensor<1x16x16x48xf32>) -> tensor<1x16x16x48xf32>
    %68 = xnnpack.add(%67, %64) : (tensor<1x16x16x48xf32>, tensor<1x16x16x48xf32>) -> tensor<1x16x16x48xf32>
    %69 = xnnpack.subtract(%62, %64) : (tensor<1x16x16x48xf32>, tensor<1x16x16x48xf32>) -> tensor<1x16x16x48xf32>
    %70 = xnnpack.subtract(%69, %66) : (tensor<1x16x16x48xf32>, tensor<1x16x16x48xf32>) -> tensor<1x16x16x48xf32>
    %71 = xnnpack.add(%32, %44) : (tensor<1x16x16x48xf32>, tensor<1x16x16x48xf32>) -> tensor<1x16x16x48xf32>
    %72 = xnnpack.add(%71, %56) : (tensor<1x16x16x48xf32>, tensor<1x16x16x48xf32>) -> tensor<1x16x16x48xf32>
    %73 = xnnpack.subtract(%44, %56) : (tensor<1x16x16x48xf32>, tensor<1x16x16x48xf32>) -> tensor<1x16x16x48xf32>
    %74 = xnnpack.subtract(%73, %68) : (tensor<1x16x16x48xf32>, tensor<1x16x16x48xf32>) -> tensor<1x16x16x48xf32>
    %75 = xnnpack.concatenate2(%72, %74, axis=3) : (tensor<1x16x16x48xf32>, tensor<1x16x16x48xf32>) -> tensor<1x16x16x96xf32>
    %76 = xnnpack.add(%34, %46) : (tensor<1x16x16x48xf32>, tensor<1x16x16x48xf32>) -> tensor<1x16x16x48xf32>
    %77 = xnnpack.add(%76, %58) : (tensor<1x16x16x48xf32>, tensor<1x16x16x48xf32>) -> tensor<1x16x16x48xf32>
    %78 = xnnpack.subtract(%46, %58) : (tensor<1x16x16x48xf32>, tensor<1x16x16x48xf32>) -> tensor<1x16x16x48xf32>
    %79 = xnnpack.subtract(%78, %70) : (tensor<1x16x16x48xf32>, tensor<1x16x16x48xf32>) -> tensor<1x16x16x48xf32>
    %80 = xnnpack.concatenate2(%77, %79, axis=3) : (tensor<1x16x16x48xf32>, tensor<1x16x16x48xf32>) -> tensor<1x16x16x96xf32>
    %81 = xnnpack.concatenate2(%75, %80, axis=2) : (tensor<1x16x16x96xf32>, tensor<1x16x16x96xf32>) -> tensor<1x16x32x96xf32>
    %82 = xnnpack.static_reshape(%81, new_shape=[1, 32, 32, 48]) : (tensor<1x16x32x96xf32>) -> tensor<1x32x32x48xf32>
    %y = xnnpack.static_slice(%82, offsets=[0, 0, 0, 0], sizes=[1, 31, 32, 48]) : (tensor<1x32x32x48xf32>) -> tensor<1x31x32x48xf32>
"""

from __future__ import annotations

from dataclasses import dataclass
from math import prod
from typing import ClassVar, cast

import torch
from xdsl.ir import Operation, SSAValue

from stepwell.dialects import xnnpack
from stepwell.dialects.xnnpack import XnnpackOp
from stepwell.dialects.xnnpack.base import constant_of
from stepwell.dialects.xnnpack.costs import Costs, costs_of
from stepwell.dialects.xnnpack.spatial import Convolution2d
from stepwell.ir.choices import shape_of
from stepwell.ir.declared.bounds import roundings
from stepwell.ir.declared.numerics import Deviation
from stepwell.ir.dtypes import f32
from stepwell.ir.program import Program
from stepwell.ir.rewriting.rewrite import Bound, Refusal, Rewrite, Rewriter, Value
from stepwell.ir.types import Dim, dims, element, tensor
from stepwell.ir.weights import recipe
from stepwell.translate.rewrites.xnnpack.nodes.lower_shape import reshape
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
    """Transform `[out, 3, 3, in]` to an element of G g Gᵀ, `[out, in]`, in float64."""
    factors = torch.outer(*(torch.tensor(G[index], dtype=torch.float64) for index in (row, column)))
    return torch.einsum("ohwi,hw->oi", weight.double(), factors.to(weight.device)).float()


@dataclass(frozen=True)
class Tiled:
    """A convolution, its tiles along both axes, and its filter's key."""

    op: Convolution2d
    tiles: tuple[int, int]
    filter: str


@dataclass(frozen=True)
class ConvolveByWinograd(Rewrite[Tiled]):
    """`convolution_2d` of 3×3 to depthwise ones, linear layers, sums and concatenations."""

    name: ClassVar[str] = "convolve-by-winograd"
    anchors: ClassVar[tuple[type[Operation], ...]] = (Convolution2d,)
    bound: ClassVar[Bound] = roundings("sums of a thousand products in another order")
    deviation: ClassVar[Deviation | None] = Deviation(
        "an infinity or NaN makes NaN of every result of the tiles that read it"
    )
    """V takes differences of pixels, and Y takes differences of products."""
    costs: Costs | None = None
    """The decision that replaces the cost model of the target CPU, if one is given."""

    def match(self, op: Convolution2d, program: Program) -> Tiled | Refusal | None:
        """Guards: float32, dense 3×3 windows over all channels, padding, a known size, a gain."""
        if op.window != (WINDOW, WINDOW) or element(op.input.type) != f32:
            return None
        if op.pair("stride") != (1, 1) or op.pair("dilation") != (1, 1):
            return None
        if op.integer("groups", 1) != 1:
            return None
        weight = constant_of(op.filter)
        assert weight is not None, "a node's filter is a constant"
        if not all(isinstance(size, int) for size in dims(op.input.type)[1:]):
            return Refusal("tiles are laid out at compile time, and the image's sizes are symbolic")
        top, _, _, left = op.paddings
        if not top or not left:
            return Refusal("tiles begin in the padding, and there is none above or at the left")
        height, width = _image(op.result)
        match = Tiled(op, (-(-height // TILE), -(-width // TILE)), weight.key.data)
        costs = self.costs or costs_of(program.context)
        least = (1 - 2 * costs.worth) * self.directly(op, costs)
        forms = {"directly": least, "by tiles": self.by_tiles(match, costs)}
        if program.context.choose(self.name, shape_of(op), forms) == "directly":
            return Refusal("its sums cost more than the products that they save")
        if not bool((program.weights.get(match.filter).abs() <= LARGEST_WEIGHT).all()):
            return Refusal("a weight is not finite, or sums of weights would not be")
        return match

    def directly(self, op: Convolution2d, costs: Costs) -> float:
        """Return the nanoseconds of the node as it is."""
        outputs, height, width, inputs = op.filter_shape
        results = _least(dims(op.result.type)[0]) * prod(_image(op.result))
        return results * height * width * outputs * inputs * costs.product + costs.node

    def by_tiles(self, match: Tiled, costs: Costs) -> float:
        """Return the nanoseconds of the nodes that `build` writes."""
        outputs, _, _, inputs = match.op.filter_shape
        tiles = _least(dims(match.op.input.type)[0]) * prod(match.tiles)
        elements = ELEMENTS * ELEMENTS
        layers = tiles * inputs * outputs * costs.product + inputs * outputs * costs.weight
        layers += tiles * inputs * costs.window(4) + 2 * costs.node
        sums = tiles * outputs * costs.addition + costs.node
        joins = 2 * tiles * TILE * TILE * outputs * costs.slice + 3 * costs.node
        return elements * layers + 24 * sums + joins

    def bound_at(self, match: Tiled, value: Value) -> Bound:
        """An element of V is at most 4 max|x|, Σ|U| over inputs at most Σ|w|; a result sums nine."""
        op = match.op
        largest = float(value(op.input).abs().max())
        reach = float(value(op.filter).double().abs().sum((1, 2, 3)).max())
        terms = op.filter_shape[3]
        direct = growth(WINDOW * WINDOW * terms) * largest * reach
        tiled = 36 * growth(terms + 16) * largest * reach
        return Bound(absolute=direct + tiled, reason=self.bound.reason)

    def build(self, match: Tiled, rw: Rewriter) -> None:
        """Build column by column of V, so that few of its elements are live at once."""
        op = match.op
        columns = [self._column(match, column, rw) for column in range(ELEMENTS)]
        rows: list[SSAValue] = []
        batch, *_, outputs = dims(op.result.type)
        down, across = match.tiles
        for row in range(TILE):
            pair = _pair(rw, [column[row] for column in columns])
            for value in pair:  # No later op changes a number.
                assert isinstance(value.owner, XnnpackOp)
                for name in ("output_min", "output_max"):
                    if name in op.properties:
                        value.owner.properties[name] = op.properties[name]
            rows.append(rw.insert(xnnpack.Concatenate2.make(*pair, axis=3)).results[0])
        joined = rw.insert(xnnpack.Concatenate2.make(*rows, axis=2)).results[0]
        # Row by row: one row of all tiles across, in which a tile's two columns are adjacent.
        image = reshape(rw, joined, (batch, TILE * down, TILE * across, outputs))
        if image.type != op.result.type:
            sizes = [size if isinstance(size, int) else 0 for size in dims(op.result.type)]
            inner = xnnpack.StaticSlice.make(
                image, result=op.result.type, offsets=[0, 0, 0, 0], sizes=sizes
            )
            image = rw.insert(inner).results[0]
        rw.replace(op, [image])

    def _column(self, match: Tiled, column: int, rw: Rewriter) -> tuple[SSAValue, SSAValue]:
        """Return both rows of Aᵀ M at a column: Aᵀ takes the four elements of M in that column."""
        op = match.op
        bias = [] if op.bias is None else [op.bias]
        values: list[SSAValue] = []
        for row in range(ELEMENTS):
            key = rw.weights.derive("winograd_filter", [match.filter], row=row, column=column)
            # The element that all four results of a tile take with factor 1 carries the bias.
            layer = xnnpack.FullyConnected.make(
                _element(match, row, column, rw),
                rw.weight(key),
                *(bias if row == column == 1 else []),
            )
            values.append(rw.insert(layer).results[0])
        return _pair(rw, values)


def _image(value: SSAValue) -> tuple[int, int]:
    """Return height and width, which are known."""
    _, height, width, _ = dims(value.type)
    return cast("int", height), cast("int", width)


def _least(batch: Dim) -> int:
    """Return a lower bound of the number of images: a gain for one is a gain for more."""
    return batch if isinstance(batch, int) else 1


def _pair(rw: Rewriter, elements: list[SSAValue]) -> tuple[SSAValue, SSAValue]:
    """Apply Aᵀ: the sum of the first three, and the second less the third and the fourth."""
    first, second, third, fourth = elements

    def put(cls: type[xnnpack.Add | xnnpack.Subtract], one: SSAValue, other: SSAValue) -> SSAValue:
        return rw.insert(cls.make(one, other)).results[0]

    total = put(xnnpack.Add, put(xnnpack.Add, first, second), third)
    return total, put(xnnpack.Subtract, put(xnnpack.Subtract, second, third), fourth)


def _element(match: Tiled, row: int, column: int, rw: Rewriter) -> SSAValue:
    """Return an element of V for every tile: `[N, tiles down, tiles across, C]`."""
    op = match.op
    batch, *_, channels = dims(op.input.type)
    height, width = _image(op.input)
    top, _, _, left = op.paddings
    down, across = B[row], B[column]
    signs = torch.outer(torch.tensor(down.signs), torch.tensor(across.signs))
    taps = rw.constant(signs[None, :, :, None].repeat(1, 1, 1, cast("int", channels)), "signs")
    above, below = _paddings(height, top, match.tiles[0], down)
    before, behind = _paddings(width, left, match.tiles[1], across)
    node = xnnpack.DepthwiseConvolution2d.make(
        op.input,
        taps,
        result=tensor((batch, *match.tiles, channels), f32),
        padding=(above, behind, below, before),
        stride=(TILE, TILE),
        dilation=(down.step, across.step),
    )
    return rw.insert(node).results[0]


def _paddings(size: int, before: int, tiles: int, taken: PixelDifference) -> tuple[int, int]:
    """Return the padding before and after an axis for windows of two pixels, one for each tile."""
    start = before - taken.first
    last = TILE * (tiles - 1) + taken.step - start
    return start, max(0, last - (size - 1))
