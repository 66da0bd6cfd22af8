"""NormaliseNorm: beyond its documented example, and what it leaves alone."""

from typing import Any

from stepwell.translate.rewrites.aten.normalise_norm import NormaliseNorm


def test_statistics_that_are_used_keep_the_op(refused: Any, method: Any):
    refused(
        method(
            "%x: tensor<2x3xf32>",
            "%a, %y, %r = aten.native_layer_norm.default(%x, [3], none, none, 1.0e-5) : (tensor<2x3xf32>) -> (tensor<2x3xf32>, tensor<2x1xf32>, tensor<2x1xf32>)",
            gives="tensor<2x1xf32>",
        ),
        NormaliseNorm(),
        "training",
    )


def test_a_native_group_norm_is_a_group_norm(apply: Any, method: Any):
    done = apply(
        method(
            "%x: tensor<2x4x6xf32>, %w: tensor<4xf32>",
            "%y, %m, %r = aten.native_group_norm.default(%x, %w, none, 2, 4, 6, 2, 1.0e-5) : (tensor<2x4x6xf32>, tensor<4xf32>) -> (tensor<2x4x6xf32>, tensor<2x2xf32>, tensor<2x2xf32>)",
            gives="tensor<2x4x6xf32>",
        ),
        NormaliseNorm(),
    )
    assert done.ops() == ["aten.group_norm.default"]


def test_an_instance_norm_over_running_statistics_is_no_group_norm(refused: Any, method: Any):
    given = "tensor<2x3x4xf32>, tensor<3xf32>, tensor<3xf32>"
    text = method(
        "%x: tensor<2x3x4xf32>, %m: tensor<3xf32>",
        "%q = aten.mul.Tensor(%m, %m) : (tensor<3xf32>, tensor<3xf32>) -> tensor<3xf32>",
        f"%y = aten.instance_norm.default(%x, none, none, %m, %q, false, 0.1, 1.0e-5, false) : ({given}) -> tensor<2x3x4xf32>",
        gives="tensor<2x3x4xf32>",
    )
    refused(text, NormaliseNorm(), "running statistics")
