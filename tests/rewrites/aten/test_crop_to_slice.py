"""CropToSlice: beyond its documented example, and what it leaves alone."""

from rewrite_cases import cases

from stepwell.translate.decompositions import slices

test_crop_to_slice = cases(
    slices,
    """
crop-to-slice: padding that only crops leaves no pad -> aten.slice.Tensor, aten.slice.Tensor
    %y = aten.constant_pad_nd.default(%x: f32[2, 5], [-1, -2, 0, -1], 1.5)
crop-to-slice: padding that adds -> unchanged
    %y = aten.constant_pad_nd.default(%x: f32[2, 5], [1, 0], 1.5)
crop-to-slice: an axis of which nothing is left is filled -> aten.full.default
    - %y = aten.constant_pad_nd.default(%x: f32[2, 5], [-5, 2], 1.5)
    - %y = aten.constant_pad_nd.default(%x: f32[2, 5], [-3, -2], 1.5)
    - %y = aten.constant_pad_nd.default(%x: f32[2, 5], [1, -5], 1.5)
crop-to-slice: a fixed axis beside a symbolic one is cropped -> aten.slice.Tensor
    %y = aten.constant_pad_nd.default(%x: f32[s0, 5], [-1, 0], 0) -> f32[s0, 4]
crop-to-slice: a symbolic axis -> refused: symbolic
    %y = aten.constant_pad_nd.default(%x: f32[s0, 5], [0, 0, -1, 1], 0) -> f32[s0, 5]
crop-to-slice: a padding known only at run time -> refused: run time
    %y = aten.constant_pad_nd.default(%x: f32[6], [%n: int<n>, -1], 0) -> f32[n + 5]
""",
)
