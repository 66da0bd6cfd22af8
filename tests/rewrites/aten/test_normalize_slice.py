"""NormalizeSlice: beyond its documented example, and what it leaves alone."""

from rewrite_cases import cases

from stepwell.translate.decompositions import slices

test_normalize_slice = cases(
    slices,
    """
a slice in normal form -> unchanged
    %y = aten.slice.Tensor(%x: f32[2, 3], 1, 0, 2, 1)
an element before the last of a symbolic axis -> refused: the symbolic size s0
    %y = aten.select.int(%x: f32[s0, 3], 0, -2)
""",
)


test_normalize_slice_together = cases(
    slices,
    """
normalize-slice + normalize-selection: the last element of a symbolic axis is a slice to the end -> aten.slice.Tensor, aten.view.default
    %y = aten.select.int(%x: f32[s0, 3], 0, -1)
normalize-slice + normalize-selection: bounds beyond the axis are cut to it -> aten.slice.Tensor
    %y = aten.slice.Tensor(%x: f32[2, 3], -1, -9, 9, 2)
normalize-slice + normalize-selection: narrow is a slice -> aten.slice.Tensor
    %y = aten.narrow.default(%x: f32[2, 3], 1, -2, 2)
normalize-slice + normalize-selection: selecting from an axis of one is a view -> aten.view.default
    %y = aten.select.int(%x: f32[1, 3], 0, 0)
""",
)
