"""A factor goes over a layout op only where the tensor is read with the factor alone."""

from rewrite_cases import cases

from stepwell.translate.rewrites.layers.hoist_scale_over_layout import HoistScaleOverLayout

test_hoist_scale_over_layout = cases(HoistScaleOverLayout)("""
a tensor read without the factor keeps its layout -> refused: without the factor
    %v = aten.permute.default(%x: f32[2, 3], [1, 0]); %s = aten.mul.Scalar(%v, 0.5)
    %y = aten.add.Tensor(%v, %s)
a constant is not scaled before it is laid out -> unchanged
    %v = aten.permute.default(%w: weight f32[2, 3], [1, 0]); %s = aten.mul.Scalar(%v, 0.5)
    %y = aten.add.Tensor(%s, %x: f32[3, 2])
a factor that promotes -> unchanged
    %v = aten.permute.default(%x: i64[2, 3], [1, 0]); %y = aten.mul.Scalar(%v, 0.5)
a factor known only at run time -> unchanged
    %p = aten.view.default(%x: f32[2, 3], [2, 3]); %y = aten.mul.Scalar(%p, %n: int<n>)
a factor stays after what changes elements -> unchanged
    %r = aten.relu.default(%x: f32[2, 3]); %y = aten.mul.Scalar(%r, -0.5)
a factor goes over whatever permutes -> aten.mul.Scalar, aten.t.default
    %p = aten.t.default(%x: f32[2, 3]); %y = aten.mul.Scalar(%p, 0.5)
a factor goes over whatever permutes -> aten.mul.Scalar, aten.transpose.int
    %p = aten.transpose.int(%x: f32[2, 3], 0, 1); %y = aten.mul.Scalar(%p, 0.5)
""")


test_a_factor_behind_what_draws = cases(HoistScaleOverLayout, run=False)("""
a factor stays behind a dropout of training -> applied 0 times
    %d = aten.dropout.default(%x: f32[2, 3], 0.5, true); %y = aten.mul.Scalar(%d, 0.5)
""")
