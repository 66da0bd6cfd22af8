"""SplitAlpha: beyond its documented example, and what it leaves alone."""

from typing import Any

from stepwell.translate.rewrites.aten.split_alpha import SplitAlpha


def test_a_sum_without_a_factor_stays(refused: Any, method: Any):
    refused(
        method(
            "%x: tensor<2x3xf32>, %z: tensor<2x3xf32>",
            "%y = aten.add.Tensor(%x, %z) : (tensor<2x3xf32>, tensor<2x3xf32>) -> tensor<2x3xf32>",
            gives="tensor<2x3xf32>",
        ),
        SplitAlpha(),
    )


def test_operands_of_two_dtypes_are_refused(refused: Any, method: Any):
    refused(
        method(
            "%x: tensor<2x3xf32>, %z: tensor<2x3xf16>",
            "%y = aten.add.Tensor(%x, %z, alpha=2) : (tensor<2x3xf32>, tensor<2x3xf16>) -> tensor<2x3xf32>",
            gives="tensor<2x3xf32>",
        ),
        SplitAlpha(),
        "several dtypes",
    )


def test_a_factor_of_one_is_dropped(apply: Any, method: Any):
    done = apply(
        method(
            "%x: tensor<2x3xf32>, %z: tensor<2x3xf32>",
            "%y = aten.sub.Tensor(%x, %z, alpha=1) : (tensor<2x3xf32>, tensor<2x3xf32>) -> tensor<2x3xf32>",
            gives="tensor<2x3xf32>",
        ),
        SplitAlpha(),
    )
    assert done.ops() == ["aten.sub.Tensor"]
