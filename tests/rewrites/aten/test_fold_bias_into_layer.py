"""A constant behind a linear layer becomes its bias; anything else that is added stays."""

from rewrite_cases import cases

from stepwell.translate.rewrites.layers.fold_constant_into_layer import FoldBiasIntoLayer

test_fold_bias_into_layer = cases(
    FoldBiasIntoLayer,
    """
a number becomes a bias -> aten.linear.default
    %l = aten.linear.default(%x: f32[2, 4], %w: weight f32[3, 4])
    %y = aten.add.Scalar(%l, 0.25)
two constants become one bias -> applied 2 times; aten.linear.default
    %l = aten.linear.default(%x: f32[2, 4], %w: weight f32[3, 4])
    %a = aten.add.Tensor(%l, %c: weight f32[1, 3])
    %y = aten.add.Scalar(%a, 2.0)
a residual -> unchanged
    %l = aten.linear.default(%x: f32[2, 4], %w: weight f32[3, 4])
    %y = aten.add.Tensor(%l, %r: f32[2, 3])
a constant for each row -> unchanged
    %l = aten.linear.default(%x: f32[2, 4], %w: weight f32[3, 4])
    %y = aten.add.Tensor(%l, %c: weight f32[2, 1])
a scaled constant -> unchanged
    %l = aten.linear.default(%x: f32[2, 4], %w: weight f32[3, 4])
    %y = aten.add.Tensor(%l, %c: weight f32[3], alpha=2)
a bias known only at run time -> refused: run time
    %l = aten.linear.default(%x: f32[2, 4], %w: weight f32[3, 4], %b: f32[3])
    %y = aten.add.Scalar(%l, 0.25)
a layer without output features takes no bias -> unchanged
    %l = aten.linear.default(%x: f32[4, 4], %w: weight f32[4])
    %y = aten.add.Tensor(%l, %c: weight f32[4])
a layer read without the constant keeps it -> refused: read without the constant
    %l = aten.linear.default(%x: f32[2, 4], %w: weight f32[3, 4])
    %a = aten.add.Scalar(%l, 0.25)
    %y = aten.mul.Tensor(%l, %a)
a constant added to what is no layer -> unchanged
    %n = aten.neg.default(%x: f32[2, 4])
    %y = aten.add.Scalar(%n, 0.25)
a number beyond the bias -> refused: 1e+300 does not fit float32
    %l = aten.linear.default(%x: f32[2, 4], %w: weight f32[3, 4])
    %y = aten.add.Scalar(%l, 1e+300)
""",
)
