"""Fusion: an integer convolution pads its image itself.

TensorFlow's `same` padding of a strided layer is a cell more at the end than at the begin, which
torch states as an op of its own. CONV2D has four widths. On a U55-128 the copies of MobileNetV1 on
96 pixels took 160 000 of its 506 000 cycles and 110 KB of SRAM.

rule absorb-pad-into-conv
    The widths are added if the padding is the image's zero point, which adds nothing to a sum.
Before:
    %p = tosa.pad(%x, $amounts, %c) : (…) -> $P
    %y = $conv of CONVOLUTIONS(%p, %w, %b, %i, %k, pad=$own, …) : (…) -> tensor<$*S x i32>
After:
    %y = $conv(%x, %w, %b, %i, %k, pad=$wide, …)
where is_same(%c, %i) else "the padding is not the zero point"
with $wide = widened(%w, %y, $amounts, $own)
for %w = weight : tensor<2 x 3 x 3 x 4 x i8>
for %b = weight : tensor<2 x i32>
for %c = weight : tensor<1 x i8>
for %i = weight : tensor<1 x i8>
for %k = weight : tensor<1 x i8>
for %c = "z", %i = "z", %k = "k#zeros"
for $conv = "tosa.conv2d", %x = "tensor<1x4x6x4xi8>", $P = "tensor<1x5x7x4xi8>", $S = [1, 2, 3, 2]
for $amounts = [0, 0, 0, 1, 0, 1, 0, 0], $own = [0, 0, 0, 0], $stride = [2, 2], $dilation = [1, 1]
for $acc_type = i32, $local_bound = false
not for %c = "other"
not for $amounts = [0, 0, 0, 1, 0, 1, 0, 1], %x = "tensor<1x4x6x3xi8>"

rule pad-after-reshape
    An image of one channel is padded where its convolution reads it.
Before:
    %p = tosa.pad(%x, $amounts, %c) : (tensor<$*X x $E>) -> tensor<$*P x $E>
    %y = tosa.reshape(%p, …) : (…) -> tensor<$*S x $E>
After:
    %y = padded_image(%x, $amounts, %c)
where is_image_of_one_channel($X, $P, $S, $amounts)
where reads_once(%p) for cost
for $X = [1, 1, 4, 5], $P = [1, 1, 6, 5], $S = [1, 6, 5, 1], $shape = [1, 6, 5, 1], $E = i8
for $amounts = [0, 0, 0, 0, 1, 1, 0, 0], %x = "tensor<1x1x4x5xi8>", %c = "tensor<1xi8>"
not for $S = [1, 6, 1, 5], $shape = [1, 6, 1, 5]
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import cast

from xdsl.ir import SSAValue

from stepwell.dialects.tosa import generated as t
from stepwell.dialects.tosa.meaning.values import ints
from stepwell.ir.rewriting.rewrite import Refusal, Rewriter
from stepwell.ir.types import Dim
from stepwell.translate.lowerings.tosa.convolving import TO_NHWC
from stepwell.translate.lowerings.tosa.values import Value
from stepwell.translate.rewrites.tosa.integers import hoist_rescale_over_maximum
from stepwell.translate.rewrites.tosa.operators.building import Builder, shape_of
from stepwell.translate.rewrites.tosa.operators.sizes import is_known
from stepwell.translate.rules import read_rules

CONVOLUTIONS = (t.Conv2dOp, t.DepthwiseConv2dOp)


def widened(
    weight: SSAValue, result: SSAValue, amounts: Sequence[int], own: Sequence[int]
) -> list[int] | Refusal:
    """Return top, bottom, left and right of a convolution that also pads `amounts`: before and
    after each axis of an NHWC image.
    """
    if any((*amounts[:2], *amounts[6:])):
        return Refusal("channels or images are padded, not only rows and columns")
    op = cast("t.Conv2dOp | t.DepthwiseConv2dOp", result.owner)
    first = 0 if isinstance(op, t.DepthwiseConv2dOp) else 1
    reach = [
        (size - 1) * by + 1
        for size, by in zip(shape_of(weight)[first : first + 2], ints(op.dilation), strict=True)
    ]
    wide = [one + more for one, more in zip(own, amounts[2:6], strict=True)]
    if any(width >= reach[at // 2] for at, width in enumerate(wide)):
        return Refusal("a window would read padding alone")
    return wide


def is_image_of_one_channel(
    image: Sequence[Dim], padded: Sequence[Dim], seen: Sequence[Dim], amounts: Sequence[int]
) -> bool:
    """Whether a reshape of a padded NCHW image of one channel only moves the channel to the end."""
    is_one = len(image) == 4 and image[1] == 1 and not any(amounts[:4])
    return is_one and is_known(padded) and [*seen] == [padded[axis] for axis in TO_NHWC]


def padded_image(rw: Rewriter, image: SSAValue, amounts: Sequence[int], cell: SSAValue) -> SSAValue:
    """Reshape an NCHW image of one channel to NHWC, then pad it."""
    x = Value(image, Builder(rw)).reshape(*(shape_of(image)[axis] for axis in TO_NHWC))
    moved = [amounts[2 * axis + side] for axis in TO_NHWC for side in (0, 1)]
    sides = zip(x.shape, moved[::2], moved[1::2], strict=True)
    return x.made(t.PadOp, [sum(side) for side in sides], x.b.sizes(moved), cell).ssa


AbsorbPad, PadAfterReshape = RULES = read_rules(
    __doc__, vars(hoist_rescale_over_maximum) | globals()
)
