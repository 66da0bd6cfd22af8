"""WriteByCat: chains of writes, and what it leaves alone."""

from rewrite_cases import cases

from stepwell.translate.rewrites.slices.write_by_cat import WriteByCat

test_write_by_cat = cases(
    WriteByCat,
    """
a loop over every row is one cat -> aten.view.default, aten.view.default, aten.view.default, aten.view.default, aten.cat.default
    %w0 = aten.select_scatter.default(%x: f32[4, 3], %r0: f32[3], 0, 2)
    %w1 = aten.select_scatter.default(%w0, %r1: f32[3], 0, 0)
    %w2 = aten.select_scatter.default(%w1, %r2: f32[3], 0, -1)
    %y = aten.select_scatter.default(%w2, %r3: f32[3], 0, 1)
the last write to a row counts -> aten.slice.Tensor, aten.view.default, aten.slice.Tensor, aten.cat.default
    %w0 = aten.select_scatter.default(%x: f32[4, 3], %r0: f32[3], 0, 2)
    %y = aten.select_scatter.default(%w0, %r1: f32[3], 0, 2)
a write that is read on the way stays itself -> aten.view.default, aten.slice.Tensor, aten.cat.default, aten.view.default, aten.slice.Tensor, aten.view.default, aten.cat.default, aten.neg.default, aten.add.Tensor
    %w0 = aten.select_scatter.default(%x: f32[4, 3], %r0: f32[3], 0, 0)
    %v = aten.select_scatter.default(%w0, %r1: f32[3], 0, 3)
    %z = aten.neg.default(%w0)
    %y = aten.add.Tensor(%v, %z)
a slice in the middle leaves both sides -> aten.slice.Tensor, aten.slice.Tensor, aten.slice.Tensor, aten.cat.default
    %w = aten.slice_scatter.default(%x: f32[2, 7], %s: f32[2, 3], 1, 1, 4)
    %y = aten.slice_scatter.default(%w, %t: f32[2, 3], 1, 3, 6)
every second element is a part of its own -> aten.slice.Tensor, aten.slice.Tensor, aten.slice.Tensor, aten.slice.Tensor, aten.slice.Tensor, aten.slice.Tensor, aten.cat.default
    %y = aten.slice_scatter.default(%x: f32[2, 6], %s: f32[2, 3], 1, 0, 6, 2)
many elements that lie apart are left to a kernel -> refused: 20 elements that are not contiguous
    %y = aten.slice_scatter.default(%x: f32[2, 40], %s: f32[2, 20], 1, 0, 40, 2)
integers are left to a kernel -> refused: integers
    %y = aten.select_scatter.default(%x: i64[4, 3], %r: i64[3], 0, 1)
several dtypes -> refused: several dtypes
    %y = aten.select_scatter.default(%x: f32[4, 3], %r: f16[3], 0, 1)
a batch may be open -> aten.slice.Tensor, aten.slice.Tensor, aten.cat.default
    %y = aten.slice_scatter.default(%x: f32[s0, 6], %s: f32[s0, 2], 1, 1, 3)
""",
)
