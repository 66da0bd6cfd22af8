"""`normalize-pooling`: beyond its documented example, and what it leaves alone."""

from typing import Any

from stepwell.translate.decompositions.aten import pools
from stepwell.translate.lowerings.lowering import step


def test_indices_that_are_used_keep_the_op(refused: Any, method: Any):
    refused(
        method(
            "%x: tensor<1x1x4x4xf32>",
            "%a, %y = aten.max_pool2d_with_indices.default(%x, [2, 2]) : (tensor<1x1x4x4xf32>) -> (tensor<1x1x2x2xf32>, tensor<1x1x2x2xi64>)",
            gives="tensor<1x1x2x2xi64>",
        ),
        step(pools.normalize_pooling),
        "indices",
    )


def test_a_missing_stride_is_the_kernel_s_size(apply: Any, method: Any):
    done = apply(
        method(
            "%x: tensor<1x1x4x6xf32>",
            "%y = aten.avg_pool2d.default(%x, [2, 3]) : (tensor<1x1x4x6xf32>) -> tensor<1x1x2x2xf32>",
            gives="tensor<1x1x2x2xf32>",
        ),
        step(pools.normalize_pooling),
    )
    assert done.ops() == ["aten.avg_pool2d.default"]
