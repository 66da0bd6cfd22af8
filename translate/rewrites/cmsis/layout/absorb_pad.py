"""Fusion: a convolution pads its image itself, so that no padded copy is made.

CMSIS-NN takes the padding before the image and the size of the result, and reads cells after the
image as padding. Its kernels expect TensorFlow's `same` padding: after the image as many cells as
before it, or one more (`arm_convolve_1_x_n_s8` fails otherwise, `arm_depthwise_conv_3x3_s8` reads
outside of the image). MobileNetV1 on 96 pixels, whose strided layers are padded so, takes 18 KB of
activations less.

rule absorb-pad
    The padding before the image is added to the convolution's; the rest follows from the sizes.
Before:
    %p = cmsis.pad(%x, pre_pad=$before, post_pad=$after, pad_value=$cell) : (…) -> $P
    %y = $conv of CONVOLUTIONS(%p, %w, …, padding=$own) : (…) -> $Y
After:
    %y = $conv(%x, %w, …, padding=$wide)
where pads_with_zero(%p, $cell) else "the padding is not the zero point"
with $wide = same_padding(%p, %y, $before, $after, $own)
for %v = weight : tensor<2 x 3 x 3 x 1 x i8>
for %w = quant.scast(%v) : (…) -> $W
for $conv = "cmsis.quantized_conv2d_nhwc", $input_offset = -3, $output_offset = -1, $scratch = 0
for $requantize_multipliers = [1073741824, 1073741824], $requantize_shifts = [-3, -3]
for $activation_max = 127, $activation_min = -128, $stride = [2, 2], $dilation = [1, 1]
for $before = [0, 0, 0, 0], $after = [0, 1, 1, 0], $own = [0, 0], $cell = 3
for %x = "tensor<1x4x6x1x!quant.uniform<i8:f32, 0.5:3>>", $P = "tensor<1x5x7x1x!quant.uniform<i8:f32, 0.5:3>>"
for $W = "tensor<2x3x3x1x!quant.uniform<i8<-127:127>:f32, 0.25>>"
for $Y = "tensor<1x2x3x2x!quant.uniform<i8:f32, 2.0:-1>>"
not for $cell = 4
not for $before = [0, 1, 1, 0], $after = [0, 0, 0, 0]

rule pad-after-view
    An image of one channel is padded where its convolution reads it.
Before:
    %p = cmsis.pad(%x, pre_pad=$before, post_pad=$after, pad_value=$cell) : (tensor<$*X x $Q>) -> tensor<$*P x $Q>
    %r = quant.scast(%p) : (…) -> tensor<$*P x $I>
    %v = aten.view.default(%r, …) : (…) -> tensor<$*S x $I>
    %y = quant.scast(%v) : (…) -> tensor<$*S x $Q>
After:
    %i = reshaped(%x, image_of($X))
    %y = padded(%i, image_of($before), image_of($after), $cell)
where is_image_of_one_channel($X, $P, $S, $before, $after)
where reads_once(%p) for cost
for $X = [1, 1, 4, 5], $P = [1, 1, 6, 5], $S = [1, 6, 5, 1], $I = i8, $cell = 3
for $before = [0, 0, 1, 0], $after = [0, 0, 1, 0], $size = [1, 6, 5, 1]
for $Q = "!quant.uniform<i8:f32, 0.5:3>", %x = "tensor<1x1x4x5x!quant.uniform<i8:f32, 0.5:3>>"
not for $S = [1, 6, 1, 5], $size = [1, 6, 1, 5]
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, cast

from xdsl.ir import SSAValue

from stepwell.dialects.cmsis.ops import (
    QuantizedConv2d,
    QuantizedConv2dNhwc,
    QuantizedDepthwiseConv2d,
    QuantizedDepthwiseConv2dNhwc,
)
from stepwell.dialects.cmsis.ops.base import per_tensor
from stepwell.dialects.cmsis.ops.layout import nhwc_shape
from stepwell.dialects.cmsis.ops.spatial import Spatial, is_same_padding
from stepwell.ir.rewriting.rewrite import Refusal
from stepwell.ir.types import Dim, dims, is_static
from stepwell.translate.rewrites.cmsis.layout import reshape
from stepwell.translate.rules import read_rules

CONVOLUTIONS = (
    QuantizedConv2d,
    QuantizedConv2dNhwc,
    QuantizedDepthwiseConv2d,
    QuantizedDepthwiseConv2dNhwc,
)


def pads_with_zero(padded: SSAValue, cell: int) -> bool:
    """Whether the padding means zero, which adds nothing to a convolution's sums."""
    held = per_tensor(padded)
    return held is not None and cell == held.zero_point


def same_padding(
    padded: SSAValue,
    result: SSAValue,
    before: Sequence[int],
    after: Sequence[int],
    own: Sequence[int],
) -> list[int] | Refusal | None:
    """Return the padding before the rows and columns of the image, if the kernels support it."""
    op = cast(Spatial, result.owner)
    if not is_static(padded.type) or len(dims(padded.type)) != 4:
        return None
    (batch, *first, channels), (more, *last, others) = (
        nhwc_shape(tuple(side), op.IS_NHWC) for side in (before, after)
    )
    if any((batch, channels, more, others)):
        return Refusal("channels or images are padded, not only rows and columns")
    wide = [cast(int, one) + two for one, two in zip(first, own, strict=True)]
    sizes = [cast(int, s) - cast(int, a) - cast(int, b)
             for s, a, b in zip(nhwc_shape(dims(padded.type), op.IS_NHWC)[1:3], first, last, strict=True)]  # fmt: skip
    if not all(is_same_padding(op, axis, sizes[axis], wide[axis]) for axis in (0, 1)):
        return Refusal("the kernels pad the end like the begin, or by one cell more")
    return wide


def is_image_of_one_channel(
    image: Sequence[Dim], padded: Sequence[Dim], seen: Sequence[Dim], *widths: Sequence[int]
) -> bool:
    """Whether a view of a padded NCHW image of one channel only moves the channel to the end."""
    if (
        len(image) != 4
        or image[1] != 1
        or len(seen) != 4
        or not all(isinstance(size, int) for size in padded)
    ):
        return False
    return [*seen] == image_of(padded) and not any(side[0] or side[1] for side in widths)


def image_of(sizes: Sequence[Dim]) -> list[Any]:
    """Return NCHW sizes or widths as NHWC."""
    return [*nhwc_shape(tuple(sizes), is_nhwc=False)]


AbsorbPad, PadAfterView = RULES = read_rules(__doc__, vars(reshape) | globals())
