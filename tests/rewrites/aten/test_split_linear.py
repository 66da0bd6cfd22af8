"""A fused projection is cut where its slices say, and only where they are all that is read."""

from rewrite_cases import cases

from stepwell.translate.rewrites.layers.split_linear import SplitLinear

test_split_linear = cases(
    SplitLinear,
    """
two halves become two projections -> aten.linear.default, aten.linear.default, aten.add.Tensor
    %l = aten.linear.default(%x: f32[2, 4], %w: weight f32[6, 4])
    %a = aten.slice.Tensor(%l, 1, 0, 3, 1)
    %b = aten.slice.Tensor(%l, 1, 3, 6, 1)
    %y = aten.add.Tensor(%a, %b)
overlapping slices -> refused: overlap
    %l = aten.linear.default(%x: f32[2, 4], %w: weight f32[6, 4])
    %a = aten.slice.Tensor(%l, 1, 0, 3, 1)
    %b = aten.slice.Tensor(%l, 1, 2, 5, 1)
    %y = aten.add.Tensor(%a, %b)
an output that is read whole -> refused: read whole
    %l = aten.linear.default(%x: f32[2, 4], %w: weight f32[6, 4])
    %a = aten.slice.Tensor(%l, 1, 0, 3, 1)
    %s = aten.sum.dim_IntList(%l, [1], true)
    %y = aten.add.Tensor(%a, %s)
a slice of rows -> refused: read whole
    %l = aten.linear.default(%x: f32[2, 4], %w: weight f32[6, 4])
    %y = aten.slice.Tensor(%l, 0, 0, 1, 1)
a slice with gaps -> refused: read whole
    %l = aten.linear.default(%x: f32[2, 4], %w: weight f32[6, 4])
    %y = aten.slice.Tensor(%l, 1, 0, 6, 2)
a slice of what is no layer -> unchanged
    %l = aten.cat.default([%x: f32[2, 4], %x], 1)
    %y = aten.slice.Tensor(%l, 1, 0, 3, 1)
a layer of computed weights -> refused: computed at run time
    - %l = aten.linear.default(%x: f32[2, 4], %w: f32[6, 4], %b: weight "c" f32[6])
      %y = aten.slice.Tensor(%l, 1, 0, 3, 1)
    - %l = aten.linear.default(%x: f32[2, 4], %w: weight "c" f32[6, 4], %b: f32[6])
      %y = aten.slice.Tensor(%l, 1, 0, 3, 1)
""",
)
