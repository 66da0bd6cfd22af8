"""RecogniseHardswish: beyond its documented example, and what it leaves alone."""

from typing import Any

from stepwell.translate.rewrites.aten.recognise_hardswish import RecogniseHardswish


def test_the_gate_of_another_tensor_stays(refused: Any, method: Any):
    refused(
        method(
            "%x: tensor<2x3xf32>, %z: tensor<2x3xf32>",
            "%a = aten.hardsigmoid.default(%z) : (tensor<2x3xf32>) -> tensor<2x3xf32>",
            "%y = aten.mul.Tensor(%x, %a) : (tensor<2x3xf32>, tensor<2x3xf32>) -> tensor<2x3xf32>",
            gives="tensor<2x3xf32>",
        ),
        RecogniseHardswish(),
    )


def test_another_shift_stays(refused: Any, method: Any):
    refused(
        method(
            "%x: tensor<2x3xf32>",
            "%a = aten.add.Scalar(%x, 2) : (tensor<2x3xf32>) -> tensor<2x3xf32>",
            "%b = aten.clamp.default(%a, 0, 6) : (tensor<2x3xf32>) -> tensor<2x3xf32>",
            "%c = aten.div.Scalar(%b, 6) : (tensor<2x3xf32>) -> tensor<2x3xf32>",
            "%y = aten.mul.Tensor(%x, %c) : (tensor<2x3xf32>, tensor<2x3xf32>) -> tensor<2x3xf32>",
            gives="tensor<2x3xf32>",
        ),
        RecogniseHardswish(),
    )


def test_the_quotient_may_come_last(apply: Any, method: Any):
    done = apply(
        method(
            "%x: tensor<2x3xf32>",
            "%a = aten.add.Scalar(%x, 3) : (tensor<2x3xf32>) -> tensor<2x3xf32>",
            "%b = aten.clamp.default(%a, 0, 6) : (tensor<2x3xf32>) -> tensor<2x3xf32>",
            "%c = aten.mul.Tensor(%b, %x) : (tensor<2x3xf32>, tensor<2x3xf32>) -> tensor<2x3xf32>",
            "%y = aten.div.Scalar(%c, 6) : (tensor<2x3xf32>) -> tensor<2x3xf32>",
            gives="tensor<2x3xf32>",
        ),
        RecogniseHardswish(),
    )
    assert done.ops() == ["aten.hardswish.default"]
