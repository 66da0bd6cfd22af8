"""ConvToConvolution: beyond its documented example, and what it leaves alone."""

from rewrite_cases import cases

from stepwell.translate.decompositions import products

test_conv_to_convolution = cases(
    products,
    """
conv-to-convolution: a convolution in normal form -> unchanged
    %y = aten.convolution.default(%x: f32[1, 3, 4, 4], %w: f32[2, 3, 1, 1], none, [1, 1], [0, 0], [1, 1], false, [0, 0], 1)
conv-to-convolution: an unbatched input gets a batch -> aten.view.default, aten.convolution.default, aten.view.default
    %y = aten.conv1d.default(%x: f32[3, 7], %w: f32[2, 3, 3], none, [2], [1])
conv-to-convolution: a transposed convolution keeps its output padding -> aten.convolution.default
    %y = aten.conv_transpose2d.input(%x: f32[1, 4, 3, 3], %w: f32[4, 1, 3, 3], none, [2, 2], [1, 1], [1, 1], 2)
conv-to-convolution: a kernel of symbolic length -> refused: kernel is symbolic
    %y = aten.conv1d.default(%x: f32[1, 3, 7], %w: f32[2, 3, n]) -> f32[1, 2, 8 - n]
conv-to-convolution: a padding known only at run time -> refused: run time
    %y = aten.conv1d.default(%x: f32[1, 3, 7], %w: f32[2, 3, 3], none, [1], [%n: int<n>])
""",
)
