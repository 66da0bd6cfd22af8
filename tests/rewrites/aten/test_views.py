"""Layout ops in one form and merged, and what moves elements."""

from typing import Any

import pytest
import torch
import torch.nn.functional as F
from eager import assert_as_eager, lower
from rewrite_cases import cases
from torch import Tensor

from stepwell.translate.decompositions import complex, views
from stepwell.translate.lowerings.lowering import step
from stepwell.translate.rewrites.views import expands, merge_views, permutes, transposes

test_views = cases(views, expands, merge_views, permutes, transposes, complex)("""
normalize-expand: an expand to a symbolic shape -> refused: symbolic
    %y = aten.expand_as.default(%x: f32[1, 3], %z: f32[s0, 3])
normalize-expand: an expand in normal form -> unchanged
    %y = aten.expand.default(%x: f32[1, 3], [2, 3])
pixel-shuffle-to-permute: channels are shuffled between groups -> aten.view.default, aten.permute.default, aten.view.default
    %y = aten.channel_shuffle.default(%x: f32[1, 6, 2, 2], 3)
pixel-shuffle-to-permute: an image without a batch is shuffled too -> aten.view.default, aten.permute.default, aten.view.default
    %y = aten.pixel_shuffle.default(%x: f32[4, 2, 3], 2)
repeat-to-expand: interleaving all elements -> refused: flattens
    %y = aten.repeat_interleave.self_int(%x: f32[2, 3], 2)
repeat-to-expand: a longer axis is repeated as a whole -> aten.view.default, aten.expand.default, aten.view.default
    %y = aten.tile.default(%x: f32[2, 3], [2])
repeat-to-expand: interleaving repeats each element -> aten.view.default, aten.expand.default, aten.view.default
    %y = aten.repeat_interleave.self_int(%x: f32[2, 3], 2, -1)
repeat-to-expand: sizes that are not repeated may be symbolic -> applied once
    %y = aten.repeat_interleave.self_int(%x: f32[2, n], 3, 0)
repeat-to-expand: an axis of symbolic size is not repeated -> refused: symbolic size
    - %y = aten.repeat.default(%x: f32[2, n], [1, 3])
    - %y = aten.repeat_interleave.self_int(%x: f32[2, n], 3, 1)
repeat-to-expand: next to two dynamic sizes parts are adjacent -> aten.slice.Tensor, aten.slice.Tensor, aten.cat.default
    %y = aten.repeat_interleave.self_int(%x: f32[2, h, w], 3, 0)
repeat-to-expand: next to two dynamic sizes parts are adjacent -> aten.cat.default
    %y = aten.repeat.default(%x: f32[2, h, w], [3, 1, 1])
reshape-to-view: a view that is written out -> unchanged
    %y = aten.view.default(%x: f32[2, 3], [3, 2])
reshape-to-view: a symbolic size is written as minus one -> aten.view.default
    %y = aten.unsqueeze.default(%x: f32[s0, 3], 1)
reshape-to-view: a second symbolic size is read from the operand -> aten.sym_size.int, aten.view.default
    %y = aten.unsqueeze.default(%x: f32[s0, s1, 3], 0)
reshape-to-view: a view as a number -> unchanged
    %y = aten.view.default(%x: f32[1], [])
remove-noop-expand: an expand that repeats -> unchanged
    %y = aten.expand.default(%x: f32[1, 3], [2, 3])
remove-noop-expand: an expand that adds an axis -> unchanged
    %y = aten.expand.default(%x: f32[2, 3], [1, 2, 3])
unit-permute-to-view: a permute that moves elements is no view -> unchanged
    %y = aten.permute.default(%x: f32[1, 2, 3], [2, 0, 1])
merge-views: a view and its inverse vanish -> aten.neg.default
    %a = aten.view.default(%x: f32[2, 3], [6]); %b = aten.view.default(%a, [2, 3])
    %y = aten.neg.default(%b)
merge-views: a shape of two new sizes -> refused: at run time
    %p = aten.select.int(%x: f32[a, b, 4], 2, 0); %l = aten.cat.default([%p, %p], 0)
    %n = aten.sym_size.int(%l, 0); %v = aten.view.default(%x, [-1])
    %y = aten.view.default(%v, [%n, -1])
merge-views: an empty tensor of a symbolic length -> refused: empty
    %n = aten.sym_size.int(%x: f32[n, 0, 4], 0); %v = aten.view.default(%x, [%n, 0, 2, 2])
    %y = aten.view.default(%v, [%n, 0, 2])
merge-views: a length that is no expression -> refused: not known
    %v = aten.view.default(%x: f32[?, 4], [-1, 2, 2]) -> f32[?, 2, 2]
    %y = aten.view.default(%v, [-1, 2]) -> f32[?, 2]
merge-views: a known shape of a length that is no expression is one view -> aten.view.default
    %v = aten.view.default(%x: f32[?, 4], [-1, 2, 2]) -> f32[?, 2, 2]
    %y = aten.view.default(%v, [4, 5]) -> f32[4, 5]
permutes: a permute and its inverse vanish -> aten.neg.default
    %a = aten.permute.default(%x: f32[2, 3, 4], [1, 2, 0]); %b = aten.permute.default(%a, [2, 0, 1])
    %y = aten.neg.default(%b)
merge-permutes: a view between two permutes keeps both -> unchanged
    %a = aten.permute.default(%x: f32[2, 3, 4], [1, 2, 0]); %b = aten.view.default(%a, [4, 3, 2])
    %y = aten.permute.default(%b, [1, 0, 2])
permute-axes-from-front: a permute in normal form -> unchanged
    %y = aten.permute.default(%x: f32[2, 3], [1, 0])
adjoint-to-permute: the adjoint of a complex matrix -> refused: conjugates
    %y = aten.adjoint.default(%x: complex<f32>[2, 3])
transposes: movedim of several axes keeps the order of the others -> aten.permute.default
    %y = aten.movedim.intlist(%x: f32[2, 3, 4, 5], [0, 2], [3, -4])
transposes: the transpose of a vector is the identity permute -> aten.permute.default
    %y = aten.t.default(%x: f32[3])
complex-to-pairs: complex numbers that -> refused: of single precision
    %y = aten.abs.default(%x: complex<f64>[3])
complex-to-pairs: rows repeated as often as is known at run time -> refused: number of repetitions is known only at run time
    %n = aten.sym_size.int(%z: f32[s0, 3], 0)
    %y = aten.expand.default(%x: complex<f32>[1, 3], [%n, 3])
complex-to-pairs: dynamic rows next to one another -> refused: the shape is symbolic
    %y = aten.cat.default([%x: complex<f32>[s0, 3], %x], 1)
complex-to-pairs: real rows known only at run time -> refused: the shape is symbolic
    %x: f32[s0, 3]
    %y = aten._to_copy.default(%x, dtype=complex<f32>) : (f32[s0, 3]) -> complex<f32>[s0, 3]
""")


test_as_strided_to_view = cases(views)("""
as-strided-to-view: overlapping windows -> refused: overlap
    %y = aten.as_strided.default(%x: f32[6], [5, 2], [1, 1])
as-strided-to-view: a transposition -> refused: reorder
    %y = aten.as_strided.default(%x: f32[2, 3], [3, 2], [1, 3])
as-strided-to-view: a part of the operand -> refused: skip
    %y = aten.as_strided.default(%x: f32[6], [2, 2], [2, 1])
as-strided-to-view: of a symbolic operand -> refused: symbolic
    %y = aten.as_strided.default(%x: f32[n], [2, 2], [2, 1])
as-strided-to-view: to a symbolic shape -> refused: symbolic
    %y = aten.as_strided.default(%x: f32[5], [%n: int<n>], [1]) -> f32[n]
as-strided-to-view: with strides of run time -> refused: the strides or
    %y = aten.as_strided.default(%x: f32[9], [2], [%n: int<n>]) -> f32[2]
as-strided-to-view: an offset -> refused: offset
    %y = aten.as_strided.default(%x: f32[6], [2, 2], [2, 1], 2)
as-strided-to-view: a computed operand has no known strides -> refused: memory format
    %a = aten.permute.default(%x: f32[2, 3], [1, 0]); %y = aten.as_strided.default(%a, [6], [1])
as-strided-to-view: computed of what is permuted -> refused: memory format
    %t = aten.permute.default(%x: f32[2, 3], [1, 0]); %a = aten.neg.default(%t)
    %y = aten.as_strided.default(%a, [6], [1])
as-strided-to-view: a product -> refused: memory format
    %t = aten.permute.default(%x: f32[2, 3], [1, 0]); %a = aten.matmul.default(%t, %x)
    %y = aten.as_strided.default(%a, [9], [1])
as-strided-to-view: an elementwise result lies as its operands -> aten.neg.default, aten.add.Tensor, aten.view.default
    %n = aten.neg.default(%x: f32[2, 3]); %a = aten.add.Tensor(%n, %x)
    %y = aten.as_strided.default(%a, [6], [1])
as-strided-to-view: a new tensor of one long axis is dense in any format -> aten.mean.dim
    %a = aten.mean.dim(%x: f32[1, 3, 4, 4], [2, 3], true)
    %y = aten.as_strided.default(%a, [1, 3, 1, 1], [3, 1, 3, 3])
as-strided-to-view: a copy in row major order is read as it lies -> aten.permute.default, aten.contiguous.default, aten.view.default
    %t = aten.permute.default(%x: f32[2, 3], [1, 0]); %a = aten.contiguous.default(%t)
    %y = aten.as_strided.default(%a, [6], [1])
fold-to-permute: windows that overlap are added up elsewhere -> refused: overlap
    - %y = aten.col2im.default(%x: f32[1, 8, 6], [3, 4], [2, 2], [1, 1], [0, 0], [1, 1])
    - %y = aten.col2im.default(%x: f32[1, 8, 12], [4, 6], [2, 2], [1, 1], [1, 1], [2, 2])
strided-slice-to-view: whole periods need no padding -> aten.view.default, aten.slice.Tensor, aten.view.default
    %y = aten.slice.Tensor(%x: f32[2, 9], 1, 2, 9, 3)
strided-slice-to-view: a step of one -> unchanged
    %y = aten.slice.Tensor(%x: f32[2, 8], 1, 1, 5, 1)
strided-slice-to-view: an empty slice -> refused: the slice is empty
    %y = aten.slice.Tensor(%x: f32[2, 8], 1, 5, 5, 2)
strided-slice-to-view: a symbolic axis -> refused: symbolic
    %y = aten.slice.Tensor(%x: f32[8, 2*s0], 1, 0, 9223372036854775807, 2)
""")


@pytest.mark.parametrize("kernel", [(2, 2), (1, 3), (4, 2)])
def test_patches_are_put_together_in_the_delegate(kernel: tuple[int, int]) -> None:
    def patches(x: Tensor) -> Tensor:
        rows = F.unfold(x, kernel, stride=kernel).softmax(-1)
        return F.fold(rows, x.shape[2:], kernel, stride=kernel) * 2

    x = torch.randn(2, 3, 8, 12)
    lowered = lower(patches, x)
    assert (lowered.report.stages, dict(lowered.report.outside)) == (1, {})
    assert_as_eager(lowered, patches, x, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("size", [7, 8])
@pytest.mark.parametrize("bounds", [(0, 100), (1, 100), (2, 6), (-5, -1), (3, 4), (-100, 5)])
@pytest.mark.parametrize("by", [2, 3, 9])
def test_every_window_takes_what_torch_takes(
    size: int, bounds: tuple[int, int], by: int, apply: Any
):
    start, stop = bounds
    call = f"%y = aten.slice.Tensor(%x: f32[2, {size}], 1, {start}, {stop}, {by})"
    done = apply(call, step(views.strided_slice_to_view))
    assert done.count == 1
    x = torch.randn(2, size)
    assert torch.equal(done.program.run(x)[0], x[:, start:stop:by])


(RULE,) = merge_views.RULES.named("squeeze-permute")


test_squeeze_permute = cases(RULE)("""
a view that merges axes -> unchanged
    %p = aten.permute.default(%x: f32[2, 1, 3], [2, 1, 0]); %y = aten.view.default(%p, [6])
a view that adds an axis -> unchanged
    %p = aten.permute.default(%x: f32[2, 1, 3], [2, 1, 0]); %y = aten.view.default(%p, [1, 3, 1, 2])
a view of no permute -> unchanged
    %y = aten.view.default(%x: f32[2, 1, 3], [2, 3])
a permute read with its unit axes -> refused: read with its unit axes
    %p = aten.permute.default(%x: f32[2, 1, 3], [2, 1, 0]); %v = aten.view.default(%p, [3, 2])
    %y = aten.add.Tensor(%v, %p)
""")
