"""Norms: beyond their examples, and what stays."""

from typing import Any

from stepwell.translate.rewrites.norms.norms import RULES

ALL = {rule.name: rule() for rule in RULES}


def test_statistics_that_are_used_keep_the_op(refused: Any, method: Any):
    refused(
        method(
            "%x: tensor<2x3xf32>",
            "%a, %y, %r = aten.native_layer_norm.default(%x, [3], none, none, 1.0e-5) : (tensor<2x3xf32>) -> (tensor<2x3xf32>, tensor<2x1xf32>, tensor<2x1xf32>)",
            gives="tensor<2x1xf32>",
        ),
        ALL["native-layer-norm-to-layer-norm"],
        "training",
    )


def test_a_native_group_norm_is_a_group_norm(apply: Any, method: Any):
    done = apply(
        method(
            "%x: tensor<2x4x6xf32>, %w: tensor<4xf32>",
            "%y, %m, %r = aten.native_group_norm.default(%x, %w, none, 2, 4, 6, 2, 1.0e-5) : (tensor<2x4x6xf32>, tensor<4xf32>) -> (tensor<2x4x6xf32>, tensor<2x2xf32>, tensor<2x2xf32>)",
            gives="tensor<2x4x6xf32>",
        ),
        *ALL.values(),
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
    refused(text, ALL["instance-norm-to-group-norm"], "running statistics")


def test_training_mode_is_refused(refused: Any, method: Any):
    refused(
        method(
            "%x: tensor<2x3x4xf32>",
            "%y, %a, %b = aten.native_batch_norm.default(%x, none, none, none, none, true, 0.1, 1.0e-5) : (tensor<2x3x4xf32>) -> (tensor<2x3x4xf32>, tensor<3xf32>, tensor<3xf32>)",
            gives="tensor<2x3x4xf32>",
        ),
        ALL["native-batch-norm-to-batch-norm"],
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
        *ALL.values(),
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
    refused(text, ALL["instance-norm-to-batch-norm"])


def test_saved_statistics_that_are_used_keep_the_op(refused: Any, method: Any):
    given = "tensor<2x3x4xf32>, tensor<3xf32>, tensor<3xf32>"
    text = method(
        "%x: tensor<2x3x4xf32>, %m: tensor<3xf32>",
        "%q = aten.mul.Tensor(%m, %m) : (tensor<3xf32>, tensor<3xf32>) -> tensor<3xf32>",
        f"%a, %y, %b = aten._native_batch_norm_legit_no_training.default(%x, none, none, %m, %q, 0.1, 1.0e-5) : ({given}) -> (tensor<2x3x4xf32>, tensor<0xf32>, tensor<0xf32>)",
        gives="tensor<0xf32>",
    )
    refused(text, ALL["inference-batch-norm-to-batch-norm"], "saves")


def test_half_precision_is_refused(refused: Any, method: Any):
    refused(
        method(
            "%x: tensor<2x3xf16>",
            "%y = aten.rms_norm.default(%x, [3]) : (tensor<2x3xf16>) -> tensor<2x3xf16>",
            gives="tensor<2x3xf16>",
        ),
        ALL["plain-rms-norm-to-means"],
        "float32",
    )


def test_a_missing_epsilon_is_that_of_the_dtype(apply: Any, method: Any):
    done = apply(
        method(
            "%x: tensor<2x3xf32>",
            "%y = aten.rms_norm.default(%x, [2, 3]) : (tensor<2x3xf32>) -> tensor<2x3xf32>",
            gives="tensor<2x3xf32>",
        ),
        *ALL.values(),
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
    refused(text, ALL["fused-rms-norm-to-rms-norm"], "training")
