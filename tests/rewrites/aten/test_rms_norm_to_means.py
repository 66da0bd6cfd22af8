"""RmsNormToMeans: beyond its documented example, and what it leaves alone."""

from typing import Any

from stepwell.translate.rewrites.aten.rms_norm_to_means import RmsNormToMeans


def test_half_precision_is_refused(refused: Any, method: Any):
    refused(
        method(
            "%x: tensor<2x3xf16>",
            "%y = aten.rms_norm.default(%x, [3]) : (tensor<2x3xf16>) -> tensor<2x3xf16>",
            gives="tensor<2x3xf16>",
        ),
        RmsNormToMeans(),
        "float32",
    )


def test_a_missing_epsilon_is_that_of_the_dtype(apply: Any, method: Any):
    done = apply(
        method(
            "%x: tensor<2x3xf32>",
            "%y = aten.rms_norm.default(%x, [2, 3]) : (tensor<2x3xf32>) -> tensor<2x3xf32>",
            gives="tensor<2x3xf32>",
        ),
        RmsNormToMeans(),
    )
    assert done.ops() == [
        "aten.mul.Tensor",
        "aten.mean.dim",
        "aten.add.Scalar",
        "aten.rsqrt.default",
        "aten.mul.Tensor",
    ]


def test_a_root_that_is_used_keeps_the_op(refused: Any, method: Any):
    line = "%a, %y = aten._fused_rms_norm.default(%x, [6], none, 1.0e-5) : (tensor<2x6xf32>) -> (tensor<2x6xf32>, tensor<2x1xf32>)"
    text = method("%x: tensor<2x6xf32>", line, gives="tensor<2x1xf32>")
    refused(text, RmsNormToMeans(), "training")
