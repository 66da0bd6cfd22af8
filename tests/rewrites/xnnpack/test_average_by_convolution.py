"""Averages as convolutions: windows whose cells all count, as large as XNNPACK's kernels."""

from rewrite_cases import cases

from stepwell.translate.decompositions import pools

test_average_by_convolution = cases(
    pools,
    """
average-by-convolution: a counted padding becomes one of the convolution -> aten.convolution.default
    %y = aten.avg_pool2d.default(%x: f32[1, 2, 8, 8], [3, 3], [1, 1], [1, 1])
average-by-convolution: windows of other cells -> refused: count fewer cells
    %y = aten.avg_pool2d.default(%x: f32[1, 2, 8, 8], [3, 3], [1, 1], [1, 1], false, false)
average-by-convolution: windows of other cells -> refused: extend past the edge
    %y = aten.avg_pool2d.default(%x: f32[1, 2, 8, 8], [3, 3], [2, 2], [0, 0], true)
average-by-convolution: windows of other cells -> refused: pads a window of 16 cells
    %y = aten.avg_pool2d.default(%x: f32[1, 2, 8, 8], [4, 4], [4, 4])
average-by-convolution: averages of doubles -> refused: float32 or float16
    %y = aten.avg_pool2d.default(%x: f64[1, 2, 8, 8], [3, 3], [1, 1], [1, 1])
""",
)
