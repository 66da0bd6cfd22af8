"""What is known only at run time: rewrites that need a number leave the op alone, and say so."""

from rewrite_cases import cases

from stepwell.translate.canonicalize import neutral_arithmetic, norms, powers
from stepwell.translate.decompositions import activations, products, slices, statistics, sums, views
from stepwell.translate.rewrites.slices import pads

test_a_number_that_is_not_written_down = cases(
    activations, neutral_arithmetic, norms, powers, sums, slices, views, pads
)("""
normalize-selection: a row that is a size -> refused: index
    %y = aten.select.int(%x: f32[9, 3], 0, %n: int<2>)
normalize-slice: bounds that are sizes -> refused: bounds
    - %y = aten.narrow.default(%x: f32[9, 3], 0, %n: int<2>, 2)
    - %y = aten.narrow.default(%x: f32[9, 3], 0, 0, %n: int<2>)
pads: a padding or a value that is a size -> refused: padding
    - %y = aten.pad.default(%x: f32[9, 3], [0, %n: int<2>])
    - %y = aten.pad.default(%x: f32[9, 3], [0, 1], value=%n: int<2>)
pad-to-slices: a padding that is a size -> refused: padding
    %y = aten.reflection_pad1d.default(%x: f32[9, 3], [0, %n: int<2>])
power-to-square: an exponent that is a size -> unchanged
    %y = aten.pow.Tensor_Scalar(%x: f32[9, 3], %n: int<2>)
remove-neutral-sum: a factor that is a size -> refused: alpha
    %y = aten.add.Scalar(%x: f32[9, 3], 0, %n: int<2>)
repeat-to-expand: counts that are sizes -> refused: count
    - %y = aten.repeat.default(%x: f32[9, 3], [1, %n: int<2>])
    - %y = aten.repeat_interleave.self_int(%x: f32[9, 3], %n: int<2>, 1)
roll-to-cat: a shift that is a size -> refused: shift
    %y = aten.roll.default(%x: f32[9, 3], [%n: int<2>], [1])
softshrink-to-clamp: a bound that is a size -> refused: lambd
    %y = aten.softshrink.default(%x: f32[9, 3], %n: int<2>)
split-alpha-of-add: a factor that is a size -> refused: alpha
    %y = aten.add.Tensor(%x: f32[9, 3], %x, alpha=%n: int<2>)
split-elu-scale: a factor that is a size -> refused: alpha
    %y = aten.elu.default(%x: f32[9, 3], %n: int<2>)
strided-slice-to-view: a step that is a size -> refused: step
    %y = aten.slice.Tensor(%x: f32[9, 3], 0, 1, 9, %n: int<2>)
strided-slice-to-view: bounds that are sizes -> refused: bound
    - %y = aten.slice.Tensor(%x: f32[9, 3], 0, %n: int<2>, 9, 2)
    - %y = aten.slice.Tensor(%x: f32[9, 3], 0, 0, %n: int<2>, 2)
""")


test_what_is_known_at_run_time = cases(slices, norms, views, statistics, products)("""
normalize-slice: an axis of unknown length -> refused: size s0
    %y = aten.narrow.default(%x: f32[s0, 3], 0, -2, 2)
instance-norm-to-group-norm: an axis of unknown length -> refused: channels
    %y = aten.instance_norm.default(%x: f32[2, s0, 4], none, none, none, none, true, 0.1, 1e-05, false)
pixel-shuffle-to-permute: an axis of unknown length -> refused: symbolic
    %y = aten.channel_shuffle.default(%x: f32[2, 4, s0, 3], 2)
roll-to-cat: an axis of unknown length -> refused: symbolic
    %y = aten.roll.default(%x: f32[s0, 3], [1], [0])
variance-to-means: an axis of unknown length -> refused: symbolic
    %y = aten.var.correction(%x: f32[2, s0, 3], [1, 2], correction=1)
normalize-expand: an axis of unknown length -> unchanged
    %y = aten.expand_copy.default(%x: f32[s0, 3], [-1, 3]) -> f32[s0, 3]
normalize-expand: the dynamic size of an empty tensor cannot be left to a view -> refused: a size written as -1
    %y = aten.broadcast_to.default(%x: f32[s0, 0], [2, 5, 0]) -> f32[2, 5, 0]
normalize-reduction: the dynamic size of an empty tensor cannot be left to a view -> refused: a size written as -1
    %y = aten.sum.dim_IntList(%x: f32[2, 0, s0], [0])
normalize-selection: the dynamic size of an empty tensor cannot be left to a view -> refused: a size written as -1
    %y = aten.select.int(%x: f32[2, 0, s0], 0, 1)
reshape-to-view: the dynamic size of an empty tensor cannot be left to a view -> refused: a size written as -1
    %y = aten.unsqueeze.default(%x: f32[2, 0, s0], 0)
split-to-slices: the dynamic size of an empty tensor cannot be left to a view -> refused: a size written as -1
    %y = aten.unbind.int(%x: f32[1, 0, s0])
stack-to-cat: the dynamic size of an empty tensor cannot be left to a view -> refused: a size written as -1
    %y = aten.stack.default([%x: f32[0, s0], %x])
variance-to-means: the dynamic size of an empty tensor cannot be left to a view -> refused: a size written as -1
    %y = aten.var.correction(%x: f32[2, 0, s0], [0], correction=0)
split-to-slices: parts of unknown length are cut at run time -> aten.slice.Tensor
    %y, %a = aten.split_with_sizes.default(%x: f32[7], [2, %n: int<s0>]) -> (f32[2], f32[s0])
    return %y
""")
