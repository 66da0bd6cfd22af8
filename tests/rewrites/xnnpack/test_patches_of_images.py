"""PatchesToLinear on nodes alone: each condition of "windows tile the image" for itself."""

from typing import Any

import pytest
from rewrite_cases import cases

from stepwell.translate.rewrites.xnnpack.convolutions.patches_to_linear import PatchesToLinear

FIELDS = {"groups": 1, "padding": [0, 0, 0, 0], "stride": [2, 2], "dilation": [1, 1]}


test_patches_of_images = cases(
    PatchesToLinear,
    """
single pixels -> unchanged
    %x: f32[1, 4, 4, 3], %w: weight f32[5, 1, 1, 3]
    %y = xnnpack.convolution_2d(%x, %w, groups=1, padding=[0, 0, 0, 0], stride=[1, 1], dilation=[1, 1]) : (f32[1, 4, 4, 3], f32[5, 1, 1, 3]) -> f32[1, 4, 4, 5]
windows that overlap -> unchanged
    %x: f32[1, 4, 4, 3], %w: weight f32[5, 2, 2, 3]
    %y = xnnpack.convolution_2d(%x, %w, groups=1, padding=[0, 0, 0, 0], stride=[1, 1], dilation=[1, 1]) : (f32[1, 4, 4, 3], f32[5, 2, 2, 3]) -> f32[1, 3, 3, 5]
it stays a convolution -> unchanged
    - %x: f32[1, 4, 4, 3], %w: weight f32[5, 2, 2, 3]
      %y = xnnpack.convolution_2d(%x, %w, groups=1, padding=[1, 1, 1, 1], stride=[2, 2], dilation=[1, 1]) : (f32[1, 4, 4, 3], f32[5, 2, 2, 3]) -> f32[1, 3, 3, 5]
    - %x: f32[1, 4, 4, 6], %w: weight f32[4, 2, 2, 3]
      %y = xnnpack.convolution_2d(%x, %w, groups=2, padding=[0, 0, 0, 0], stride=[2, 2], dilation=[1, 1]) : (f32[1, 4, 4, 6], f32[4, 2, 2, 3]) -> f32[1, 2, 2, 4]
windows with holes -> unchanged
    %x: f32[1, 6, 6, 3], %w: weight f32[5, 2, 2, 3]
    %y = xnnpack.convolution_2d(%x, %w, groups=1, padding=[0, 0, 0, 0], stride=[2, 2], dilation=[2, 2]) : (f32[1, 6, 6, 3], f32[5, 2, 2, 3]) -> f32[1, 2, 2, 5]
rows left out -> refused: out
    %x: f32[1, 5, 4, 3], %w: weight f32[5, 2, 2, 3]
    %y = xnnpack.convolution_2d(%x, %w, groups=1, padding=[0, 0, 0, 0], stride=[2, 2], dilation=[1, 1]) : (f32[1, 5, 4, 3], f32[5, 2, 2, 3]) -> f32[1, 2, 2, 5]
columns left out -> refused: out
    %x: f32[1, 4, 5, 3], %w: weight f32[5, 2, 2, 3]
    %y = xnnpack.convolution_2d(%x, %w, groups=1, padding=[0, 0, 0, 0], stride=[2, 2], dilation=[1, 1]) : (f32[1, 4, 5, 3], f32[5, 2, 2, 3]) -> f32[1, 2, 2, 5]
an unknown number of images -> refused: is symbolic
    %x: f32[s0, 4, 4, 3], %w: weight f32[5, 2, 2, 3]
    %y = xnnpack.convolution_2d(%x, %w, groups=1, padding=[0, 0, 0, 0], stride=[2, 2], dilation=[1, 1]) : (f32[s0, 4, 4, 3], f32[5, 2, 2, 3]) -> f32[s0, 2, 2, 5]
an image whose integers others read too is not quantized twice -> refused: read by others
    %w = quant.scast(%i: weight "w" i8[5, 2, 2, 3]) -> i8<:0, {0.1, 0.2, 0.3, 0.4, 0.5}>[5, 2, 2, 3]
    %q = xnnpack.convert(%x: f32[1, 4, 4, 3]) -> !xnnpack.dynamic_int8<3>[1, 4, 4, 3]
    %a = xnnpack.convolution_2d(%q, %w, groups=1, padding=[0, 0, 0, 0], stride=[2, 2], dilation=[1, 1]) : (!xnnpack.dynamic_int8<3>[1, 4, 4, 3], i8<:0, {0.1, 0.2, 0.3, 0.4, 0.5}>[5, 2, 2, 3]) -> f32[1, 2, 2, 5]
    %b = xnnpack.convolution_2d(%q, %w, groups=1, output_min=0.0, padding=[0, 0, 0, 0], stride=[2, 2], dilation=[1, 1]) : (!xnnpack.dynamic_int8<3>[1, 4, 4, 3], i8<:0, {0.1, 0.2, 0.3, 0.4, 0.5}>[5, 2, 2, 3]) -> f32[1, 2, 2, 5]
    %y = xnnpack.add(%a, %b)
""",
)


def stored(channels: int, held: str) -> tuple[str, str]:
    """The lines of a stored filter `%w`, and its type."""
    sizes = f"5x2x2x{channels}x"
    lines = (
        f'%i = stepwell.weight <"w"> "parameter" : tensor<{sizes}i8>',
        f"%w = quant.scast %i : tensor<{sizes}i8> to tensor<{sizes}{held}>",
    )
    return "\n  ".join(lines), f"tensor<{sizes}{held}>"


PLAIN = ", ".join(f"{name}={held}" for name, held in FIELDS.items())


@pytest.mark.parametrize(("channels", "taken"), [(7, True), (8, False)])
def test_int8_images_gain_below_eight_channels(
    channels: int, taken: bool, apply: Any, refused: Any, method: Any
):
    lines, w = stored(channels, "!quant.uniform<i8:f32, 0.125>")
    x = f"tensor<1x4x4x{channels}x!quant.uniform<i8:f32, 0.5:3>>"
    y = "tensor<1x2x2x5x!quant.uniform<i8:f32, 0.25>>"
    line = f"%y = xnnpack.convolution_2d(%x, %w, {PLAIN}) : ({x}, {w}) -> {y}"
    text = method(f"%x: {x}", lines, line, gives=y)
    if taken:
        assert apply(text, PatchesToLinear()).count == 1
    else:
        refused(text, PatchesToLinear(), "eight channels")
