"""MergeScalarProducts: beyond its documented example, and what it leaves alone."""

from typing import Any

import pytest

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
            "%a = aten.mul.Scalar(%x, 1.0e-10) : (tensor<2x3xf32>) -> tensor<2x3xf32>",
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


@pytest.mark.parametrize("late", [0, 1])
def test_a_factor_known_only_at_run_time_stays(late: int, refused: Any, method_of_n: Any) -> None:
    held, n = "tensor<3xf32>", ', !stepwell.int<"n">'
    numbers, types = ["2.0", "2.0"], [held, held]
    numbers[late], types[late] = "%n", held + n
    first = f"%a = aten.mul.Scalar(%x, {numbers[0]}) : ({types[0]}) -> {held}"
    second = f"%y = aten.mul.Scalar(%a, {numbers[1]}) : ({types[1]}) -> {held}"
    refused(method_of_n(f"%x: {held}", first, second, gives=held), MergeScalarProducts())
