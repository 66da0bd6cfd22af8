"""A factor and a shift for each channel of images become one depthwise convolution of one pixel.

A batch norm or a norm's scale and shift that no layer took in is a product and a sum, each of which
reads and writes the image. XNNPACK broadcasts a constant along the channels pixel by pixel; its
depthwise convolution does both at once, in a half to a third of the time. Of one channel nothing is gained.

Before:
    %g = stepwell.weight <"g"> "parameter" : tensor<3xf32>
    %b = stepwell.weight <"b"> "parameter" : tensor<1x1x1x3xf32>
    %s = xnnpack.multiply(%x, %g) : (tensor<1x5x5x3xf32>, tensor<3xf32>) -> tensor<1x5x5x3xf32>
    %y = xnnpack.add(%s, %b) : (tensor<1x5x5x3xf32>, tensor<1x1x1x3xf32>) -> tensor<1x5x5x3xf32>
After:
    %0 = stepwell.weight <"g#filter_of_pixel.614511dd59f1"> "constant" : tensor<1x1x1x3xf32>
    %1 = stepwell.weight <"b#as_bias.614511dd59f1"> "constant" : tensor<3xf32>
    %y = xnnpack.depthwise_convolution_2d(%x, %0, %1, padding=[0, 0, 0, 0], stride=[1, 1], dilation=[1, 1]) : (tensor<1x5x5x3xf32>, tensor<1x1x1x3xf32>, tensor<3xf32>) -> tensor<1x5x5x3xf32>
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import torch
from xdsl.ir import Operation, SSAValue

from stepwell.dialects import xnnpack
from stepwell.dialects.xnnpack import XnnpackOp
from stepwell.ir.bounds import roundings
from stepwell.ir.core import weight_key
from stepwell.ir.dtypes import f32
from stepwell.ir.numerics import Deviation
from stepwell.ir.program import Program
from stepwell.ir.rewriting import Bound, Refusal, Rewrite, Rewriter
from stepwell.ir.types import dims, element
from stepwell.ir.weights import recipe
from stepwell.translate.affine.recipes import as_bias


@recipe("filter_of_pixel")
def filter_of_pixel(factors: torch.Tensor) -> torch.Tensor:
    """Factors of channels as the filter `[1, 1, 1, channels]` of a depthwise convolution."""
    return factors.reshape(1, 1, 1, -1)


@dataclass(frozen=True)
class AffineOfChannels:
    """`source * scale + shift` of images with the channels last; keys of the constants."""

    op: XnnpackOp
    source: SSAValue
    scale: str
    shift: str


@dataclass(frozen=True)
class AffineToDepthwise(Rewrite[AffineOfChannels]):
    """`add(multiply(x, g), b)` to `depthwise_convolution_2d(x, g, b)`."""

    name: ClassVar[str] = "affine-to-depthwise"
    anchors: ClassVar[tuple[type[Operation], ...]] = (xnnpack.Add,)
    bound: ClassVar[Bound] = roundings("product and sum may be rounded once")
    deviation: ClassVar[Deviation | None] = Deviation(
        "an infinite pixel makes its neighbours NaN", accepted=True
    )
    """Kernels fill a window up to their own size, with weights of zero: ∞ · 0 is NaN, as in the stock
    flow, which writes batch norms so."""

    def match(self, op: XnnpackOp, program: Program) -> AffineOfChannels | Refusal | None:
        """Guards: constants of float32 along the channels, nothing between product and sum."""
        shifted = constant_of_channels(op)
        if shifted is None:
            return None
        product = shifted[0].owner
        if not isinstance(product, xnnpack.Multiply):
            return None
        scaled = constant_of_channels(product)
        if scaled is None:
            return None
        if not product.output.has_one_use():
            return Refusal("the product is read without the sum too")
        if product.output_range is not None:
            return Refusal("the product is clamped before the sum")
        if dims(op.output.type)[-1] == 1:
            return Refusal("one channel: a number for all, which scores of −∞ may be scaled by")
        return AffineOfChannels(op, *scaled, shifted[1])

    def build(self, match: AffineOfChannels, rw: Rewriter) -> None:
        """A window of one pixel for each channel; the sum's output range stays."""
        result, store = match.op.results[0], rw.weights
        (channels,) = dims(result.type)[-1:]
        new = xnnpack.DepthwiseConvolution2d.make(
            match.source,
            rw.weight(store.derive("filter_of_pixel", [match.scale])),
            rw.weight(store.derive(as_bias.__name__, [match.shift], features=channels)),
            result=result.type,
            stride=(1, 1),
            padding=(0, 0, 0, 0),
            dilation=(1, 1),
        )
        for name in ("output_min", "output_max"):
            if name in match.op.properties:
                new.properties[name] = match.op.properties[name]
        new.output.name_hint = result.name_hint
        rw.replace(match.op, [rw.insert(new).results[0]])


def constant_of_channels(op: XnnpackOp) -> tuple[SSAValue, str] | None:
    """(images, key) of a sum or product of float32 images and one constant for each channel."""
    result = op.results[0].type
    if len(dims(result)) != 4 or element(result) != f32:
        return None
    for index in (1, 0):
        constant, other = op.operands[index], op.operands[1 - index]
        key = weight_key(constant)
        if key is None or other.type != result:
            continue
        *ones, channels = dims(constant.type) or (1,)
        if channels == dims(result)[-1] and all(size == 1 for size in ones):
            return other, key
    return None
