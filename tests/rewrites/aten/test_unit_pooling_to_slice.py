"""UnitPoolingToSlice: beyond its documented example, and what it leaves alone."""

from rewrite_cases import cases

from stepwell.translate.decompositions import pools

test_unit_pooling_to_slice = cases(
    pools,
    """
unit-pooling-to-slice: steps are those of the windows -> aten.slice.Tensor, aten.slice.Tensor
    - %y = aten.max_pool2d.default(%x: f32[1, 2, 5, 4], [1, 1], [2, 2])
    - %y = aten.max_pool2d.default(%x: f32[1, 2, 5, 4], [1, 1], [3, 3], [0, 0], [2, 2])
    - %y = aten.max_pool2d.default(%x: f32[1, 2, 5, 4], [1, 1], [2, 3], [0, 0], [1, 1], true)
    - %y = aten.max_pool2d.default(%x: f32[1, 2, 5, 4], [1], [2])
unit-pooling-to-slice: an average of one element is that element -> aten.slice.Tensor, aten.slice.Tensor
    - %y = aten.avg_pool2d.default(%x: f32[1, 2, 5, 4], [1, 1], [2, 3])
    - %y = aten.avg_pool2d.default(%x: f32[1, 2, 5, 4], [1, 1], [2, 3], [0, 0], true, false, 1)
unit-pooling-to-slice: an element that is divided -> refused: divided
    %y = aten.avg_pool2d.default(%x: f32[1, 2, 5, 4], [1, 1], [2, 3], [0, 0], false, true, 2)
unit-pooling-to-slice: other windows and steps of one -> unchanged
    - %y = aten.max_pool2d.default(%x: f32[1, 2, 5, 4], [2, 1], [2, 2])
    - %y = aten.max_pool2d.default(%x: f32[1, 2, 5, 4], [1, 1], [1, 1])
    - %y = aten.max_pool2d.default(%x: f32[1, 2, 5, 4], [1, 1])
unit-pooling-to-slice: a symbolic size -> refused: symbolic
    %y = aten.max_pool2d.default(%x: f32[1, 2, 2*s0, 4], [1, 1], [2, 1])
unit-pooling-to-slice: a batch and an axis of steps of one may be open -> aten.slice.Tensor
    %y = aten.max_pool2d.default(%x: f32[s1, 2, s0, 4], [1, 1], [1, 2])
""",
)
