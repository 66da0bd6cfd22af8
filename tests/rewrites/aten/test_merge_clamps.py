"""MergeClamps: beyond its documented example, and what it leaves alone."""

from typing import Any

from stepwell.translate.rewrites.aten.merge_clamps import MergeClamps


def test_bounds_out_of_order_are_refused(refused: Any, method: Any):
    refused(
        method(
            "%x: tensor<2x3xf32>",
            "%a = aten.clamp.default(%x, 2, 1) : (tensor<2x3xf32>) -> tensor<2x3xf32>",
            "%y = aten.clamp.default(%a, 0, 6) : (tensor<2x3xf32>) -> tensor<2x3xf32>",
            gives="tensor<2x3xf32>",
        ),
        MergeClamps(),
        "in order",
    )


def test_an_inner_range_outside_the_outer_one_is_its_nearest_end(apply: Any, method: Any):
    done = apply(
        method(
            "%x: tensor<2x3xf32>",
            "%a = aten.clamp.default(%x, -2, -1) : (tensor<2x3xf32>) -> tensor<2x3xf32>",
            "%y = aten.clamp.default(%a, 0.0, 6) : (tensor<2x3xf32>) -> tensor<2x3xf32>",
            gives="tensor<2x3xf32>",
        ),
        MergeClamps(),
    )
    assert done.ops() == ["aten.clamp.default"]


def test_a_clamp_that_promotes_stays(refused: Any, method: Any):
    first = "%a = aten.clamp.default(%x, 0.5) : (tensor<3xi64>) -> tensor<3xf32>"
    second = "%y = aten.clamp.default(%a, 1) : (tensor<3xf32>) -> tensor<3xf32>"
    refused(method("%x: tensor<3xi64>", first, second, gives="tensor<3xf32>"), MergeClamps())
