"""CenterResidualStream: what it takes the mean out of, what it computes then, and near misses."""

from typing import Any

import torch
from eager import lower
from rewrite_cases import cases
from torch import nn

from stepwell.translate.rewrites.norms.center_residual_stream import CenterResidualStream, centered

test_center_residual_stream = cases(CenterResidualStream)("""
the documented before becomes the documented after -> aten.linear.default, aten.mul.Tensor, aten.linear.default, aten.rsqrt.default, aten.mul.Tensor
    %s = aten.linear.default(%x: f32[2, 3], %w: weight f32[4, 3])
    %y = aten.layer_norm.default(%s, [4], none, none, 1e-06)
scale shift and bias are kept -> aten.linear.default, aten.mul.Tensor, aten.linear.default, aten.rsqrt.default, aten.mul.Tensor, aten.mul.Tensor, aten.add.Tensor
    %s = aten.linear.default(%x: f32[2, 5, 3], %w: weight f32[4, 3], %b: weight f32[4])
    %y = aten.layer_norm.default(%s, [4], %g: weight f32[4], %b2: weight f32[4], 1e-05)
a stream of two writers and two norms loses both means -> applied 2 times; aten.linear.default, aten.mul.Tensor, aten.linear.default, aten.rsqrt.default, aten.mul.Tensor, aten.linear.default, aten.add.Tensor, aten.mul.Tensor, aten.linear.default, aten.rsqrt.default, aten.mul.Tensor
    %s = aten.linear.default(%x: f32[2, 5, 3], %w: weight f32[4, 3], %b: weight f32[4])
    %n = aten.layer_norm.default(%s, [4], none, none, 1e-05)
    %m = aten.linear.default(%n, %w2: weight f32[4, 4]); %t = aten.add.Tensor(%s, %m)
    %y = aten.layer_norm.default(%t, [4], none, none, 1e-05)
rows of an embedding table are centered -> applied once
    %s = aten.embedding.default(%w: weight f32[7, 4], %x: i64[2, 5])
    %y = aten.layer_norm.default(%s, [4], none, none, 1e-05)
a stream of one channel or a whole slice is centered -> applied once
    - %l = aten.linear.default(%x: f32[2, 5, 3], %k: weight f32[1, 3])
      %v = aten.view.default(%l, [2, 1, 5, 1]); %w = aten.view.default(%v, [2, 5, 1])
      %s = aten.slice.Tensor(%w, 2, 0, 1); %y = aten.layer_norm.default(%s, [1], none, none, 1e-05)
    - %l = aten.linear.default(%x: f32[2, 5, 3], %k: weight f32[4, 3])
      %v = aten.view.default(%l, [2, 1, 5, 4]); %w = aten.view.default(%v, [2, 5, 4])
      %s = aten.slice.Tensor(%w, 2, 0, 4); %y = aten.layer_norm.default(%s, [4], none, none, 1e-05)
a reader that is no layer norm -> refused: reads the stream and is no layer norm
    %s = aten.linear.default(%x: f32[2, 5, 3], %w: weight f32[4, 3], %b: weight f32[4])
    %r = aten.relu.default(%s); %n = aten.layer_norm.default(%s, [4], none, none, 1e-05)
    %y = aten.add.Tensor(%r, %n)
a writer that is no layer -> refused: no weight contains its mean
    %l = aten.linear.default(%x: f32[2, 5, 3], %w: weight f32[4, 3], %b: weight f32[4])
    %s = aten.relu.default(%l); %y = aten.layer_norm.default(%s, [4], none, none, 1e-05)
a norm over other axes -> refused: normalizes other axes
    %s = aten.linear.default(%x: f32[2, 5, 3], %w: weight f32[4, 3], %b: weight f32[4])
    %y = aten.layer_norm.default(%s, [5, 4], none, none, 1e-05)
an argument -> refused: an argument writes
    %l = aten.linear.default(%x: f32[2, 5, 3], %w: weight f32[4, 3], %b: weight f32[4])
    %o = aten.expand.default(%e: f32[1, 5, 4], [2, 5, 4]); %s = aten.add.Tensor(%l, %o)
    %y = aten.layer_norm.default(%s, [4], none, none, 1e-05)
one number added to all channels -> refused: not whole rows
    %l = aten.linear.default(%x: f32[2, 5, 3], %w: weight f32[4, 3], %b: weight f32[4])
    %s = aten.add.Tensor(%l, %o: weight f32[1])
    %y = aten.layer_norm.default(%s, [4], none, none, 1e-05)
parts of rows joined -> refused: not whole rows
    %l = aten.linear.default(%x: f32[2, 5, 3], %v: weight f32[2, 3])
    %s = aten.cat.default([%l, %l], 2); %y = aten.layer_norm.default(%s, [4], none, none, 1e-05)
channels split by a view -> refused: splits the channel axis
    %s = aten.linear.default(%x: f32[2, 5, 3], %w: weight f32[4, 3], %b: weight f32[4])
    %h = aten.view.default(%s, [2, 10, 2]); %i = aten.view.default(%h, [2, 5, 4])
    %n = aten.layer_norm.default(%s, [4], none, none, 1e-05); %y = aten.add.Tensor(%i, %n)
a linear along another axis of the same size -> refused: is linear along another axis
    %t = aten.permute.default(%x: f32[2, 5, 3], [0, 2, 1])
    %l = aten.linear.default(%t, %q: weight f32[3, 5]); %s = aten.permute.default(%l, [0, 2, 1])
    %n = aten.layer_norm.default(%s, [3], none, none, 1e-05)
    %m = aten.linear.default(%n, %w: weight f32[4, 3])
    %y = aten.cat.default([%m, %z: weight f32[2, 2, 4]], 1)
a weight that something else reads -> refused: kept twice
    %s = aten.linear.default(%x: f32[2, 5, 3], %w: weight f32[4, 3], %b: weight f32[4])
    %n = aten.layer_norm.default(%s, [4], none, none, 1e-05); %l = aten.linear.default(%x, %w)
    %r = aten.relu.default(%l); %y = aten.add.Tensor(%r, %n)
a stream is not centered by -> refused: rounded to f16
    %s = aten.linear.default(%x: f16[2, 5, 4], %k: weight f16[4, 4])
    %y = aten.layer_norm.default(%s, [4], none, none, 1e-05)
a computed weight -> refused: computed at run time
    %s = aten.linear.default(%x: f32[2, 5, 3], %k: f32[4, 3])
    %y = aten.layer_norm.default(%s, [4], none, none, 1e-05)
a computed table -> refused: reads a computed table
    %s = aten.embedding.default(%k: f32[7, 4], %x: i64[2, 5])
    %y = aten.layer_norm.default(%s, [4], none, none, 1e-05)
a table read across -> refused: embeds along another axis
    %e = aten.embedding.default(%k: weight f32[7, 4], %x: i64[2, 4])
    %s = aten.permute.default(%e, [0, 2, 1])
    %y = aten.layer_norm.default(%s, [4], none, none, 1e-05)
a transposed convolution -> refused: is a transposed convolution
    %a = aten.convolution.default(%x: f32[2, 3, 2, 2], %k: weight f32[3, 4, 2, 2], none, [2, 2], [0, 0], [1, 1], true, [0, 0], 1)
    %s = aten.permute.default(%a, [0, 2, 3, 1])
    %y = aten.layer_norm.default(%s, [4], none, none, 1e-05)
a convolution whose columns are normalized -> refused: writes other channels
    %s = aten.convolution.default(%x: f32[2, 4, 4, 4], %k: weight f32[4, 4, 1, 1], none, [1, 1], [0, 0], [1, 1], false, [0, 0], 1)
    %y = aten.layer_norm.default(%s, [4], none, none, 1e-05)
a constant and its transpose -> refused: two different channel axes
    %t = aten.permute.default(%k: weight f32[2, 4, 4], [0, 2, 1]); %s = aten.add.Tensor(%k, %t)
    %y = aten.layer_norm.default(%s, [4], none, none, 1e-05)
a stream that is returned -> refused: func.return reads the stream
    %s = aten.linear.default(%x: f32[2, 5, 3], %w: weight f32[4, 3], %b: weight f32[4])
    %y = aten.layer_norm.default(%s, [4], none, none, 1e-05); return %y, %s
a depthwise convolution keeps its weights -> refused: works in groups
    %a = aten.convolution.default(%x: f32[2, 4, 3, 3], %w: weight f32[4, 1, 1, 1], none, [1, 1], [0, 0], [1, 1], false, [0, 0], 4)
    %s = aten.permute.default(%a, [0, 2, 3, 1])
    %y = aten.layer_norm.default(%s, [4], none, none, 1e-05)
a head tied to the embedding keeps its own weight -> applied once; writes %t = stepwell.weight <"t">; writes t#centered
    # The norm's scale goes into it, so that it is another tensor anyway.
    %s = aten.embedding.default(%t: weight f32[7, 4], %i: i64[2, 5])
    %n = aten.layer_norm.default(%s, [4], %g: weight f32[4], none, 1e-05)
    %y = aten.linear.default(%n, %t)
after a norm without a scale -> refused: kept twice
    %s = aten.embedding.default(%t: weight f32[7, 4], %i: i64[2, 5])
    %n = aten.layer_norm.default(%s, [4], none, none, 1e-05); %y = aten.linear.default(%n, %t)
whose norm something else reads too -> refused: kept twice
    %s = aten.embedding.default(%t: weight f32[7, 4], %i: i64[2, 5])
    %n = aten.layer_norm.default(%s, [4], %g: weight f32[4], none, 1e-05)
    %r = aten.relu.default(%n); %l = aten.linear.default(%n, %t)
    %m = aten.amax.default(%r, [2], true); %y = aten.add.Tensor(%l, %m)
after another norm -> refused: kept twice
    %s = aten.embedding.default(%t: weight f32[7, 4], %i: i64[2, 5])
    %n = aten.layer_norm.default(%s, [4], none, none, 1e-05); %r = aten.relu.default(%n)
    %o = aten.layer_norm.default(%r, [4], %g: weight f32[4], none, 1e-05)
    %y = aten.linear.default(%o, %t)
""")


def test_the_mean_of_a_derived_weight_is_zero():
    weight = 3 + torch.randn(64, 7)
    assert centered(weight, axis=0).double().mean(0).abs().max() < 1e-7


def test_patches_a_class_token_and_positions_are_centered(apply: Any):
    text = """
        %a = aten.convolution.default(%x: f32[2, 3, 4, 4], %w: weight f32[4, 3, 2, 2], none, [2, 2], [0, 0], [1, 1], false, [0, 0], 1)
        %f = aten.view.default(%a, [2, 4, 4]); %t = aten.permute.default(%f, [0, 2, 1])
        %e = aten.expand.default(%c: weight f32[1, 1, 4], [2, 1, 4])
        %k = aten.cat.default([%e, %t], 1); %s = aten.add.Tensor(%k, %p: weight f32[1, 5, 4])
        %y = aten.layer_norm.default(%s, [4], eps=1.0e-5)
    """
    done = apply(text, CenterResidualStream())
    assert done.count == 1
    assert sum("#centered" in line for line in done.text.splitlines()) == 3


def test_a_row_of_large_mean_is_normalized_better_than_in_f32():
    """The mean that f32 would have to subtract at run time is gone before the sums."""
    torch.manual_seed(0)
    module, x = nn.Sequential(nn.Linear(16, 64), nn.LayerNorm(64)).eval(), torch.randn(3, 16)
    nn.init.constant_(module[0].bias, 1000.0)  # type: ignore[arg-type]
    (ours,) = lower(module, x).run(x)
    exact = module.double()(x.double())
    assert (ours - exact).abs().max() < 1e-5
