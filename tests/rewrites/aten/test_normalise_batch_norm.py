"""NormaliseBatchNorm: beyond its documented example, and what it leaves alone."""

from typing import Any

from stepwell.translate.rewrites.aten.normalise_batch_norm import NormaliseBatchNorm


def test_training_mode_is_refused(refused: Any, method: Any):
    refused(
        method(
            "%x: tensor<2x3x4xf32>",
            "%y, %a, %b = aten.native_batch_norm.default(%x, none, none, none, none, true, 0.1, 1.0e-5) : (tensor<2x3x4xf32>) -> (tensor<2x3x4xf32>, tensor<3xf32>, tensor<3xf32>)",
            gives="tensor<2x3x4xf32>",
        ),
        NormaliseBatchNorm(),
        "training mode",
    )


def test_an_instance_norm_over_running_statistics_is_a_batch_norm(apply: Any, method: Any):
    done = apply(
        method(
            "%x: tensor<2x3x4xf32>, %m: tensor<3xf32>",
            "%q = aten.mul.Tensor(%m, %m) : (tensor<3xf32>, tensor<3xf32>) -> tensor<3xf32>",
            "%y = aten.instance_norm.default(%x, none, none, %m, %q, false, 0.1, 1.0e-5, false) : (tensor<2x3x4xf32>, tensor<3xf32>, tensor<3xf32>) -> tensor<2x3x4xf32>",
            gives="tensor<2x3x4xf32>",
        ),
        NormaliseBatchNorm(),
    )
    assert done.ops() == ["aten.mul.Tensor", "aten.batch_norm.default"]


def test_an_instance_norm_over_its_own_statistics_is_no_batch_norm(refused: Any, method: Any):
    given = "tensor<2x3x4xf32>, tensor<3xf32>, tensor<3xf32>"
    text = method(
        "%x: tensor<2x3x4xf32>, %m: tensor<3xf32>",
        "%q = aten.mul.Tensor(%m, %m) : (tensor<3xf32>, tensor<3xf32>) -> tensor<3xf32>",
        f"%y = aten.instance_norm.default(%x, none, none, %m, %q, true, 0.1, 1.0e-5, false) : ({given}) -> tensor<2x3x4xf32>",
        gives="tensor<2x3x4xf32>",
    )
    refused(text, NormaliseBatchNorm())


def test_saved_statistics_that_are_used_keep_the_op(refused: Any, method: Any):
    given = "tensor<2x3x4xf32>, tensor<3xf32>, tensor<3xf32>"
    text = method(
        "%x: tensor<2x3x4xf32>, %m: tensor<3xf32>",
        "%q = aten.mul.Tensor(%m, %m) : (tensor<3xf32>, tensor<3xf32>) -> tensor<3xf32>",
        f"%a, %y, %b = aten._native_batch_norm_legit_no_training.default(%x, none, none, %m, %q, 0.1, 1.0e-5) : ({given}) -> (tensor<2x3x4xf32>, tensor<0xf32>, tensor<0xf32>)",
        gives="tensor<0xf32>",
    )
    refused(text, NormaliseBatchNorm(), "saves")
