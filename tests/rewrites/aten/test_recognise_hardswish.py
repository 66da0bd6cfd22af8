"""RecogniseHardswish: beyond its documented example, and what it leaves alone."""

from typing import Any

import pytest

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


@pytest.mark.parametrize(("element", "divisor"), [("f64", 6), ("f32", 5)])
def test_another_divisor_and_another_precision_stay(
    element: str, divisor: int, refused: Any, method: Any
):
    held = f"tensor<2x3x{element}>"
    text = method(
        f"%x: {held}",
        f"%a = aten.add.Scalar(%x, 3) : ({held}) -> {held}",
        f"%b = aten.clamp.default(%a, 0, 6) : ({held}) -> {held}",
        f"%c = aten.mul.Tensor(%b, %x) : ({held}, {held}) -> {held}",
        f"%y = aten.div.Scalar(%c, {divisor}) : ({held}) -> {held}",
        gives=held,
    )
    refused(text, RecogniseHardswish())
