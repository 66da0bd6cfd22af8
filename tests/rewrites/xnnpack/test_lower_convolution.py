"""LowerConvolution: images and lines with constant filters, and nothing else."""

from rewrite_cases import cases

from stepwell.translate.lowerings.lowering import step
from stepwell.translate.lowerings.xnnpack import convolutions

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


test_a_transposed_convolution_is_of_float32 = cases(step(convolutions.convolution))("""
floats -> contains xnnpack.deconvolution_2d
    %y = aten.convolution.default(%x: f32[1, 4, 3, 3], %w: weight f32[4, 2, 2, 2], none, [2, 2], [0, 0], [1, 1], true, [0, 0], 2)
halves -> refused: transposed convolution in float16
    %y = aten.convolution.default(%x: f16[1, 4, 3, 3], %w: weight f16[4, 2, 2, 2], none, [2, 2], [0, 0], [1, 1], true, [0, 0], 2)
""")
