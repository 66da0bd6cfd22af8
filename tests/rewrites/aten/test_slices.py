"""Selections and movements as slices, and what is no slice."""

from typing import Any

import pytest
import torch
from eager import Function, assert_as_eager, lower
from rewrite_cases import cases
from torch import nn

from stepwell.translate.decompositions import slices
from stepwell.translate.lowerings.lowering import step
from stepwell.translate.rewrites.slices import pads
from stepwell.translate.rewrites.slices.crop_convolution import crop_convolution
from stepwell.translate.rewrites.slices.select_by_constant_mask import select_by_constant_mask
from stepwell.translate.rewrites.slices.store_row_in_table import StoreRowInTable
from stepwell.translate.rewrites.slices.write_by_cat import write_by_cat

test_slices = cases(
    slices, pads, step(select_by_constant_mask), step(write_by_cat), step(crop_convolution)
)("""
crop-to-slice: padding that only crops leaves no pad -> aten.slice.Tensor, aten.slice.Tensor
    %y = aten.constant_pad_nd.default(%x: f32[2, 5], [-1, -2, 0, -1], 1.5)
crop-to-slice: padding that adds -> unchanged
    %y = aten.constant_pad_nd.default(%x: f32[2, 5], [1, 0], 1.5)
crop-to-slice: an axis of which nothing is left is filled -> aten.full.default
    - %y = aten.constant_pad_nd.default(%x: f32[2, 5], [-5, 2], 1.5)
    - %y = aten.constant_pad_nd.default(%x: f32[2, 5], [-3, -2], 1.5)
    - %y = aten.constant_pad_nd.default(%x: f32[2, 5], [1, -5], 1.5)
crop-to-slice: a fixed axis next to a symbolic one is cropped -> aten.slice.Tensor
    %y = aten.constant_pad_nd.default(%x: f32[s0, 5], [-1, 0], 0) -> f32[s0, 4]
crop-to-slice: a symbolic axis is cropped, and padded -> aten.slice.Tensor, aten.constant_pad_nd.default
    %y = aten.constant_pad_nd.default(%x: f32[s0, 5], [0, 0, -1, 1], 0) -> f32[s0, 5]
crop-to-slice: a padding known only at run time -> refused: run time
    %y = aten.constant_pad_nd.default(%x: f32[6], [%n: int<n>, -1], 0) -> f32[n + 5]
index-to-slices: scattered indices stay a gather -> refused: the indices form 6 ranges
    %y = aten.index_select.default(%x: f32[6], 0, %i: constant "i#zeros" i64[6])
index-to-slices: indices known at run time -> unchanged
    %y = aten.index_select.default(%x: f32[6], 0, %i: i64[2])
index-to-slices: an index after a whole axis is sliced -> aten.slice.Tensor, aten.slice.Tensor, aten.cat.default
    %y = aten.index.Tensor(%x: f32[2, 6], [none, %i: constant "i#rolled" i64[6]])
index-to-slices: two indices -> unchanged
    %y = aten.index.Tensor(%x: f32[6, 6], [%i: constant i64[6], %i])
index-to-slices: a symbolic axis -> refused: symbolic
    %y = aten.index.Tensor(%x: f32[n, 6], [none, %i: constant i64[6]])
index-to-slices: a matrix -> refused: not a vector
    %y = aten.index.Tensor(%x: f32[6], [%i: constant i64[2, 3]])
index-to-slices: a mask -> refused: a mask
    %y = aten.index.Tensor(%x: f32[3], [%i: constant "i#ones" i1[3]])
slices: a slice in normal form -> unchanged
    %y = aten.slice.Tensor(%x: f32[2, 3], 1, 0, 2, 1)
slices: an element before the last of a symbolic axis -> refused: the symbolic size s0
    %y = aten.select.int(%x: f32[s0, 3], 0, -2)
normalize-slice + normalize-selection: the last element of a symbolic axis is a slice to the end -> aten.slice.Tensor, aten.view.default
    %y = aten.select.int(%x: f32[s0, 3], 0, -1)
normalize-slice + normalize-selection: bounds beyond the axis are cut to it -> aten.slice.Tensor
    %y = aten.slice.Tensor(%x: f32[2, 3], -1, -9, 9, 2)
normalize-slice + normalize-selection: narrow is a slice -> aten.slice.Tensor
    %y = aten.narrow.default(%x: f32[2, 3], 1, -2, 2)
normalize-slice + normalize-selection: selecting from an axis of one is a view -> aten.view.default
    %y = aten.select.int(%x: f32[1, 3], 0, 0)
roll-to-cat: a flip is refused with the reason -> refused: gather
    %y = aten.flip.default(%x: f32[2, 3], [1])
roll-to-cat: a roll without axes rolls the flat tensor -> aten.view.default, aten.slice.Tensor, aten.slice.Tensor, aten.cat.default, aten.view.default
    %y = aten.roll.default(%x: f32[2, 3], [2])
roll-to-cat: shifts of one axis that cancel vanish -> aten.neg.default
    %a = aten.roll.default(%x: f32[2, 3], [4, -1], [1, 1]); %y = aten.neg.default(%a)
split-to-slices: an unused part is not written -> aten.slice.Tensor
    %a, %b, %y = aten.chunk.default(%x: f32[6], 3); return %y
split-to-slices: uneven parts follow each other -> aten.slice.Tensor
    %a, %y = aten.split_with_sizes.default(%x: f32[7], [3, 4]); return %y
split-to-slices: unbinding an axis of one is a view -> aten.view.default
    %y = aten.unbind.int(%x: f32[1, 3])
pads: reflection -> refused: mode is reflect
    %y = aten.pad.default(%x: f32[1, 3], [1, 1], "reflect")
pads: the value is kept -> aten.constant_pad_nd.default
    %y = aten.pad.default(%x: f32[2, 3], [1, 0, 0, 1], "constant", 2.5)
select-by-constant-mask: a mixed mask is left where a nan could hide -> refused: NaN
    %y = aten.masked_fill.Scalar(%x: f32[3, 3], %m: constant "m#causal" i1[3, 3], -inf)
select-by-constant-mask: a computed mask -> unchanged
    %y = aten.masked_fill.Scalar(%x: f32[3, 3], %m: i1[3, 3], 0.0)
write-by-cat: a loop over every row is one cat -> aten.view.default, aten.view.default, aten.view.default, aten.view.default, aten.cat.default
    %w0 = aten.select_scatter.default(%x: f32[4, 3], %r0: f32[3], 0, 2)
    %w1 = aten.select_scatter.default(%w0, %r1: f32[3], 0, 0)
    %w2 = aten.select_scatter.default(%w1, %r2: f32[3], 0, -1)
    %y = aten.select_scatter.default(%w2, %r3: f32[3], 0, 1)
write-by-cat: the last write to a row counts -> aten.slice.Tensor, aten.view.default, aten.slice.Tensor, aten.cat.default
    %w0 = aten.select_scatter.default(%x: f32[4, 3], %r0: f32[3], 0, 2)
    %y = aten.select_scatter.default(%w0, %r1: f32[3], 0, 2)
write-by-cat: a write that is read on the way stays itself -> aten.view.default, aten.slice.Tensor, aten.cat.default, aten.view.default, aten.slice.Tensor, aten.view.default, aten.cat.default, aten.neg.default, aten.add.Tensor
    %w0 = aten.select_scatter.default(%x: f32[4, 3], %r0: f32[3], 0, 0)
    %v = aten.select_scatter.default(%w0, %r1: f32[3], 0, 3); %z = aten.neg.default(%w0)
    %y = aten.add.Tensor(%v, %z)
write-by-cat: a slice in the middle leaves both sides -> aten.slice.Tensor, aten.slice.Tensor, aten.slice.Tensor, aten.cat.default
    %w = aten.slice_scatter.default(%x: f32[2, 7], %s: f32[2, 3], 1, 1, 4)
    %y = aten.slice_scatter.default(%w, %t: f32[2, 3], 1, 3, 6)
write-by-cat: every second element is a part of its own -> aten.slice.Tensor, aten.slice.Tensor, aten.slice.Tensor, aten.slice.Tensor, aten.slice.Tensor, aten.slice.Tensor, aten.cat.default
    %y = aten.slice_scatter.default(%x: f32[2, 6], %s: f32[2, 3], 1, 0, 6, 2)
write-by-cat: many elements that lie apart are left to a kernel -> refused: 20 separate elements
    %y = aten.slice_scatter.default(%x: f32[2, 40], %s: f32[2, 20], 1, 0, 40, 2)
write-by-cat: integers are left to a kernel -> refused: integers
    %y = aten.select_scatter.default(%x: i64[4, 3], %r: i64[3], 0, 1)
write-by-cat: several dtypes -> refused: several dtypes
    %y = aten.select_scatter.default(%x: f32[4, 3], %r: f16[3], 0, 1)
write-by-cat: a batch may be open -> aten.slice.Tensor, aten.slice.Tensor, aten.cat.default
    %y = aten.slice_scatter.default(%x: f32[s0, 6], %s: f32[s0, 2], 1, 1, 3)
crop-convolution: 2, 9223372036854775807, 1-s -> aten.constant_pad_nd.default, aten.convolution.default
    %c = aten.convolution.default(%x: f32[1, 3, s], %w: weight f32[3, 3, 3], none, [1], [2], [1], false, [0], 1)
    %y = aten.slice.Tensor(%c, 2, 2, 9223372036854775807, 1)
crop-convolution: 1, -1, 1-s -> aten.constant_pad_nd.default, aten.convolution.default
    %c = aten.convolution.default(%x: f32[1, 3, s], %w: weight f32[3, 3, 3], none, [1], [2], [1], false, [0], 1)
    %y = aten.slice.Tensor(%c, 2, 1, -1, 1)
crop-convolution: ends are cut off the padding -> aten.constant_pad_nd.default, aten.convolution.default
    %c = aten.convolution.default(%x: f32[1, 3, s], %w: weight f32[3, 3, 3], none, [1], [2], [1], false, [0], 1)
    %y = aten.slice.Tensor(%c, 2, 0, -1, 1)
crop-convolution: s-options0-2, 9223372036854775807, 1-s - 2-more is cut off than -> refused: cuts off more than
    %c = aten.convolution.default(%x: f32[1, 3, s], %w: weight f32[3, 3, 3], none, [1], [1], [1], false, [0], 1)
    %y = aten.slice.Tensor(%c, 2, 2, 9223372036854775807, 1)
crop-convolution: s-options1-0, -2, 1-s - 2-more is cut off than -> refused: cuts off more than
    %c = aten.convolution.default(%x: f32[1, 3, s], %w: weight f32[3, 3, 3], none, [1], [1], [1], false, [0], 1)
    %y = aten.slice.Tensor(%c, 2, 0, -2, 1)
crop-convolution: what is more than the padding -> refused: stride 2
    %c = aten.convolution.default(%x: f32[1, 3, s], %w: weight f32[3, 3, 3], none, [2], [1], [1], false, [0], 1)
    %y = aten.slice.Tensor(%c, 2, 0, -1, 1)
crop-convolution: what is more than the padding -> unchanged
    - %c = aten.convolution.default(%x: f32[1, 3, s], %w: weight f32[3, 3, 3], none, [1], [2], [1], false, [0], 1)
      %y = aten.slice.Tensor(%c, 2, 0, -1, 2)
    - %c = aten.convolution.default(%x: f32[1, 3, s], %w: weight f32[3, 3, 3], none, [1], [2], [1], false, [0], 1)
      %y = aten.slice.Tensor(%c, 2, 0, 3, 1)
    - %c = aten.convolution.default(%x: f32[1, 3, s], %w: weight f32[3, 3, 3], none, [1], [2], [1], false, [0], 1)
      %y = aten.slice.Tensor(%c, 2, -3, 9223372036854775807, 1)
crop-convolution: what is more than the padding -> refused: a transposed convolution cannot be cropped by more at the end
    - %c = aten.convolution.default(%x: f32[1, 3, s], %w: weight f32[3, 3, 3], none, [1], [0], [1], true, [0], 1)
      %y = aten.slice.Tensor(%c, 2, 0, -1, 1)
    - %c = aten.convolution.default(%x: f32[1, 3, s], %w: weight f32[3, 3, 3], none, [1], [0], [1], true, [0], 1)
      %y = aten.slice.Tensor(%c, 2, 1, 9223372036854775807, 1)
crop-convolution: a static length -> unchanged
    %c = aten.convolution.default(%x: f32[1, 3, 8], %w: weight f32[3, 3, 3], none, [1], [2], [1], false, [0], 1)
    %y = aten.slice.Tensor(%c, 2, 0, -2, 1)
crop-convolution: a slice of the batch -> unchanged
    %c = aten.convolution.default(%x: f32[b, 3, s], %w: weight f32[3, 3, 3], none, [1], [2], [1], false, [0], 1)
    %y = aten.slice.Tensor(%c, 0, 0, -1, 1)
crop-convolution: what is no convolution -> unchanged
    %c = aten.relu.default(%x: f32[1, 3, s]); %y = aten.slice.Tensor(%c, 2, 0, -1, 1)
crop-convolution: a result that is read elsewhere -> refused: has other uses
    %c = aten.convolution.default(%x: f32[1, 3, s], %w: weight f32[3, 3, 3], none, [1], [2], [1], false, [0], 1)
    %a = aten.slice.Tensor(%c, 2, 0, -2, 1); %m = aten.mean.default(%c)
    %y = aten.add.Tensor(%a, %m)
crop-convolution: bounds known only at run time -> unchanged
    - %n = aten.sym_size.int(%z: f32[2], 0)
      %c = aten.convolution.default(%x: f32[1, 3, s], %w: weight f32[3, 3, 3], none, [1], [2], [1], false, [0], 1)
      %y = aten.slice.Tensor(%c, 2, %n, 9223372036854775807, 1)
    - %n = aten.sym_size.int(%z: f32[2], 0)
      %c = aten.convolution.default(%x: f32[1, 3, s], %w: weight f32[3, 3, 3], none, [1], [2], [1], false, [0], 1)
      %y = aten.slice.Tensor(%c, 2, 0, %n, 1)
""")


@pytest.mark.parametrize("mode", ["reflect", "replicate", "circular"])
@pytest.mark.parametrize("amounts", [[2, 1, 0, 3], [0, 0, 1, 0]])
def test_each_mode_pads_as_torch_does(mode: str, amounts: list[int], apply: Any):
    line = f'%y = aten.pad.default(%x: f32[1, 2, 4, 5], {amounts}, "{mode}")'
    done = apply(line, step(slices.pad_to_slices))
    assert "aten.pad.default" not in done.ops()
    x = torch.randn(1, 2, 4, 5)
    wanted = torch.nn.functional.pad(x, amounts, mode)
    assert torch.equal(done.program.run(x)[0], wanted)


test_pad_to_slices = cases(slices)("""
pad-to-slices: the operators named after the modes are spelled too -> aten.slice.Tensor, aten.slice.Tensor, aten.slice.Tensor, aten.cat.default
    %y = aten.reflection_pad1d.default(%x: f32[2, 5], [1, 2])
pad-to-slices: the operators named after the modes are spelled too -> aten.slice.Tensor, aten.slice.Tensor, aten.expand.default, aten.cat.default
    %y = aten.replication_pad1d.default(%x: f32[2, 5], [1, 2])
pad-to-slices: a constant border -> unchanged
    %y = aten.pad.default(%x: f32[1, 2, 4, 5], [1, 1], "constant")
pad-to-slices: a negative border -> refused: crops
    %y = aten.pad.default(%x: f32[1, 2, 4, 5], [-1, 1, 0, 0], "replicate")
pad-to-slices: a wide reflection -> refused: padding of 9 rows would need one slice per row
    %y = aten.pad.default(%x: f32[2, 20], [9, 0], "reflect")
pad-to-slices: a symbolic size -> refused: the size is dynamic
    %y = aten.pad.default(%x: f32[5, s0], [1, 1], "replicate")
stack-to-cat: parts of several dtypes -> refused: several dtypes
    %y = aten.cat.default([%x: f32[3], %z: f16[3]], 0)
stack-to-cat: a cat in normal form -> unchanged
    %y = aten.cat.default([%x: f32[2, 3], %x], 0)
stack-to-cat: an empty part of shape 0 is skipped -> aten.neg.default
    %a = aten.cat.default([%e: f32[0], %x: f32[2, 3]], -2); %y = aten.neg.default(%a)
stack-to-cat: vstack of vectors makes rows -> aten.view.default, aten.view.default, aten.cat.default
    %y = aten.vstack.default([%x: f32[3], %x])
""")


def test_an_empty_part_along_the_axis_is_left_out(apply: Any):
    done = apply(
        "%y = aten.cat.default([%x: f32[2, 3], %e: f32[2, 0], %x], 1)",
        step(slices.stack_to_cat),
    )
    assert "%e" not in done.text.split("cat")[1]


def test_a_row_of_any_numbers_is_looked_up_to_the_bit():
    row = torch.tensor([torch.nan, torch.inf, -0.0, 1.0])
    ids = torch.tensor([[0, 3, 4, 3]])

    def looked_up(ids: torch.Tensor, table: nn.Module) -> torch.Tensor:
        return torch.where((ids == 3).unsqueeze(-1), row, table(ids))

    model = Function(looked_up, nn.Embedding(5, 4)).eval()
    lowered = lower(model, ids)
    assert dict(lowered.report.outside) == {"aten.embedding.default": 1}
    (found,) = lowered.run(ids)
    assert torch.equal(found.view(torch.int32), model(ids).view(torch.int32))


test_store_row_in_table = cases(StoreRowInTable)("""
an id that the table has no row for -> refused: the table has no row
    - %e = aten.embedding.default(%w: weight f32[4, 4], %i: i64[2, 3]); %m = aten.eq.Scalar(%i, 4)
      %v = aten.view.default(%m, [2, 3, 1]); %y = aten.where.self(%v, %r: weight f32[4], %e)
    - %e = aten.embedding.default(%w: weight f32[4, 4], %i: i64[2, 3]); %m = aten.eq.Scalar(%i, -1)
      %v = aten.view.default(%m, [2, 3, 1]); %y = aten.where.self(%v, %r: weight f32[4], %e)
what is no row of the table -> refused: no row
    - %e = aten.embedding.default(%w: weight f32[4, 4], %i: i64[2, 3]); %m = aten.eq.Scalar(%i, 2)
      %v = aten.view.default(%m, [2, 3, 1]); %y = aten.where.self(%v, %r: weight f32[1], %e)
    - %e = aten.embedding.default(%w: weight f32[4, 4], %i: i64[2, 3]); %m = aten.eq.Scalar(%i, 2)
      %v = aten.view.default(%m, [2, 3, 1]); %y = aten.where.self(%v, %r: weight f32[3, 4], %e)
other ids than those looked up stay -> applied 0 times
    %e = aten.embedding.default(%w: weight f32[4, 4], %i: i64[2, 3])
    %m = aten.eq.Scalar(%j: i64[2, 3], 2); %v = aten.view.default(%m, [2, 3, 1])
    %y = aten.where.self(%v, %r: weight f32[4], %e)
a table that is read elsewhere -> refused: held twice
    %e = aten.embedding.default(%w: weight f32[4, 4], %i: i64[2, 3]); %m = aten.eq.Scalar(%i, 2)
    %v = aten.view.default(%m, [2, 3, 1]); %y = aten.where.self(%v, %r: weight f32[4], %e)
    %z = aten.neg.default(%w); return %y
""")


@pytest.mark.parametrize("is_dynamic", [False, True])
def test_all_elements_selected_in_order_are_a_view(is_dynamic: bool) -> None:
    def masked(x: torch.Tensor, mask: torch.Tensor) -> torch.Tensor:
        keys = torch.arange(mask.shape[1]).view(1, 1, 1, -1)
        seen = mask[torch.zeros(1, 1, 1, 1, dtype=torch.int64), keys]
        return torch.where(torch.ones(1, 1, dtype=torch.bool) & seen, x, 0.0)

    length = torch.export.Dim("length", min=2, max=9)
    inputs = torch.randn(1, 2, 3, 6), torch.rand(1, 6) > 0.5
    module = Function(masked)
    sizes = ({3: length}, {1: length}) if is_dynamic else None
    lowered = lower(module, *inputs, dynamic=sizes)
    left = set(lowered.report.outside)
    assert not left & {"aten.index.Tensor", "aten.bitwise_and.Tensor"}
    assert_as_eager(lowered, module, *inputs)


@pytest.mark.parametrize(
    "indices",
    [(torch.tensor([0]), torch.tensor([0, 2, 1])), (torch.tensor([[0], [1]]), torch.arange(3))],
    ids=["another order", "every pair"],
)
def test_selections_by_pairs_of_indices_are_pytorchs(
    indices: tuple[torch.Tensor, torch.Tensor],
) -> None:
    x = torch.rand(int(indices[0].max()) + 1, 3) > 0.5
    module = Function(lambda x: x[indices] | x[0, 0])
    lowered = lower(module, x)
    assert_as_eager(lowered, module, x)
