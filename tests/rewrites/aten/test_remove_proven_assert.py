"""RemoveProvenAssert: beyond its documented example, and what it leaves alone."""

from typing import Any

from stepwell.translate.rewrites.aten.remove_proven_assert import RemoveProvenAssert


def test_an_assertion_that_fails_stays(refused: Any, method: Any):
    refused(
        method(
            "%x: tensor<2x3xf32>",
            "aten._assert_tensor_metadata.default(%x, [2, 3], [3, 1]) : (tensor<2x3xf32>) -> ()",
            "%y = aten.neg.default(%x) : (tensor<2x3xf32>) -> tensor<2x3xf32>",
            gives="tensor<2x3xf32>",
        ),
        RemoveProvenAssert(),
        "strides",
    )
