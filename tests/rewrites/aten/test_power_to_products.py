"""PowerToProducts: beyond its documented example, and what it leaves alone."""

from typing import Any

from stepwell.translate.rewrites.aten.power_to_products import PowerToProducts


def test_a_fourth_power_stays(refused: Any, method: Any):
    refused(
        method(
            "%x: tensor<2x3xf32>",
            "%y = aten.pow.Tensor_Scalar(%x, 4) : (tensor<2x3xf32>) -> tensor<2x3xf32>",
            gives="tensor<2x3xf32>",
        ),
        PowerToProducts(),
    )


def test_half_precision_is_rounded_once(refused: Any, method: Any):
    refused(
        method(
            "%x: tensor<2x3xf16>",
            "%y = aten.pow.Tensor_Scalar(%x, 2) : (tensor<2x3xf16>) -> tensor<2x3xf16>",
            gives="tensor<2x3xf16>",
        ),
        PowerToProducts(),
        "rounds",
    )


def test_an_exponent_that_promotes_is_refused(refused: Any, method: Any):
    refused(
        method(
            "%x: tensor<2x3xi64>",
            "%y = aten.pow.Tensor_Scalar(%x, 2.0) : (tensor<2x3xi64>) -> tensor<2x3xf32>",
            gives="tensor<2x3xf32>",
        ),
        PowerToProducts(),
        "promotes",
    )


def test_a_cube_is_two_products(apply: Any, method: Any):
    done = apply(
        method(
            "%x: tensor<2x3xf32>",
            "%y = aten.pow.Tensor_Scalar(%x, 3.0) : (tensor<2x3xf32>) -> tensor<2x3xf32>",
            gives="tensor<2x3xf32>",
        ),
        PowerToProducts(),
    )
    assert done.ops() == ["aten.mul.Tensor", "aten.mul.Tensor"]


def test_an_inverse_square_is_a_product_and_a_reciprocal(apply: Any, method: Any):
    done = apply(
        method(
            "%x: tensor<2x3xf32>",
            "%y = aten.pow.Tensor_Scalar(%x, -2) : (tensor<2x3xf32>) -> tensor<2x3xf32>",
            gives="tensor<2x3xf32>",
        ),
        PowerToProducts(),
    )
    assert done.ops() == ["aten.mul.Tensor", "aten.reciprocal.default"]
