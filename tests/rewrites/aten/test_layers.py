"""Constants go into layers, and layers are split, where nothing else reads them."""

from typing import Any

import pytest
import torch
from eager import Function, assert_as_eager, lower
from rewrite_cases import cases
from rewrite_runs import program_of
from torch import nn

import stepwell
from stepwell.ir.rewriting.rewrite import History, run_rewrites
from stepwell.translate.lowerings.lowering import step
from stepwell.translate.rewrites.layers import (
    fold_batch_norm,
    multiply_steps_together,
    sink_view_below_linear,
)
from stepwell.translate.rewrites.layers.fold_affine_into_layer import FoldAffineIntoLayer
from stepwell.translate.rewrites.layers.fold_constant_into_layer import (
    fold_bias_into_layer,
    fold_scale_into_layer,
)
from stepwell.translate.rewrites.layers.split_linear import SplitLinear

test_layers = cases(
    step(fold_bias_into_layer), SplitLinear, FoldAffineIntoLayer, step(fold_scale_into_layer)
)("""
fold-bias-into-layer: a number becomes a bias -> aten.linear.default
    %l = aten.linear.default(%x: f32[2, 4], %w: weight f32[3, 4]); %y = aten.add.Scalar(%l, 0.25)
fold-bias-into-layer: two constants become one bias -> applied 2 times; aten.linear.default
    %l = aten.linear.default(%x: f32[2, 4], %w: weight f32[3, 4])
    %a = aten.add.Tensor(%l, %c: weight f32[1, 3]); %y = aten.add.Scalar(%a, 2.0)
fold-bias-into-layer: a residual -> unchanged
    %l = aten.linear.default(%x: f32[2, 4], %w: weight f32[3, 4])
    %y = aten.add.Tensor(%l, %r: f32[2, 3])
fold-bias-into-layer: a constant for each row -> unchanged
    %l = aten.linear.default(%x: f32[2, 4], %w: weight f32[3, 4])
    %y = aten.add.Tensor(%l, %c: weight f32[2, 1])
fold-bias-into-layer: a scaled constant -> unchanged
    %l = aten.linear.default(%x: f32[2, 4], %w: weight f32[3, 4])
    %y = aten.add.Tensor(%l, %c: weight f32[3], alpha=2)
fold-bias-into-layer: a bias known only at run time -> refused: run time
    %l = aten.linear.default(%x: f32[2, 4], %w: weight f32[3, 4], %b: f32[3])
    %y = aten.add.Scalar(%l, 0.25)
fold-bias-into-layer: a layer without output features takes no bias -> unchanged
    %l = aten.linear.default(%x: f32[4, 4], %w: weight f32[4])
    %y = aten.add.Tensor(%l, %c: weight f32[4])
fold-bias-into-layer: a layer read without the constant keeps it -> refused: used without the constant
    %l = aten.linear.default(%x: f32[2, 4], %w: weight f32[3, 4]); %a = aten.add.Scalar(%l, 0.25)
    %y = aten.mul.Tensor(%l, %a)
fold-bias-into-layer: a constant added to what is no layer -> unchanged
    %n = aten.neg.default(%x: f32[2, 4]); %y = aten.add.Scalar(%n, 0.25)
fold-bias-into-layer: a number beyond the bias -> refused: 1e+300 does not fit float32
    %l = aten.linear.default(%x: f32[2, 4], %w: weight f32[3, 4]); %y = aten.add.Scalar(%l, 1e+300)
split-linear: two halves become two projections -> aten.linear.default, aten.linear.default, aten.add.Tensor
    %l = aten.linear.default(%x: f32[2, 4], %w: weight f32[6, 4])
    %a = aten.slice.Tensor(%l, 1, 0, 3, 1); %b = aten.slice.Tensor(%l, 1, 3, 6, 1)
    %y = aten.add.Tensor(%a, %b)
split-linear: overlapping slices -> refused: overlap
    %l = aten.linear.default(%x: f32[2, 4], %w: weight f32[6, 4])
    %a = aten.slice.Tensor(%l, 1, 0, 3, 1); %b = aten.slice.Tensor(%l, 1, 2, 5, 1)
    %y = aten.add.Tensor(%a, %b)
split-linear: an output that is read whole -> refused: the whole result
    %l = aten.linear.default(%x: f32[2, 4], %w: weight f32[6, 4])
    %a = aten.slice.Tensor(%l, 1, 0, 3, 1); %s = aten.sum.dim_IntList(%l, [1], true)
    %y = aten.add.Tensor(%a, %s)
split-linear: a slice of rows -> refused: the whole result
    %l = aten.linear.default(%x: f32[2, 4], %w: weight f32[6, 4])
    %y = aten.slice.Tensor(%l, 0, 0, 1, 1)
split-linear: a slice with gaps -> refused: the whole result
    %l = aten.linear.default(%x: f32[2, 4], %w: weight f32[6, 4])
    %y = aten.slice.Tensor(%l, 1, 0, 6, 2)
split-linear: a slice of what is no layer -> unchanged
    %l = aten.cat.default([%x: f32[2, 4], %x], 1); %y = aten.slice.Tensor(%l, 1, 0, 3, 1)
split-linear: a layer of computed weights -> refused: computed at run time
    - %l = aten.linear.default(%x: f32[2, 4], %w: f32[6, 4], %b: weight "c" f32[6])
      %y = aten.slice.Tensor(%l, 1, 0, 3, 1)
    - %l = aten.linear.default(%x: f32[2, 4], %w: weight "c" f32[6, 4], %b: f32[6])
      %y = aten.slice.Tensor(%l, 1, 0, 3, 1)
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
fold-affine-into-layer: a factor that is read next to the sum stays -> aten.mul.Tensor, aten.convolution.default, aten.cat.default
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
fold-scale-into-layer: a constant after goes in -> aten.convolution.default
    - %k = aten.convolution.default(%x: f32[1, 4, 5, 5], %w: weight f32[6, 4, 1, 1], none, [1, 1], [0, 0], [1, 1], false, [0, 0], 1)
      %y = aten.mul.Tensor(%k, %d: weight f32[6, 1, 1])
    - %k = aten.convolution.default(%x: f32[1, 4, 5, 5], %w: weight f32[6, 4, 1, 1], %c: weight f32[6], [1, 1], [0, 0], [1, 1], false, [0, 0], 1)
      %y = aten.mul.Tensor(%k, %d: weight f32[6, 1, 1])
    - %k = aten.convolution.default(%x: f32[1, 4, 5, 5], %w: weight f32[6, 4, 1, 1], none, [1, 1], [0, 0], [1, 1], false, [0, 0], 1)
      %y = aten.mul.Scalar(%k, 0.5)
    - %k = aten.convolution.default(%x: f32[1, 4, 5, 5], %w: weight f32[6, 4, 1, 1], %c: weight f32[6], [1, 1], [0, 0], [1, 1], false, [0, 0], 1)
      %y = aten.mul.Scalar(%k, 0.5)
fold-bias-into-layer: a constant after goes in -> aten.convolution.default
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
    %s = aten.mul.Tensor(%k, %d: weight f32[6, 1, 1]); %y = aten.add.Tensor(%k, %s)
fold-scale-into-layer: weights known only at run time take nothing after -> refused: weight is computed
    %k = aten.convolution.default(%x: f32[1, 4, 5, 5], %w: f32[6, 4, 1, 1], %c: weight f32[6], [1, 1], [0, 0], [1, 1], false, [0, 0], 1)
    %y = aten.mul.Tensor(%k, %d: weight f32[6, 1, 1])
fold-scale-into-layer: weights known only at run time take nothing after -> refused: bias is computed
    %k = aten.convolution.default(%x: f32[1, 4, 5, 5], %w: weight f32[6, 4, 1, 1], %c: f32[6], [1, 1], [0, 0], [1, 1], false, [0, 0], 1)
    %y = aten.mul.Tensor(%k, %d: weight f32[6, 1, 1])
fold-scale-into-layer: a transposed convolution keeps what stands after -> refused: transposed
    %k = aten.convolution.default(%x: f32[1, 4, 5, 5], %w: weight f32[4, 4, 1, 1], none, [1, 1], [0, 0], [1, 1], true, [0, 0], 1)
    %y = aten.mul.Tensor(%k, %g: weight f32[4, 1, 1])
fold-bias-into-layer: other products and sums after -> unchanged
    %k = aten.convolution.default(%x: f32[1, 4, 5, 5], %w: weight f32[6, 4, 1, 1], none, [1, 1], [0, 0], [1, 1], false, [0, 0], 1)
    %y = aten.add.Tensor(%k, %d: weight f32[6, 1, 1], alpha=2)
fold-scale-into-layer: other products and sums after -> unchanged
    - %k = aten.convolution.default(%x: f32[1, 4, 5, 5], %w: weight f32[6, 4, 1, 1], none, [1, 1], [0, 0], [1, 1], false, [0, 0], 1)
      %y = aten.mul.Tensor(%k, %r: weight f32[5, 5])
    - %k = aten.convolution.default(%x: f32[1, 4, 5, 5], %w: weight f32[6, 4, 1, 1], none, [1, 1], [0, 0], [1, 1], false, [0, 0], 1)
      %y = aten.mul.Tensor(%k, %k)
fold-scale-into-layer: a constant after another op -> unchanged
    %k = aten.neg.default(%x: f32[1, 4, 5, 5]); %y = aten.mul.Scalar(%k, 3)
fold-scale-into-layer: a convolution of integers -> unchanged
    %k = aten.convolution.default(%x: i64[1, 4, 5, 5], %w: weight i64[6, 4, 1, 1], none, [1, 1], [0, 0], [1, 1], false, [0, 0], 1)
    %y = aten.mul.Scalar(%k, 3)
fold-scale-into-layer: a number that makes weights infinite -> refused: the factor is not finite
    %l = aten.convolution.default(%x: f32[1, 4, 5, 5], %w: weight f32[6, 4, 1, 1], none, [1, 1], [0, 0], [1, 1], false, [0, 0], 1)
    %y = aten.mul.Scalar(%l, inf)
fold-bias-into-layer: a number that makes weights infinite -> refused: does not fit float32
    %l = aten.convolution.default(%x: f32[1, 4, 5, 5], %w: weight f32[6, 4, 1, 1], none, [1, 1], [0, 0], [1, 1], false, [0, 0], 1)
    %y = aten.add.Scalar(%l, 1e+300)
""")


test_fold_batch_norm = cases(fold_batch_norm)("""
statistics that are inputs -> refused: computed
    %v = aten.mul.Tensor(%m: f32[4], %m)
    %y = aten.batch_norm.default(%x: f32[1, 4, 5], none, none, %m, %v, false, 0.1, 1e-05, false)
training mode -> refused: training mode
    %y = aten.batch_norm.default(%x: f32[2, 4, 5], none, none, none, none, true, 0.1, 1e-05, false)
a convolution with another reader is left alone -> aten.convolution.default, aten.mul.Tensor, aten.add.Tensor, aten.add.Tensor
    %c = aten.convolution.default(%x: f32[1, 3, 5], %w: buffer "w#positive" f32[4, 3, 1], none, [1], [0], [1], false, [0], 1)
    %n = aten.batch_norm.default(%c, none, none, %m: buffer "m#positive" f32[4], %v: buffer "v#positive" f32[4], false, 0.1, 1e-05, false)
    %y = aten.add.Tensor(%c, %n)
a grouped transposed convolution takes it in -> aten.convolution.default
    %c = aten.convolution.default(%x: f32[1, 4, 3], %w: buffer "w#positive" f32[4, 3, 2], %b: buffer "b#positive" f32[6], [2], [0], [1], true, [0], 2)
    %y = aten.batch_norm.default(%c, %g: buffer "g#positive" f32[6], none, %m: buffer "m#positive" f32[6], %v: buffer "v#positive" f32[6], false, 0.1, 1e-05, false)
a linear layer takes it in -> aten.linear.default
    %c = aten.linear.default(%x: f32[2, 3], %w: buffer "w#positive" f32[4, 3])
    %y = aten.batch_norm.default(%c, none, %b: buffer "b#positive" f32[4], %m: buffer "m#positive" f32[4], %v: buffer "v#positive" f32[4], false, 0.1, 1e-05, false)
no layer -> aten.neg.default, aten.mul.Tensor, aten.add.Tensor
    %c = aten.neg.default(%x: f32[2, 4])
    %y = aten.batch_norm.default(%c, none, none, %m: buffer "m#positive" f32[4], %v: buffer "v#positive" f32[4], false, 0.1, 1e-05, false)
a layer along another axis -> aten.linear.default, aten.mul.Tensor, aten.add.Tensor
    %c = aten.linear.default(%x: f32[2, 4, 3], %w: weight f32[4, 3])
    %y = aten.batch_norm.default(%c, none, none, %m: buffer "m#positive" f32[4], %v: buffer "v#positive" f32[4], false, 0.1, 1e-05, false)
a weight known at run time -> aten.linear.default, aten.mul.Tensor, aten.add.Tensor
    %c = aten.linear.default(%x: f32[2, 3], %u: f32[4, 3])
    %y = aten.batch_norm.default(%c, none, none, %m: buffer "m#positive" f32[4], %v: buffer "v#positive" f32[4], false, 0.1, 1e-05, false)
""")


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64], ids=str)
def test_the_models_own_kernel_stays_as_it_is(dtype: torch.dtype) -> None:
    """A kernel of doubles needs no cast to be scaled in doubles: it must not be scaled in place."""
    net = nn.Sequential(nn.Conv2d(2, 4, 3), nn.BatchNorm2d(4)).to(dtype).eval()
    for value in net.parameters():
        value.data.uniform_(1.0, 2.0)
    before = {name: value.clone() for name, value in net.state_dict().items()}
    x = torch.randn(1, 2, 6, 6, dtype=dtype)
    program = torch.export.export(net, (x,))
    wanted = net(x)
    made = stepwell.lower(program, "xnnpack")
    torch.testing.assert_close(made.run(x)[0], wanted)
    assert all(torch.equal(value, before[name]) for name, value in net.state_dict().items())


test_fold_scale_into_layer = cases(step(fold_scale_into_layer))("""
the bias is scaled too -> aten.linear.default
    %l = aten.linear.default(%x: f32[2, 4], %w: weight f32[3, 4], %b: weight f32[3])
    %y = aten.mul.Scalar(%l, 0.25)
a factor for each feature is taken in -> aten.linear.default
    %l = aten.linear.default(%x: f32[2, 4], %w: weight f32[3, 4], %b: weight f32[3])
    %y = aten.mul.Tensor(%l, %s: weight f32[3])
a factor for each row -> unchanged
    %l = aten.linear.default(%x: f32[2, 4], %w: weight f32[3, 4], %b: weight f32[3])
    %y = aten.mul.Tensor(%l, %s: weight f32[2, 1])
a product that is read unscaled -> refused: used without the factor
    %l = aten.linear.default(%x: f32[2, 4], %w: weight f32[3, 4], %b: weight f32[3])
    %s = aten.mul.Scalar(%l, 0.25); %y = aten.add.Tensor(%l, %s)
weights known only at run time -> refused: run time
    %l = aten.linear.default(%x: f32[2, 4], %w: f32[3, 4]); %y = aten.mul.Scalar(%l, 0.25)
a layer without output features keeps its weight -> unchanged
    %l = aten.linear.default(%x: f32[4, 4], %w: weight f32[4])
    %y = aten.mul.Tensor(%l, %s: weight f32[4])
a layer of integers -> unchanged
    %l = aten.linear.default(%x: i64[2, 4], %w: weight i64[3, 4]); %y = aten.mul.Scalar(%l, 3)
a factor that broadcasts the product -> unchanged
    %l = aten.linear.default(%x: f32[2, 4], %w: weight f32[3, 4], %b: weight f32[3])
    %y = aten.mul.Tensor(%l, %s: weight f32[1, 1, 3])
a factor for a value that is no layer -> unchanged
    %n = aten.neg.default(%x: f32[2, 4]); %y = aten.mul.Scalar(%n, 0.25)
a bias known only at run time -> refused: run time
    %l = aten.linear.default(%x: f32[2, 4], %w: weight f32[3, 4], %b: f32[3])
    %y = aten.mul.Scalar(%l, 0.25)
a factor that makes weights infinite -> refused: the factor is not finite
    - %l = aten.linear.default(%x: f32[2, 4], %w: weight f32[3, 4], %b: weight f32[3])
      %y = aten.mul.Scalar(%l, inf)
    - %l = aten.linear.default(%x: f32[2, 4], %w: weight f32[3, 4], %b: weight f32[3])
      %y = aten.mul.Scalar(%l, -inf)
    - %l = aten.linear.default(%x: f32[2, 4], %w: weight f32[3, 4], %b: weight f32[3])
      %y = aten.mul.Scalar(%l, 1e+300)
""")


def test_a_factor_for_each_feature_is_finite() -> None:
    program = program_of("""
        %l = aten.linear.default(%x: f32[2, 4], %w: weight f32[3, 4], %b: weight f32[3])
        %y = aten.mul.Tensor(%l, %s: weight f32[3])
    """)
    program.weights.get("s")[1] = torch.inf
    assert run_rewrites(program, (step(fold_scale_into_layer),)) == 0


test_multiply_steps_together = cases(multiply_steps_together.RULES)("""
steps of one weight are one product -> applied 2 times
    %as = aten.slice.Tensor(%x: f32[2, 3, 32], 1, 0, 1, 1)
    %a = aten.linear.default(%as, %w: weight f32[64, 32]); %bs = aten.slice.Tensor(%x, 1, 2, 3, 1)
    %b = aten.linear.default(%bs, %w); %y = aten.add.Tensor(%a, %b)
steps of two weights -> refused: no less
    %as = aten.slice.Tensor(%x: f32[2, 3, 32], 1, 0, 1, 1)
    %a = aten.linear.default(%as, %w: weight f32[64, 32]); %bs = aten.slice.Tensor(%x, 1, 2, 3, 1)
    %b = aten.linear.default(%bs, %v: weight f32[64, 32]); %y = aten.add.Tensor(%a, %b)
parts along two axes -> refused: no less
    %as = aten.slice.Tensor(%x: f32[2, 3, 32], 1, 0, 1, 1)
    %a = aten.linear.default(%as, %w: weight f32[64, 32]); %bs = aten.slice.Tensor(%x, 0, 0, 1, 1)
    %b = aten.linear.default(%bs, %w); %y = aten.add.Tensor(%a, %b)
few steps of many -> refused: no less
    %as = aten.slice.Tensor(%x: f32[2, 900, 32], 1, 0, 1, 1)
    %a = aten.linear.default(%as, %w: weight f32[64, 32]); %bs = aten.slice.Tensor(%x, 1, 2, 3, 1)
    %b = aten.linear.default(%bs, %w); %y = aten.add.Tensor(%a, %b)
parts of the features -> refused: features
    %s = aten.slice.Tensor(%x: f32[2, 6], 1, 0, 2, 1)
    %y = aten.linear.default(%s, %w: weight f32[4, 2])
a layer of one output -> refused: vector
    %as = aten.slice.Tensor(%x: f32[2, 3, 32], 1, 0, 1, 1)
    %y = aten.linear.default(%as, %w: weight f32[32])
""")


CELLS = [(nn.LSTMCell, 1), (nn.GRUCell, 2), (nn.RNNCell, 1)]
"""Cells, and the products of a state: a GRU's gates and its new state have one each."""


@pytest.mark.parametrize(("cell", "products"), CELLS)
def test_a_cell_called_by_hand_multiplies_its_inputs_at_once(cell: Any, products: int) -> None:
    def called(x: torch.Tensor, layer: nn.Module) -> torch.Tensor:
        state: Any = None
        for each in x.unbind(1):
            state = layer(each, state)
        return state[0] if isinstance(state, tuple) else state

    net, x = Function(called, cell(32, 48)).eval(), torch.randn(1, 12, 32)
    lowered = lower(net, x)
    count = str(lowered.program.text()).count("xnnpack.fully_connected")
    assert count == 1 + 11 * products  # The first state is zero.
    assert_as_eager(lowered, net, x, rtol=1e-4, atol=1e-5)


(RULE,) = sink_view_below_linear.RULES.named("sink-view-below-linear")


test_sink_view_below_linear = cases(RULE)("""
a view that changes the features -> unchanged
    %v = aten.view.default(%x: f32[3, 8], [6, 4])
    %y = aten.linear.default(%v, %w: weight f32[5, 4])
a vector that becomes a row -> unchanged
    %v = aten.view.default(%x: f32[4], [1, 4]); %y = aten.linear.default(%v, %w: weight f32[5, 4])
a view that others read -> refused: reads the view too
    %v = aten.view.default(%x: f32[2, 3, 4], [6, 4])
    %l = aten.linear.default(%v, %w: weight f32[5, 4]); %n = aten.neg.default(%v)
    %m = aten.linear.default(%n, %w); %y = aten.add.Tensor(%l, %m)
a view that is a layer s weight -> refused: reads the view too
    %v = aten.view.default(%x: f32[2, 3, 4], [6, 4])
    %l = aten.linear.default(%v, %w: weight f32[5, 4]); %o = aten.linear.default(%w, %v)
    %z = aten.permute.default(%l, [1, 0]); %y = aten.add.Tensor(%z, %o)
a layer of no view -> unchanged
    %y = aten.linear.default(%x: f32[6, 4], %w: weight f32[5, 4])
a layer without output features keeps its view -> refused: vector
    %v = aten.view.default(%x: f32[2, 3, 4], [6, 4])
    %y = aten.linear.default(%v, %w: weight f32[4])
""")


def test_rows_of_two_unknown_lengths_are_regrouped_behind_the_layer(programs: Any) -> None:
    program, _ = programs("""
        %v = aten.view.default(%x: f32[s0, s1, 4], [-1, 4])
        %y = aten.linear.default(%v, %w: weight f32[5, 4])
        """)
    x = torch.randn(2, 3, 4)
    wanted = program.run(x)
    assert run_rewrites(program, [RULE]) == 1
    torch.testing.assert_close(program.run(x), wanted)


def test_rows_cut_in_two_unknown_lengths_are_cut_before_the_layer(programs: Any) -> None:
    program, _ = programs("""
        %a = aten.sym_size.int(%z: f32[s0, s1], 0)
        %b = aten.sym_size.int(%z, 1)
        %v = aten.view.default(%x: f32[s0*s1, 4], [%a, %b, 4])
        %y = aten.linear.default(%v, %w: weight f32[5, 4])
        """)
    history = History()
    assert run_rewrites(program, [RULE], history) == 0
    assert "s0, s1 are computed" in next(iter(history.refusals.values())).reason
