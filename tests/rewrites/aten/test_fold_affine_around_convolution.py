"""Constants in front of a convolution and behind it go into its weights, if nothing else sees them."""

from rewrite_cases import cases

from stepwell.translate.rewrites.layers.fold_affine_into_layer import FoldAffineIntoLayer
from stepwell.translate.rewrites.layers.fold_constant_into_layer import (
    FoldBiasIntoLayer,
    FoldScaleIntoLayer,
)

test_fold_affine_around_convolution = cases(
    FoldAffineIntoLayer,
    FoldScaleIntoLayer,
    FoldBiasIntoLayer,
    """
fold-affine-into-layer: the bias takes the shift too -> aten.convolution.default
    %s = aten.mul.Tensor(%x: f32[1, 4, 5, 5], %g: weight f32[4, 1, 1])
    %a = aten.add.Tensor(%s, %b: weight f32[4, 1, 1])
    %y = aten.convolution.default(%a, %w: weight f32[6, 4, 1, 1], %c: weight f32[6], [1, 1], [0, 0], [1, 1], false, [0, 0], 1)
fold-affine-into-layer: each group reads its own channels -> aten.convolution.default
    %s = aten.mul.Tensor(%x: f32[1, 4, 5, 5], %g: weight f32[4, 1, 1])
    %a = aten.add.Tensor(%s, %b: weight f32[4, 1, 1])
    %y = aten.convolution.default(%a, %w: weight f32[6, 2, 3, 3], none, [1, 1], [0, 0], [1, 1], false, [0, 0], 2)
fold-affine-into-layer: one factor for all channels passes padding -> aten.convolution.default
    %s = aten.mul.Tensor(%x: f32[1, 4, 5, 5], %g: weight f32[1])
    %y = aten.convolution.default(%s, %w: weight f32[6, 4, 1, 1], none, [1, 1], [1, 1], [1, 1], false, [0, 0], 1)
fold-affine-into-layer: two convolutions take the same shift -> aten.convolution.default, aten.convolution.default, aten.mul.Tensor
    %a = aten.add.Tensor(%x: f32[1, 4, 5, 5], %b: weight f32[4, 1, 1])
    %k = aten.convolution.default(%a, %w: weight f32[6, 4, 1, 1], none, [1, 1], [0, 0], [1, 1], false, [0, 0], 1)
    %l = aten.convolution.default(%a, %w, none, [1, 1], [0, 0], [1, 1], false, [0, 0], 1)
    %y = aten.mul.Tensor(%k, %l)
fold-affine-into-layer: a factor that is read beside the sum stays -> aten.mul.Tensor, aten.convolution.default, aten.cat.default
    %s = aten.mul.Tensor(%x: f32[1, 4, 5, 5], %g: weight f32[4, 1, 1])
    %a = aten.add.Tensor(%s, %b: weight f32[4, 1, 1])
    %k = aten.convolution.default(%a, %w: weight f32[6, 4, 1, 1], none, [1, 1], [0, 0], [1, 1], false, [0, 0], 1)
    %y = aten.cat.default([%k, %s], 1)
fold-affine-into-layer: a shift under padding -> refused: pads
    %a = aten.add.Tensor(%x: f32[1, 4, 5, 5], %b: weight f32[4, 1, 1])
    %y = aten.convolution.default(%a, %w: weight f32[6, 4, 1, 1], none, [1, 1], [1, 1], [1, 1], false, [0, 0], 1)
fold-affine-into-layer: a value that others read -> refused: aten.cat.default reads
    %a = aten.add.Tensor(%x: f32[1, 4, 5, 5], %b: weight f32[4, 1, 1])
    %k = aten.convolution.default(%a, %w: weight f32[6, 4, 1, 1], none, [1, 1], [0, 0], [1, 1], false, [0, 0], 1)
    %y = aten.cat.default([%a, %k], 1)
fold-affine-into-layer: a product that is a filter too -> refused: reads
    %s = aten.mul.Tensor(%x: f32[2, 2, 1, 1], %g: weight f32[2, 1, 1])
    %y = aten.convolution.default(%s, %s, none, [1, 1], [0, 0], [1, 1], false, [0, 0], 1)
fold-affine-into-layer: a transposed convolution keeps its input -> refused: transposed
    %s = aten.mul.Tensor(%x: f32[1, 4, 5, 5], %g: weight f32[4, 1, 1])
    %y = aten.convolution.default(%s, %w: weight f32[4, 4, 1, 1], none, [1, 1], [0, 0], [1, 1], true, [0, 0], 1)
fold-affine-into-layer: weights known only at run time take nothing in -> refused: weight is computed
    %a = aten.add.Tensor(%x: f32[1, 4, 5, 5], %b: weight f32[4, 1, 1])
    %y = aten.convolution.default(%a, %w: f32[6, 4, 1, 1], %c: weight f32[6], [1, 1], [0, 0], [1, 1], false, [0, 0], 1)
fold-affine-into-layer: weights known only at run time take nothing in -> refused: bias is computed
    %a = aten.add.Tensor(%x: f32[1, 4, 5, 5], %b: weight f32[4, 1, 1])
    %y = aten.convolution.default(%a, %w: weight f32[6, 4, 1, 1], %c: f32[6], [1, 1], [0, 0], [1, 1], false, [0, 0], 1)
fold-affine-into-layer: what is no constant of channels -> unchanged
    - %a = aten.add.Tensor(%x: f32[1, 4, 5, 5], %b: weight f32[4, 1, 1], alpha=2)
      %y = aten.convolution.default(%a, %w: weight f32[6, 4, 1, 1], none, [1, 1], [0, 0], [1, 1], false, [0, 0], 1)
    - %a = aten.mul.Tensor(%x: f32[1, 4, 5, 5], %r: weight f32[5, 5])
      %y = aten.convolution.default(%a, %w: weight f32[6, 4, 1, 1], none, [1, 1], [0, 0], [1, 1], false, [0, 0], 1)
    - %a = aten.mul.Tensor(%x: f32[1, 4, 5, 5], %x)
      %y = aten.convolution.default(%a, %w: weight f32[6, 4, 1, 1], none, [1, 1], [0, 0], [1, 1], false, [0, 0], 1)
    - %a = aten.neg.default(%x: f32[1, 4, 5, 5])
      %y = aten.convolution.default(%a, %w: weight f32[6, 4, 1, 1], none, [1, 1], [0, 0], [1, 1], false, [0, 0], 1)
fold-affine-into-layer: a constant that widens what it scales -> unchanged
    %s = aten.mul.Tensor(%x: f32[1, 1, 5, 5], %g: weight f32[4, 1, 1])
    %y = aten.convolution.default(%s, %w: weight f32[6, 4, 1, 1], none, [1, 1], [0, 0], [1, 1], false, [0, 0], 1)
fold-scale-into-layer: a constant behind goes in -> aten.convolution.default
    - %k = aten.convolution.default(%x: f32[1, 4, 5, 5], %w: weight f32[6, 4, 1, 1], none, [1, 1], [0, 0], [1, 1], false, [0, 0], 1)
      %y = aten.mul.Tensor(%k, %d: weight f32[6, 1, 1])
    - %k = aten.convolution.default(%x: f32[1, 4, 5, 5], %w: weight f32[6, 4, 1, 1], %c: weight f32[6], [1, 1], [0, 0], [1, 1], false, [0, 0], 1)
      %y = aten.mul.Tensor(%k, %d: weight f32[6, 1, 1])
    - %k = aten.convolution.default(%x: f32[1, 4, 5, 5], %w: weight f32[6, 4, 1, 1], none, [1, 1], [0, 0], [1, 1], false, [0, 0], 1)
      %y = aten.mul.Scalar(%k, 0.5)
    - %k = aten.convolution.default(%x: f32[1, 4, 5, 5], %w: weight f32[6, 4, 1, 1], %c: weight f32[6], [1, 1], [0, 0], [1, 1], false, [0, 0], 1)
      %y = aten.mul.Scalar(%k, 0.5)
fold-bias-into-layer: a constant behind goes in -> aten.convolution.default
    - %k = aten.convolution.default(%x: f32[1, 4, 5, 5], %w: weight f32[6, 4, 1, 1], none, [1, 1], [0, 0], [1, 1], false, [0, 0], 1)
      %y = aten.add.Tensor(%d: weight f32[6, 1, 1], %k)
    - %k = aten.convolution.default(%x: f32[1, 4, 5, 5], %w: weight f32[6, 4, 1, 1], %c: weight f32[6], [1, 1], [0, 0], [1, 1], false, [0, 0], 1)
      %y = aten.add.Tensor(%d: weight f32[6, 1, 1], %k)
    - %k = aten.convolution.default(%x: f32[1, 4, 5, 5], %w: weight f32[6, 4, 1, 1], none, [1, 1], [0, 0], [1, 1], false, [0, 0], 1)
      %y = aten.add.Scalar(%k, 3)
    - %k = aten.convolution.default(%x: f32[1, 4, 5, 5], %w: weight f32[6, 4, 1, 1], %c: weight f32[6], [1, 1], [0, 0], [1, 1], false, [0, 0], 1)
      %y = aten.add.Scalar(%k, 3)
fold-scale-into-layer: a convolution that is read without the constant -> refused: without the factor
    %k = aten.convolution.default(%x: f32[1, 4, 5, 5], %w: weight f32[6, 4, 1, 1], none, [1, 1], [0, 0], [1, 1], false, [0, 0], 1)
    %s = aten.mul.Tensor(%k, %d: weight f32[6, 1, 1])
    %y = aten.add.Tensor(%k, %s)
fold-scale-into-layer: weights known only at run time take nothing behind -> refused: weight is computed
    %k = aten.convolution.default(%x: f32[1, 4, 5, 5], %w: f32[6, 4, 1, 1], %c: weight f32[6], [1, 1], [0, 0], [1, 1], false, [0, 0], 1)
    %y = aten.mul.Tensor(%k, %d: weight f32[6, 1, 1])
fold-scale-into-layer: weights known only at run time take nothing behind -> refused: bias is computed
    %k = aten.convolution.default(%x: f32[1, 4, 5, 5], %w: weight f32[6, 4, 1, 1], %c: f32[6], [1, 1], [0, 0], [1, 1], false, [0, 0], 1)
    %y = aten.mul.Tensor(%k, %d: weight f32[6, 1, 1])
fold-scale-into-layer: a transposed convolution keeps what stands behind -> refused: transposed
    %k = aten.convolution.default(%x: f32[1, 4, 5, 5], %w: weight f32[4, 4, 1, 1], none, [1, 1], [0, 0], [1, 1], true, [0, 0], 1)
    %y = aten.mul.Tensor(%k, %g: weight f32[4, 1, 1])
fold-bias-into-layer: other products and sums behind -> unchanged
    %k = aten.convolution.default(%x: f32[1, 4, 5, 5], %w: weight f32[6, 4, 1, 1], none, [1, 1], [0, 0], [1, 1], false, [0, 0], 1)
    %y = aten.add.Tensor(%k, %d: weight f32[6, 1, 1], alpha=2)
fold-scale-into-layer: other products and sums behind -> unchanged
    - %k = aten.convolution.default(%x: f32[1, 4, 5, 5], %w: weight f32[6, 4, 1, 1], none, [1, 1], [0, 0], [1, 1], false, [0, 0], 1)
      %y = aten.mul.Tensor(%k, %r: weight f32[5, 5])
    - %k = aten.convolution.default(%x: f32[1, 4, 5, 5], %w: weight f32[6, 4, 1, 1], none, [1, 1], [0, 0], [1, 1], false, [0, 0], 1)
      %y = aten.mul.Tensor(%k, %k)
fold-scale-into-layer: a constant behind another op -> unchanged
    %k = aten.neg.default(%x: f32[1, 4, 5, 5])
    %y = aten.mul.Scalar(%k, 3)
fold-scale-into-layer: a convolution of integers -> unchanged
    %k = aten.convolution.default(%x: i64[1, 4, 5, 5], %w: weight i64[6, 4, 1, 1], none, [1, 1], [0, 0], [1, 1], false, [0, 0], 1)
    %y = aten.mul.Scalar(%k, 3)
fold-scale-into-layer: a number that makes weights infinite -> refused: the factor is not finite
    %l = aten.convolution.default(%x: f32[1, 4, 5, 5], %w: weight f32[6, 4, 1, 1], none, [1, 1], [0, 0], [1, 1], false, [0, 0], 1)
    %y = aten.mul.Scalar(%l, inf)
fold-bias-into-layer: a number that makes weights infinite -> refused: does not fit float32
    %l = aten.convolution.default(%x: f32[1, 4, 5, 5], %w: weight f32[6, 4, 1, 1], none, [1, 1], [0, 0], [1, 1], false, [0, 0], 1)
    %y = aten.add.Scalar(%l, 1e+300)
""",
)
