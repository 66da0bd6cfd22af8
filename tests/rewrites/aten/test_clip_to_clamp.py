"""ClipToClamp: beyond its documented example, and what it leaves alone."""

from typing import Any

from stepwell.translate.rewrites.aten.clip_to_clamp import ClipToClamp


def test_a_threshold_that_jumps_is_refused(refused: Any, method: Any):
    refused(
        method(
            "%x: tensor<2x3xf32>",
            "%y = aten.threshold.default(%x, 1, 0) : (tensor<2x3xf32>) -> tensor<2x3xf32>",
            gives="tensor<2x3xf32>",
        ),
        ClipToClamp(),
        "jumps",
    )


def test_bounds_that_promote_integers_are_refused(refused: Any, method: Any):
    refused(
        method(
            "%x: tensor<2x3xi64>",
            "%y = aten.clamp_min.default(%x, 0.5) : (tensor<2x3xi64>) -> tensor<2x3xf32>",
            gives="tensor<2x3xf32>",
        ),
        ClipToClamp(),
        "promote",
    )


def test_a_tensor_as_bound_is_a_maximum(apply: Any, method: Any):
    done = apply(
        method(
            "%x: tensor<2x3xf32>, %z: tensor<2x3xf32>",
            "%y = aten.clamp_min.Tensor(%x, %z) : (tensor<2x3xf32>, tensor<2x3xf32>) -> tensor<2x3xf32>",
            gives="tensor<2x3xf32>",
        ),
        ClipToClamp(),
    )
    assert done.ops() == ["aten.maximum.default"]
