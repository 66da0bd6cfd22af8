"""What is known only at run time: rewrites that need a number leave the op alone, and say so."""

from typing import Any

import pytest
from rewrite_cases import cases

from stepwell.ir.rewriting.rewrite import Rewrite
from stepwell.translate.canonicalize import neutral_arithmetic, norms, powers
from stepwell.translate.decompositions import activations, products, slices, statistics, sums, views
from stepwell.translate.lowerings.lowering import step
from stepwell.translate.rewrites.slices import pads

TWO = '%n = aten.sym_size.int(%z, 0) : (tensor<2xf32>) -> !stepwell.int<"2">'
X = "tensor<9x3xf32>"
RULE = {
    rule.name: rule()
    for module in (activations, neutral_arithmetic, norms, powers, sums)
    for rule in module.RULES
}


@pytest.mark.parametrize(
    ("rewrite", "call", "shape", "reason"),
    [
        (step(slices.normalize_selection), "select.int(%x, 0, %n)", "3", "index"),
        (step(slices.normalize_slice), "narrow.default(%x, 0, %n, 2)", "2x3", "bounds"),
        (step(slices.normalize_slice), "narrow.default(%x, 0, 0, %n)", "2x3", "bounds"),
        (step(slices.normalize_slice), "slice.Tensor(%x, 0, 0, %n)", "2x3", "bounds"),
        (pads, "pad.default(%x, [0, %n])", "9x5", "padding"),
        (pads, "pad.default(%x, [0, 1], value=%n)", "9x4", "padding"),
        (step(slices.pad_to_slices), "reflection_pad1d.default(%x, [0, %n])", "9x5", "padding"),
        (RULE["power-to-square"], "pow.Tensor_Scalar(%x, %n)", "9x3", ""),
        (RULE["remove-neutral-sum"], "add.Scalar(%x, 0, %n)", "9x3", "alpha"),
        (step(views.repeat_to_expand), "repeat.default(%x, [1, %n])", "9x6", "counts"),
        (step(views.repeat_to_expand), "repeat_interleave.self_int(%x, %n, 1)", "9x6", "count"),
        (step(slices.roll_to_cat), "roll.default(%x, [%n], [1])", "9x3", "shift"),
        (RULE["softshrink-to-clamp"], "softshrink.default(%x, %n)", "9x3", "lambd"),
        (RULE["split-alpha-of-add"], "add.Tensor(%x, %x, alpha=%n)", "9x3", "alpha"),
        (RULE["split-elu-scale"], "elu.default(%x, %n)", "9x3", "alpha"),
        (step(views.strided_slice_to_view), "slice.Tensor(%x, 0, 1, 9, %n)", "4x3", "step"),
        (step(views.strided_slice_to_view), "slice.Tensor(%x, 0, %n, 9, 2)", "4x3", "bound"),
        (step(views.strided_slice_to_view), "slice.Tensor(%x, 0, 0, %n, 2)", "1x3", "bound"),
    ],
    ids=lambda value: value.split("(")[0] if isinstance(value, str) else type(value).__name__,
)
def test_a_number_that_is_not_written_down_is_none_to_rewrite_with(
    rewrite: Rewrite[Any], call: str, shape: str, reason: str, refused: Any, method: Any
) -> None:
    given = ", ".join([X] * call.count("%x") + ['!stepwell.int<"2">'])
    line = f"%y = aten.{call} : ({given}) -> tensor<{shape}xf32>"
    text = method(f"%x: {X}, %z: tensor<2xf32>", TWO, line, gives=f"tensor<{shape}xf32>")
    refused(text, rewrite, reason)


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
normalize-expand: the dynamic size of an empty tensor cannot be left to a view -> refused: no -1
    %y = aten.broadcast_to.default(%x: f32[s0, 0], [2, 5, 0]) -> f32[2, 5, 0]
normalize-reduction: the dynamic size of an empty tensor cannot be left to a view -> refused: no -1
    %y = aten.sum.dim_IntList(%x: f32[2, 0, s0], [0])
normalize-selection: the dynamic size of an empty tensor cannot be left to a view -> refused: no -1
    %y = aten.select.int(%x: f32[2, 0, s0], 0, 1)
reshape-to-view: the dynamic size of an empty tensor cannot be left to a view -> refused: no -1
    %y = aten.unsqueeze.default(%x: f32[2, 0, s0], 0)
split-to-slices: the dynamic size of an empty tensor cannot be left to a view -> refused: no -1
    %y = aten.unbind.int(%x: f32[1, 0, s0])
stack-to-cat: the dynamic size of an empty tensor cannot be left to a view -> refused: no -1
    %y = aten.stack.default([%x: f32[0, s0], %x])
variance-to-means: the dynamic size of an empty tensor cannot be left to a view -> refused: no -1
    %y = aten.var.correction(%x: f32[2, 0, s0], [0], correction=0)
split-to-slices: parts of unknown length are cut at run time -> aten.slice.Tensor
    %y, %a = aten.split_with_sizes.default(%x: f32[7], [2, %n: int<s0>]) -> (f32[2], f32[s0])
    return %y
""")
