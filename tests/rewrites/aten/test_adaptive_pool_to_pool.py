"""AdaptivePoolToPool: beyond its documented example, and what it leaves alone."""

from typing import Any

from stepwell.translate.rewrites.aten.adaptive_pool_to_pool import AdaptivePoolToPool


def test_windows_of_several_lengths_are_refused(refused: Any, method: Any):
    refused(
        method(
            "%x: tensor<1x1x5x5xf32>",
            "%y = aten.adaptive_avg_pool2d.default(%x, [2, 2]) : (tensor<1x1x5x5xf32>) -> tensor<1x1x2x2xf32>",
            gives="tensor<1x1x2x2xf32>",
        ),
        AdaptivePoolToPool(),
        "several lengths",
    )


def test_indices_that_are_used_keep_the_op(refused: Any, method: Any):
    refused(
        method(
            "%x: tensor<1x1x4x4xf32>",
            "%a, %y = aten.adaptive_max_pool2d.default(%x, [2, 2]) : (tensor<1x1x4x4xf32>) -> (tensor<1x1x2x2xf32>, tensor<1x1x2x2xi64>)",
            gives="tensor<1x1x2x2xi64>",
        ),
        AdaptivePoolToPool(),
        "indices",
    )


def test_one_axis_to_several_elements_is_refused(refused: Any, method: Any):
    refused(
        method(
            "%x: tensor<1x1x4xf32>",
            "%y = aten.adaptive_avg_pool1d.default(%x, [2]) : (tensor<1x1x4xf32>) -> tensor<1x1x2xf32>",
            gives="tensor<1x1x2xf32>",
        ),
        AdaptivePoolToPool(),
        "1 axes",
    )
