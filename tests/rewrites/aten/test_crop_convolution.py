"""CropConvolution: paddings of both ends, and what it leaves alone."""

from rewrite_cases import cases

from stepwell.translate.rewrites.slices.crop_convolution import CropConvolution

test_crop_convolution = cases(
    CropConvolution,
    """
2, 9223372036854775807, 1-s -> aten.constant_pad_nd.default, aten.convolution.default
    %c = aten.convolution.default(%x: f32[1, 3, s], %w: weight f32[3, 3, 3], none, [1], [2], [1], false, [0], 1)
    %y = aten.slice.Tensor(%c, 2, 2, 9223372036854775807, 1)
1, -1, 1-s -> aten.constant_pad_nd.default, aten.convolution.default
    %c = aten.convolution.default(%x: f32[1, 3, s], %w: weight f32[3, 3, 3], none, [1], [2], [1], false, [0], 1)
    %y = aten.slice.Tensor(%c, 2, 1, -1, 1)
ends are cut off the padding -> aten.constant_pad_nd.default, aten.convolution.default
    %c = aten.convolution.default(%x: f32[1, 3, s], %w: weight f32[3, 3, 3], none, [1], [2], [1], false, [0], 1)
    %y = aten.slice.Tensor(%c, 2, 0, -1, 1)
s-options0-2, 9223372036854775807, 1-s - 2-more is cut off than -> refused: more is cut off than
    %c = aten.convolution.default(%x: f32[1, 3, s], %w: weight f32[3, 3, 3], none, [1], [1], [1], false, [0], 1)
    %y = aten.slice.Tensor(%c, 2, 2, 9223372036854775807, 1)
s-options1-0, -2, 1-s - 2-more is cut off than -> refused: more is cut off than
    %c = aten.convolution.default(%x: f32[1, 3, s], %w: weight f32[3, 3, 3], none, [1], [1], [1], false, [0], 1)
    %y = aten.slice.Tensor(%c, 2, 0, -2, 1)
what is more than the padding -> refused: a step of 2
    %c = aten.convolution.default(%x: f32[1, 3, s], %w: weight f32[3, 3, 3], none, [2], [1], [1], false, [0], 1)
    %y = aten.slice.Tensor(%c, 2, 0, -1, 1)
what is more than the padding -> unchanged
    - %c = aten.convolution.default(%x: f32[1, 3, s], %w: weight f32[3, 3, 3], none, [1], [2], [1], false, [0], 1)
      %y = aten.slice.Tensor(%c, 2, 0, -1, 2)
    - %c = aten.convolution.default(%x: f32[1, 3, s], %w: weight f32[3, 3, 3], none, [1], [2], [1], false, [0], 1)
      %y = aten.slice.Tensor(%c, 2, 0, 3, 1)
    - %c = aten.convolution.default(%x: f32[1, 3, s], %w: weight f32[3, 3, 3], none, [1], [2], [1], false, [0], 1)
      %y = aten.slice.Tensor(%c, 2, -3, 9223372036854775807, 1)
what is more than the padding -> refused: a transposed convolution cannot end further inside
    - %c = aten.convolution.default(%x: f32[1, 3, s], %w: weight f32[3, 3, 3], none, [1], [0], [1], true, [0], 1)
      %y = aten.slice.Tensor(%c, 2, 0, -1, 1)
    - %c = aten.convolution.default(%x: f32[1, 3, s], %w: weight f32[3, 3, 3], none, [1], [0], [1], true, [0], 1)
      %y = aten.slice.Tensor(%c, 2, 1, 9223372036854775807, 1)
a static length -> unchanged
    %c = aten.convolution.default(%x: f32[1, 3, 8], %w: weight f32[3, 3, 3], none, [1], [2], [1], false, [0], 1)
    %y = aten.slice.Tensor(%c, 2, 0, -2, 1)
a slice of the batch -> unchanged
    %c = aten.convolution.default(%x: f32[b, 3, s], %w: weight f32[3, 3, 3], none, [1], [2], [1], false, [0], 1)
    %y = aten.slice.Tensor(%c, 0, 0, -1, 1)
what is no convolution -> unchanged
    %c = aten.relu.default(%x: f32[1, 3, s])
    %y = aten.slice.Tensor(%c, 2, 0, -1, 1)
a result that is read elsewhere -> refused: read elsewhere
    %c = aten.convolution.default(%x: f32[1, 3, s], %w: weight f32[3, 3, 3], none, [1], [2], [1], false, [0], 1)
    %a = aten.slice.Tensor(%c, 2, 0, -2, 1)
    %m = aten.mean.default(%c)
    %y = aten.add.Tensor(%a, %m)
bounds known only at run time -> unchanged
    - %n = aten.sym_size.int(%z: f32[2], 0)
      %c = aten.convolution.default(%x: f32[1, 3, s], %w: weight f32[3, 3, 3], none, [1], [2], [1], false, [0], 1)
      %y = aten.slice.Tensor(%c, 2, %n, 9223372036854775807, 1)
    - %n = aten.sym_size.int(%z: f32[2], 0)
      %c = aten.convolution.default(%x: f32[1, 3, s], %w: weight f32[3, 3, 3], none, [1], [2], [1], false, [0], 1)
      %y = aten.slice.Tensor(%c, 2, 0, %n, 1)
""",
)
