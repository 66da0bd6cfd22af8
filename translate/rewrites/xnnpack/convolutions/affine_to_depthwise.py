"""Fusion: a factor and a shift for each image channel become one 1×1 depthwise convolution.

A batch norm, or a norm's scale and shift, that no layer absorbed is a product and a sum, each of
which reads and writes the image. XNNPACK broadcasts a constant along the channels pixel by pixel;
its depthwise convolution does both at once, in a half to a third of the time. With one channel
there is no gain. Kernels fill a window up to their own size with weights of zero, so the pixels
next to an infinity become NaN.

rule affine-to-depthwise
    A window of one pixel for each channel; the sum's output range stays.
Before:
    %s = xnnpack.multiply({%x, %g}, …)
    %y = xnnpack.add({%s, %b}, output_min=$low, output_max=$high)
After:
    %f = weight filter_of_pixel(%g)
    %c = weight as_bias(%b, features=channels(%y))
    %y = xnnpack.depthwise_convolution_2d(%x, %f, %c, stride=[1, 1], padding=[0, 0, 0, 0],
        dilation=[1, 1], output_min=$low, output_max=$high)
where are_images(%y)
where are_of_one_type(%x, %s, %y)
where is_of_channels(%b, %y)
where is_of_channels(%g, %y)
where reads_once(%s) for cost else "the product is read without the sum too"
where is_unclamped(%s) else "the product is clamped before the sum"
where has_channels(%y) for target
    else "one channel: a number for all, which scores of −∞ may be scaled by"
proven is_finite(%x) else "an infinity or NaN makes the pixels beside it NaN"
bound of roundings: "product and sum may be rounded once"
for %g = weight : tensor<3 x f32>
for %b = weight : tensor<1 x 1 x 1 x 3 x f32>
for %x = "tensor<1x5x5x3xf32>", $low = none, $high = none
not for %x = "tensor<5x5x3xf32>"; %b = weight : tensor<3 x f32>
not for %b = weight : tensor<1 x 5 x 1 x f32>
not for %g = weight : tensor<5 x 1 x f32>
not for $output_min = 0.0
not for %x = "tensor<1x5x5x1xf32>"; %g = weight : tensor<1 x f32>; %b = weight : tensor<1 x f32>
"""

from __future__ import annotations

from typing import cast

from xdsl.ir import SSAValue

from stepwell.dialects.xnnpack import XnnpackOp
from stepwell.ir.compat.torch.lazy_imports import torch
from stepwell.ir.core import weight_key
from stepwell.ir.dtypes import f32
from stepwell.ir.types import Dim, dims, element
from stepwell.ir.weights import recipe
from stepwell.translate.range_analysis import is_finite  # noqa: F401  # pyright: ignore[reportUnusedImport]
from stepwell.translate.rules import read_rules
from stepwell.translate.scale_folding import recipes  # noqa: F401  # pyright: ignore[reportUnusedImport]


@recipe("filter_of_pixel")
def filter_of_pixel(factors: torch.Tensor) -> torch.Tensor:
    """Return the channels' factors as a depthwise convolution's filter `[1, 1, 1, channels]`."""
    return factors.reshape(1, 1, 1, -1)


def are_images(value: SSAValue) -> bool:
    """Whether the value is a float32 tensor of four axes."""
    return len(dims(value.type)) == 4 and element(value.type) == f32


def is_of_channels(constant: SSAValue, images: SSAValue) -> bool:
    """Whether the value is a weight with a number for each image channel."""
    *ones, channels = dims(constant.type) or (1,)
    is_along = channels == dims(images.type)[-1] and all(size == 1 for size in ones)
    return is_along and weight_key(constant) is not None


def is_unclamped(value: SSAValue) -> bool:
    """Return the result of a node that has no output range, or None."""
    return cast(XnnpackOp, value.owner).output_range is None


def channels(images: SSAValue) -> Dim:
    """Return the number of image channels, the size of the last axis."""
    return dims(images.type)[-1]


def has_channels(images: SSAValue) -> bool:
    """Whether the image has more than one channel."""
    return channels(images) != 1


(AffineToDepthwise,) = RULES = read_rules(__doc__, globals())
