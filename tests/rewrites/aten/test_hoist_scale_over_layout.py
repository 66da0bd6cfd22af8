"""A factor goes over a layout op only where the tensor is read with the factor alone."""

from typing import Any

from rewrite_cases import cases

from stepwell.ir.program import Program
from stepwell.ir.rewriting.rewrite import run_rewrites
from stepwell.translate.rewrites.layers.hoist_scale_over_layout import HoistScaleOverLayout

X, V = "tensor<2x3xf32>", "tensor<3x2xf32>"


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


def test_a_factor_stays_behind_a_dropout_of_training(method: Any) -> None:
    drops = f"%d = aten.dropout.default(%x, 0.5, true) : ({X}) -> {X}"
    scale = f"%y = aten.mul.Scalar(%d, 0.5) : ({X}) -> {X}"
    program = Program.parse(method(f"%x: {X}", drops, scale, gives=X))
    assert run_rewrites(program, [HoistScaleOverLayout()]) == 0
