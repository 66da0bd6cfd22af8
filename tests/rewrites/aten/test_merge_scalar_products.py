"""MergeScalarProducts: beyond its documented example, and what it leaves alone."""

from typing import Any

from stepwell.translate.rewrites.aten.merge_scalar_products import MergeScalarProducts


def test_a_product_read_twice_stays(refused: Any, method: Any):
    refused(
        method(
            "%x: tensor<2x3xf32>",
            "%a = aten.mul.Scalar(%x, 2) : (tensor<2x3xf32>) -> tensor<2x3xf32>",
            "%b = aten.mul.Scalar(%a, 3) : (tensor<2x3xf32>) -> tensor<2x3xf32>",
            "%y = aten.add.Tensor(%a, %b) : (tensor<2x3xf32>, tensor<2x3xf32>) -> tensor<2x3xf32>",
            gives="tensor<2x3xf32>",
        ),
        MergeScalarProducts(),
    )


def test_a_factor_that_underflows_is_refused(refused: Any, method: Any):
    refused(
        method(
            "%x: tensor<2x3xf32>",
            "%a = aten.mul.Scalar(%x, 1.0e-30) : (tensor<2x3xf32>) -> tensor<2x3xf32>",
            "%y = aten.mul.Scalar(%a, 1.0e-30) : (tensor<2x3xf32>) -> tensor<2x3xf32>",
            gives="tensor<2x3xf32>",
        ),
        MergeScalarProducts(),
        "underflow",
    )


def test_integers_stay(refused: Any, method: Any):
    refused(
        method(
            "%x: tensor<2x3xi64>",
            "%a = aten.mul.Scalar(%x, 2) : (tensor<2x3xi64>) -> tensor<2x3xi64>",
            "%y = aten.mul.Scalar(%a, 3) : (tensor<2x3xi64>) -> tensor<2x3xi64>",
            gives="tensor<2x3xi64>",
        ),
        MergeScalarProducts(),
    )


def test_a_first_product_that_overflows_stays(refused: Any, method: Any) -> None:
    first = "%a = aten.mul.Scalar(%x, 1.0e+30) : (tensor<2x3xf32>) -> tensor<2x3xf32>"
    second = "%y = aten.mul.Scalar(%a, 1.0e-30) : (tensor<2x3xf32>) -> tensor<2x3xf32>"
    text = method("%x: tensor<2x3xf32>", first, second, gives="tensor<2x3xf32>")
    refused(text, MergeScalarProducts(), "overflow")
