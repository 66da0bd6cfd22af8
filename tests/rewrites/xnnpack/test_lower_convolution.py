"""LowerConvolution: images and lines with constant filters, and nothing else."""

from typing import Any

import pytest
from rewrite_cases import cases

from stepwell.translate.lowerings.lowering import step
from stepwell.translate.lowerings.xnnpack import convolutions

X, W, Y = "tensor<1x3x6x6xf32>", "tensor<4x3x1x1xf32>", "tensor<1x4x6x6xf32>"
PLAIN = "[1, 1], [0, 0], [1, 1], false, [0, 0], 1"


def convolved(x: str = X, w: str = W, y: str = Y, rest: str = PLAIN) -> str:
    return f"%y = aten.convolution.default(%x, %w, none, {rest}) : ({x}, {w}) -> {y}"


test_lower_convolution = cases(convolutions)("""
a volume -> refused: rank 5
    %y = aten.convolution.default(%x: f32[1, 3, 6, 6, 6], %w: weight f32[4, 3, 1, 1, 1], none, [1, 1, 1], [0, 0, 0], [1, 1, 1], false, [0, 0, 0], 1)
symbolic sizes are lowered -> xnnpack.static_transpose, xnnpack.convolution_2d, xnnpack.static_transpose
    - %y = aten.convolution.default(%x: f32[s0, 3, 6, 6], %w: weight f32[4, 3, 1, 1], none, [1, 1], [0, 0], [1, 1], false, [0, 0], 1)
    - %y = aten.convolution.default(%x: f32[1, 3, s0, 6], %w: weight f32[4, 3, 1, 1], none, [1, 1], [0, 0], [1, 1], false, [0, 0], 1)
    - %y = aten.convolution.default(%x: f32[s0, 3, s1, s2], %w: weight f32[4, 3, 1, 1], none, [1, 1], [0, 0], [1, 1], false, [0, 0], 1)
lines of symbolic sizes are lowered -> xnnpack.static_reshape, xnnpack.static_transpose, xnnpack.convolution_2d, xnnpack.static_transpose, xnnpack.static_reshape
    - %y = aten.convolution.default(%x: f32[s0, 3, 6], %w: weight f32[4, 3, 1], none, [1], [0], [1], false, [0], 1)
    - %y = aten.convolution.default(%x: f32[2, 3, s0], %w: weight f32[4, 3, 1], none, [1], [0], [1], false, [0], 1)
lines of symbolic sizes are lowered -> contains xnnpack.convolution_2d
    %y = aten.convolution.default(%x: f32[s0, 3, s1], %w: weight f32[4, 3, 1], none, [1], [0], [1], false, [0], 1)
a filter computed at run time -> refused: the filter is computed
    %y = aten.convolution.default(%x: f32[1, 3, 6, 6], %w: f32[4, 3, 1, 1], none, [1, 1], [0, 0], [1, 1], false, [0, 0], 1)
a bias computed at run time -> refused: the bias is computed
    %y = aten.convolution.default(%x: f32[1, 3, 6, 6], %w: weight f32[4, 3, 1, 1], %b: f32[4], [1, 1], [0, 0], [1, 1], false, [0, 0], 1)
a constant bias is taken -> xnnpack.static_transpose, xnnpack.convolution_2d, xnnpack.static_transpose
    %y = aten.convolution.default(%x: f32[1, 3, 6, 6], %w: weight f32[4, 3, 1, 1], %b: weight f32[4], [1, 1], [0, 0], [1, 1], false, [0, 0], 1)
""")


@pytest.mark.parametrize("element", ["f16", "f32"])
def test_a_transposed_convolution_is_of_float32(
    element: str, apply: Any, refused: Any, method: Any
):
    x, w, y = (f"tensor<{s}x{element}>" for s in ("1x4x3x3", "4x2x2x2", "1x4x6x6"))
    weight = f'%w = stepwell.weight <"w"> "parameter" : {w}'
    rest = "[2, 2], [0, 0], [1, 1], true, [0, 0], 2"
    text = method(f"%x: {x}", weight, convolved(x, w, y, rest), gives=y)
    if element == "f16":
        refused(text, step(convolutions.convolution), "transposed convolution in float16")
    else:
        assert "xnnpack.deconvolution_2d" in apply(text, step(convolutions.convolution)).ops()
