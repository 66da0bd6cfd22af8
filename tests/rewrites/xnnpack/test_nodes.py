"""Ops as nodes of XNNPACK, and what its nodes do not compute."""

from typing import Any

import pytest
import torch
from rewrite_cases import cases
from rewrite_runs import program_of

from stepwell.ir.rewriting.rewrite import History, run_rewrites
from stepwell.translate.decompositions import activations_of_targets, views
from stepwell.translate.decompositions.products import unmerge_batch
from stepwell.translate.lowerings.lowering import step
from stepwell.translate.lowerings.xnnpack import images, products, reductions
from stepwell.translate.rewrites.xnnpack.floats import widen_gelu
from stepwell.translate.rewrites.xnnpack.nodes import lower_clamp, lower_elementwise
from stepwell.translate.rewrites.xnnpack.nodes.fuse_clamp import FuseClamp
from stepwell.translate.rewrites.xnnpack.nodes.lower_shape import RULES as MOVES
from stepwell.translate.rewrites.xnnpack.nodes.merge_linears import MergeLinears

test_nodes = cases(
    images,
    reductions,
    products,
    step(unmerge_batch),
    lower_clamp,
    FuseClamp,
    MergeLinears,
    widen_gelu,
    views,
    activations_of_targets,
)("""
lower-pooling: windows of one element -> refused: one element
    %y = aten.max_pool2d.default(%x: f32[2, 3, 6, 6], [1, 1], [2, 2])
lower-pooling: averages of one element -> refused: one element
    %y = aten.avg_pool2d.default(%x: f32[2, 3, 6, 6], [1, 1], [2, 2])
lower-pooling: an adaptive pool of nothing -> refused: one element
    %y = aten.adaptive_avg_pool2d.default(%x: f32[2, 3, 6, 6], [6, 6])
lower-pooling: uneven rows -> refused: windows of several sizes
    %y = aten.adaptive_avg_pool2d.default(%x: f32[2, 3, 6, 6], [4, 3])
lower-pooling: uneven columns -> refused: windows of several sizes
    %y = aten.adaptive_avg_pool2d.default(%x: f32[2, 3, 6, 6], [3, 4])
lower-pooling: another divisor -> refused: divisor_override
    %y = aten.avg_pool2d.default(%x: f32[2, 3, 6, 6], [2, 2], [2, 2], [0, 0], false, false, 3)
lower-pooling: a divisor at the edge -> refused: extend past the edge
    %y = aten.avg_pool2d.default(%x: f32[2, 3, 6, 6], [2, 2], [2, 2], [1, 1], false, false, 4)
lower-pooling: windows are nodes -> applied once
    - %y = aten.max_pool2d.default(%x: f32[2, 3, 6, 6], [2, 2])
    - %y = aten.avg_pool2d.default(%x: f32[2, 3, 6, 6], [3, 3], [2, 2], [1, 1], true)
    - %y = aten.avg_pool2d.default(%x: f32[2, 3, 6, 6], [2, 2], [2, 2], [1, 1], false, false, none)
    - %y = aten.avg_pool2d.default(%x: f32[2, 3, 6, 6], [2, 2], [2, 2], [0, 0], false, false, 4)
    - %y = aten.adaptive_avg_pool2d.default(%x: f32[2, 3, 6, 6], [3, 2])
    - %y = aten.adaptive_avg_pool2d.default(%x: f32[2, 3, 6, 6], [1, 1])
lower-pooling: an image without a batch -> refused: not a batch of images
    %y = aten.max_pool2d.default(%x: f32[3, 6, 6], [2, 2])
lower-pooling: an image of symbolic width is pooled -> applied once
    - %y = aten.mean.dim(%x: f32[2, 3, 6, s0], [2, 3], true)
    - %y = aten.adaptive_avg_pool2d.default(%x: f32[2, 3, 6, s0], [1, 1])
    - %y = aten.max_pool2d.default(%x: f32[2, 3, 6, s0], [3, 3], [1, 1], [1, 1])
    - %y = aten.avg_pool2d.default(%x: f32[2, 3, 6, s0], [3, 3], [1, 1], [1, 1])
    - %y = aten.upsample_bilinear2d.vec(%x: f32[2, 3, 6, s0], [4, 5], false, none) -> f32[2, 3, 4, 5]
lower-pooling: windows that follow from a symbolic size -> refused: symbolic size
    %y = aten.adaptive_avg_pool2d.default(%x: f32[2, 3, 6, s0], [3, 2])
lower-pooling: windows that follow from a symbolic size -> refused: in the padding
    - %y = aten.max_pool2d.default(%x: f32[2, 3, 6, s0], [3, 3], [3, 3], [1, 1], [1, 1], true)
    - %y = aten.avg_pool2d.default(%x: f32[2, 3, 6, s0], [3, 3], [3, 3], [1, 1], true)
lower-pooling: windows that follow from a symbolic height -> refused: so have its windows
    %y = aten.adaptive_avg_pool2d.default(%x: f32[2, 3, s0, 6], [3, 2])
lower-pooling: a resize to a symbolic size -> refused: resizes to a constant
    %y = aten.upsample_bilinear2d.vec(%x: f32[2, 3, 6, s0], none, false, [1.0, 1.0]) -> f32[2, 3, 6, s0]
lower-pooling: a mean over other axes than planes is no pooling -> unchanged
    - %y = aten.mean.dim(%x: f32[2, 3, 6, 6], [1, 3], true)
    - %y = aten.mean.dim(%x: f32[2, 3, 6, 6], [2], true)
    - %y = aten.mean.dim(%x: f32[2, 3, 6, 6], none)
lower-reduction: a mean over other axes than planes is no pooling -> applied once
    - %y = aten.mean.dim(%x: f32[2, 3, 6, 6], [1, 3], true)
    - %y = aten.mean.dim(%x: f32[2, 3, 6, 6], [2], true)
    - %y = aten.mean.dim(%x: f32[2, 3, 6, 6], none)
lower-reduction: a mean of one number is the number -> applied once
    - %y = aten.mean.dim(%x: f32[], [0])
    - %y = aten.mean.dim(%x: f32[], none)
lower-reduction: a mean over static axes of a symbolic tensor is taken -> applied once
    %y = aten.mean.dim(%x: f32[s0, 3, 6], [1])
lower-reduction: axes of symbolic size that no pool averages -> refused: not the planes
    %y = aten.mean.dim(%x: f32[s0, s1, 6], [0, 1])
lower-reduction: axes of symbolic size that no pool averages -> refused: not known
    %y = aten.mean.dim(%x: f32[?, 6], [0]) -> f32[6]
lower-reduction: one axis of symbolic size is pooled -> aten.view.default, xnnpack.global_average_pooling_2d, aten.sym_size.int, aten.full.default, aten.mul.Tensor, aten.view.default, aten.view.default
    %y = aten.sum.dim_IntList(%x: f32[s0, 3, 6], [0])
lower-reduction: one axis of symbolic size is pooled -> aten.sym_size.int, aten.view.default, xnnpack.global_average_pooling_2d, aten.view.default, aten.view.default
    %y = aten.mean.dim(%x: f32[s0, s1, 6], [1])
lower-reduction: a mean over the last axis of a symbolic tensor is a layer -> aten.linear.default
    %y = aten.mean.dim(%x: f32[s0, 3, 6], [-1], true)
lower-linear: a weight of one output without an axis -> refused: the weight is a vector
    %y = aten.linear.default(%x: f32[2, 4], %w: weight f32[4])
lower-linear: a bias computed at run time -> refused: the bias is computed
    %y = aten.linear.default(%x: f32[2, 4], %w: weight f32[3, 4], %b: f32[3])
lower-linear: a weight of symbolic size -> refused: dimension s0 is symbolic
    %y = aten.linear.default(%x: f32[2, 4], %w: f32[s0, 4])
lower-linear: a linear layer of constants is a node -> xnnpack.fully_connected
    - %y = aten.linear.default(%x: f32[2, 4], %w: weight f32[3, 4])
    - %y = aten.linear.default(%x: f32[2, 4], %w: weight f32[3, 4], %b: weight f32[3])
lower-matmul: a product with a vector -> refused: an operand is a vector
    %y = aten.matmul.default(%x: f32[2, 4], %z: f32[4])
lower-matmul: a symbolic product of other ranks -> refused: the operand of fewer axes has a symbolic size
    %y = aten.matmul.default(%x: f32[5, 2, 4], %z: f32[4, s0])
lower-matmul: a matrix times a stack of dynamic batch is a node -> aten.view.default, xnnpack.batch_matrix_multiply
    %y = aten.matmul.default(%z: f32[3, 4], %x: f32[s0, 4, 2])
lower-matmul: a product of other ranks is a node -> aten.view.default, xnnpack.batch_matrix_multiply
    %y = aten.matmul.default(%x: f32[5, 2, 4], %z: f32[4, 3])
unmerge-batch: a product of stacks that no view merged -> unchanged
    %y = aten.bmm.default(%a: f32[6, 4, 4], %z: f32[6, 4, 4])
unmerge-batch: a product with one merged stack -> refused: the other operand and the result are not
    %a = aten.view.default(%x: f32[2, 3, 4, 4], [6, 4, 4])
    %y = aten.bmm.default(%a, %z: f32[6, 4, 4])
unmerge-batch: stacks merged from other batches give the same product -> applied once
    %a = aten.view.default(%x: f32[2, 3, 4, 4], [6, 4, 4])
    %z = aten.view.default(%o: f32[3, 2, 4, 4], [6, 4, 4]); %y = aten.bmm.default(%a, %z)
unmerge-batch: keys that heads share are not merged where views stand around -> aten.view.default, aten.view.default, aten.matmul.default, aten.view.default, aten.view.default
    %l = aten.view.default(%a: f32[1, 6, 4, 8], [2, 12, 8])
    %r = aten.view.default(%b: f32[1, 2, 8, 5], [2, 8, 5]); %p = aten.bmm.default(%l, %r)
    %y = aten.view.default(%p, [1, 6, 4, 5])
unmerge-batch: keys are merged where a reader would need another view -> refused: not
    %l = aten.view.default(%a: f32[1, 6, 4, 8], [2, 12, 8])
    %r = aten.view.default(%b: f32[1, 2, 8, 5], [2, 8, 5]); %p = aten.bmm.default(%l, %r)
    %y = aten.relu.default(%p)
lower-clamp: 2.0, 1.0 -> refused: is not below
    %y = aten.clamp.default(%x: f32[2, 4], 2.0, 1.0)
lower-clamp: 1.0, 1.0 -> refused: is not below
    %y = aten.clamp.default(%x: f32[2, 4], 1.0, 1.0)
lower-clamp: 1.0, 1.00000000001 -> refused: is not below
    %y = aten.clamp.default(%x: f32[2, 4], 1.0, 1.00000000001)
lower-clamp: a bound that is no number -> refused: nan is not below
    %y = aten.clamp.default(%x: f32[2, 4], nan)
lower-clamp: 0.25, none -> xnnpack.clamp
    %y = aten.clamp.default(%x: f32[2, 4], 0.25, none)
lower-clamp: none, 0.25 -> xnnpack.clamp
    %y = aten.clamp.default(%x: f32[2, 4], none, 0.25)
lower-clamp: -0.5, 0.5 -> xnnpack.clamp
    %y = aten.clamp.default(%x: f32[2, 4], -0.5, 0.5)
fuse-clamp: a clamp becomes the range of the node before it -> xnnpack.add
    %a = xnnpack.add(%x: f32[2, 4], %x); %y = xnnpack.clamp(%a, output_max=0.5)
fuse-clamp: a clamp of an argument -> unchanged
    %y = xnnpack.clamp(%x: f32[2, 4], output_max=0.5)
fuse-clamp: a clamp after a node without a range -> unchanged
    %a = xnnpack.abs(%x: f32[2, 4]); %y = xnnpack.clamp(%a, output_max=0.5)
fuse-clamp: a range is not written over -> refused: clamps its output already
    %a = xnnpack.add(%x: f32[2, 4], %x, output_max=-0.5); %y = xnnpack.clamp(%a, output_max=0.5)
fuse-clamp: what is read without the clamp too keeps its values -> refused: without the clamp
    %a = xnnpack.add(%x: f32[2, 4], %x); %c = xnnpack.clamp(%a, output_max=0.5)
    %y = xnnpack.subtract(%a, %c)
fuse-clamp: a clamp that changes the scale -> refused: also changes the type
    %a = xnnpack.add(%x: i8<0.125>[2, 4], %x)
    %y = xnnpack.clamp(%a, output_max=0.5) -> i8<0.5>[2, 4]
merge-linears: a narrow layer that saves products stays -> applied once
    - %h = aten.linear.default(%x: f32[2, 4], %a: weight f32[8, 4])
      %y = aten.linear.default(%h, %b: weight f32[6, 8])
    - %h = aten.linear.default(%x: f32[2, 4], %a: weight f32[3, 4])
      %y = aten.linear.default(%h, %b: weight f32[6, 3])
merge-linears: a narrow layer that saves products stays -> applied 0 times
    %h = aten.linear.default(%x: f32[2, 4], %a: weight f32[2, 4])
    %y = aten.linear.default(%h, %b: weight f32[6, 2])
merge-linears: halves are not merged -> refused: fewer than 24 bits
    %h = aten.linear.default(%x: f16[2, 4], %a: weight f16[8, 4])
    %y = aten.linear.default(%h, %b: weight f16[6, 8])
merge-linears: a layer that others read -> refused: read by others
    %h = aten.linear.default(%x: f32[2, 4], %a: weight f32[8, 4])
    %y = aten.linear.default(%h, %b: weight f32[6, 8]); %s = aten.relu.default(%h); return %y, %s
merge-linears: weights computed at run time -> refused: computed at run time
    %h = aten.linear.default(%x: f32[2, 4], %a: weight f32[8, 4])
    %y = aten.linear.default(%h, %b: f32[6, 8])
merge-linears: a computed bias -> refused: computed at run time
    - %h = aten.linear.default(%x: f32[2, 4], %a: weight f32[8, 4], %c: f32[8])
      %y = aten.linear.default(%h, %b: weight f32[6, 8])
    - %h = aten.linear.default(%x: f32[2, 4], %a: weight f32[8, 4])
      %y = aten.linear.default(%h, %b: weight f32[6, 8], %c: f32[6])
merge-linears: a layer of what no layer made -> unchanged
    %y = aten.linear.default(%x: f32[2, 4], %a: weight f32[8, 4])
merge-linears: a weight without an axis of outputs -> refused: a weight is a vector
    - %h = aten.linear.default(%x: f32[2, 4], %a: weight f32[8, 4]); %y = aten.linear.default(%h, %b: weight f32[8])
    - %h = aten.linear.default(%x: f32[2, 4], %a: weight f32[4]); %y = aten.linear.default(%h, %b: weight f32[3, 2])
widen-gelu: halves are widened and rounded once -> xnnpack.convert, xnnpack.gelu, xnnpack.convert
    - %y = xnnpack.gelu(%x: f16[3, 5])
    - %y = xnnpack.gelu(%x: f16[2, 3, 4, 5])
    - %y = xnnpack.gelu(%x: f16[7])
widen-gelu: sizes may be symbolic -> applied once
    %y = xnnpack.gelu(%x: f16[n, 4])
widen-gelu: single precision -> unchanged
    %y = xnnpack.gelu(%x: f32[3, 5])
prelu-channels-last: slopes that are on the last axis or everywhere need nothing -> applied 0 times
    - %y = aten.prelu.default(%x: f32[2, 4], %w: weight f32[4])
    - %y = aten.prelu.default(%x: f32[2, 4, 3], %w: weight f32[1])
    - %y = aten.prelu.default(%x: f32[2, 4, 3], %w: weight f32[])
prelu-channels-last: slopes computed at run time -> refused: computed at run time
    %y = aten.prelu.default(%x: f32[2, 4, 3], %w: f32[4])
prelu-channels-last: doubles -> refused: float32 or float16
    %y = aten.prelu.default(%x: f64[2, 4, 3], %w: weight f64[4])
""")


(RULE,) = lower_elementwise.RULES.named("lower-softmax")


test_lower_shape = cases(MOVES, reductions, RULE)("""
lower-slice: a slice with a step -> refused: step 1
    %y = aten.slice.Tensor(%x: f32[4, 6], 1, 0, 6, 2)
lower-pad: a pad that crops -> refused: write it as a slice
    %y = aten.constant_pad_nd.default(%x: f32[4, 6], [-1, 0])
lower-expand: a broadcast of two symbolic sizes to a third axis -> refused: adds an axis next to two of symbolic sizes
    %y = aten.expand.default(%x: f32[s0, s1], [3, -1, -1])
lower-view-of-open-sizes: a view of two symbolic sizes parts no axis -> refused: XNNPACK infers one
    %n = aten.sym_size.int(%x: f32[s0, 4, s1], 2); %y = aten.view.default(%x, [-1, 2, 2, %n])
lower-cat: six parts of a symbolic size -> refused: more than five tensors
    %y = aten.cat.default([%x: f32[s0, 6], %x, %x, %x, %x, %x])
lower-cat: five parts or known sizes are joined -> xnnpack.concatenate5
    %y = aten.cat.default([%x: f32[s0, 6], %x, %x, %x, %x])
lower-cat: five parts or known sizes are joined -> xnnpack.concatenate5, xnnpack.concatenate2
    %y = aten.cat.default([%x: f32[2, 6], %x, %x, %x, %x, %x])
lower-permute: constants are moved at compile time and by no node -> refused: one that is computed
    %c = aten.permute.default(%w: weight f32[4, 6], [1, 0]); %y = aten.erf.default(%c)
lower-softmax: a softmax of one number -> refused: a scalar, which has no axis
    %y = aten._softmax.default(%x: f32[], 0, false)
""")


ALL = {rule.name: rule() for rule in lower_elementwise.RULES}


test_lower_elementwise = cases(lower_elementwise.RULES)("""
lower-gelu: gelu by tanh -> refused: the exact one
    %y = aten.gelu.default(%x: f32[2, 4], approximate="tanh")
lower-elu: elu with a scale -> refused: scales neither
    %y = aten.elu.default(%x: f32[2, 4], 1, 2.0)
lower-elu: elu with an input scale -> refused: scales neither
    %y = aten.elu.default(%x: f32[2, 4], 1, 1, 2.0)
lower-elu: elu that falls -> refused: XNNPACK's is positive
    %y = aten.elu.default(%x: f32[2, 4], -0.5)
lower-elu: elu that is a relu -> refused: XNNPACK's is positive
    %y = aten.elu.default(%x: f32[2, 4], 0)
plain forms are nodes -> applied once
    - %y = aten.gelu.default(%x: f32[2, 4])
    - %y = aten.elu.default(%x: f32[2, 4], 0.5)
lower-sum: sizes that only the model knows to be the same are not broadcast -> refused: do not broadcast: s0 against s1
    %y = aten.add.Tensor(%x: f32[s0, 4], %z: f32[s1, 4]) -> f32[s0, 4]
lower-sum: a sum times alpha -> refused: alpha is 2
    %y = aten.add.Tensor(%x: f32[2, 4], %z: f32[2, 4], alpha=2)
lower-unary: what is computed of constants is folded and no node -> refused: one that is computed
    %c = aten.abs.default(%w: weight f32[2, 4]); %y = aten.erf.default(%c)
""")


@pytest.mark.parametrize("name", ["elu", "leaky_relu"])
def test_a_slope_that_torch_refuses_is_refused(name: str):
    program, history = program_of(f"%y = aten.{name}.default(%x: f32[2, 4], 1.0e300)"), History()
    assert run_rewrites(program, tuple(ALL.values()), history) == 0
    (refusal,) = history.refusals.values()
    assert refusal.reason == "1e+300 does not fit float32"


test_slopes_stand_on_the_last_axis_or_are_one = cases(ALL["lower-prelu"])("""
slopes on the last axis, or one -> xnnpack.prelu
    - %y = aten.prelu.default(%x: f32[2, 4], %w: weight f32[4])
    - %y = aten.prelu.default(%x: f32[2, 4], %w: weight f32[1])
    - %y = aten.prelu.default(%x: f32[2, 3, 3, 3], %w: weight f32[1])
slopes on channels -> refused: not the last
    %y = aten.prelu.default(%x: f32[2, 3, 3, 3], %w: weight f32[3])
""")


test_reductions = cases(reductions)("""
lower-greatest: an axis of one needs no pooling -> applied once; omits pooling
    %y = aten.amax.default(%x: f32[1, 4], [0])
lower-greatest: rows are folded or stood upright -> aten.view.default, xnnpack.max_pooling_2d, aten.view.default, xnnpack.max_pooling_2d, aten.view.default
    - %y = aten.amax.default(%x: f32[2, 48], [1])
    - %y = aten.amax.default(%x: f32[12], [0])
lower-greatest: rows are folded or stood upright -> aten.permute.default, aten.view.default, xnnpack.max_pooling_2d, aten.view.default
    %y = aten.amax.default(%x: f32[3, 7, 11], [2])
lower-greatest: rows are folded or stood upright -> aten.view.default, aten.permute.default, aten.view.default, xnnpack.max_pooling_2d, aten.view.default
    %y = aten.amax.default(%x: f32[5, 8], [1])
lower-greatest: rows are folded or stood upright -> aten.view.default, xnnpack.max_pooling_2d, aten.view.default
    %y = aten.amax.default(%x: f32[3, 11], [1])
lower-greatest: 2x4-i32-float32 or float16 -> refused: float32 or float16
    %y = aten.amax.default(%x: i32[2, 4], [0])
lower-greatest: what no pooling takes -> refused: no upper bound
    %y = aten.amax.default(%x: f32[n, 4], [0])
""")


@pytest.mark.parametrize("size", [(8, 10), (4, 10), (12, 5), (28, 15), (4, 5)])
def test_whole_factors_repeat_pixels_bit_for_bit(size: tuple[int, int], apply: Any):
    line = f"%y = aten.upsample_nearest2d.default(%x: f32[2, 3, 4, 5], {list(size)})"
    done = apply(line, step(images.nearest_resize))
    assert done.count == 1
    x = torch.randn(2, 3, 4, 5)
    wanted = torch.nn.functional.interpolate(x, size=size, mode="nearest")
    assert torch.equal(done.program.run(x)[0], wanted)


test_lower_nearest_resize = cases(images)("""
lower-nearest-resize: another ratio -> refused: is not an integer factor
    - %y = aten.upsample_nearest2d.default(%x: f32[2, 3, 4, 5], [6, 5])
    - %y = aten.upsample_nearest2d.default(%x: f32[2, 3, 4, 5], [4, 12])
lower-nearest-resize: a stated scale that is not the ratio -> refused: rounds
    %y = aten.upsample_nearest2d.default(%x: f32[2, 3, 4, 5], [12, 10], 3.6, 2.0)
lower-nearest-resize: an image of symbolic size is enlarged by powers of two -> refused: rounds
    %y = aten.upsample_nearest2d.default(%x: f32[s0, 3, 4, 5], [12, 15])
lower-nearest-resize: integers -> refused: uint8
    %y = aten.upsample_nearest2d.default(%x: ui8[2, 3, 4, 5], [8, 10])
""")


def test_torch_itself_says_whether_pixels_repeat_evenly():
    assert images.repeats_evenly(4, 8, None)
    assert not images.repeats_evenly(4, 12, 3.6)
