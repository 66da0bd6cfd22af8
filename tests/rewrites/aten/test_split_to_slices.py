"""SplitToSlices: beyond its documented example, and what it leaves alone."""

from rewrite_cases import cases

from stepwell.translate.decompositions import slices

test_split_to_slices = cases(
    slices,
    """
split-to-slices: an unused part is not written -> aten.slice.Tensor
    %a, %b, %y = aten.chunk.default(%x: f32[6], 3)
    return %y
split-to-slices: uneven parts follow each other -> aten.slice.Tensor
    %a, %y = aten.split_with_sizes.default(%x: f32[7], [3, 4])
    return %y
split-to-slices: unbinding an axis of one is a view -> aten.view.default
    %y = aten.unbind.int(%x: f32[1, 3])
""",
)
