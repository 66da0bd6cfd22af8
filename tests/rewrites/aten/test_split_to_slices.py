"""SplitToSlices: beyond its documented example, and what it leaves alone."""

from typing import Any

from stepwell.translate.decompositions.aten import slices
from stepwell.translate.lowerings.lowering import step


def test_an_unused_part_is_not_written(apply: Any, method: Any):
    done = apply(
        method(
            "%x: tensor<6xf32>",
            "%a, %b, %y = aten.chunk.default(%x, 3) : (tensor<6xf32>) -> (tensor<2xf32>, tensor<2xf32>, tensor<2xf32>)",
            gives="tensor<2xf32>",
        ),
        step(slices.split_to_slices),
    )
    assert done.ops() == ["aten.slice.Tensor"]


def test_uneven_parts_follow_each_other(apply: Any, method: Any):
    done = apply(
        method(
            "%x: tensor<7xf32>",
            "%a, %y = aten.split_with_sizes.default(%x, [3, 4]) : (tensor<7xf32>) -> (tensor<3xf32>, tensor<4xf32>)",
            gives="tensor<4xf32>",
        ),
        step(slices.split_to_slices),
    )
    assert done.ops() == ["aten.slice.Tensor"]


def test_unbinding_an_axis_of_one_is_a_view(apply: Any, method: Any):
    done = apply(
        method(
            "%x: tensor<1x3xf32>",
            "%y = aten.unbind.int(%x) : (tensor<1x3xf32>) -> tensor<3xf32>",
            gives="tensor<3xf32>",
        ),
        step(slices.split_to_slices),
    )
    assert done.ops() == ["aten.view.default"]
