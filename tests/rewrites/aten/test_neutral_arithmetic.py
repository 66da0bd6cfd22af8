"""Arithmetic with neutral numbers: beyond its examples, and what stays."""

from typing import Any

from stepwell.translate.canonicalize.neutral_arithmetic import RULES

ALL = {rule.name: rule() for rule in RULES}


def test_adding_positive_zero_stays_because_of_negative_zero(refused: Any, method: Any):
    refused(
        method(
            "%x: tensor<2x3xf32>",
            "%y = aten.add.Scalar(%x, 0.0) : (tensor<2x3xf32>) -> tensor<2x3xf32>",
            gives="tensor<2x3xf32>",
        ),
        ALL["remove-neutral-sum"],
        "0.0",
    )


def test_subtracting_zero_times_a_negative_alpha_stays(refused: Any, method: Any):
    refused(
        method(
            "%x: tensor<2x3xf32>",
            "%y = aten.sub.Scalar(%x, 0.0, -1) : (tensor<2x3xf32>) -> tensor<2x3xf32>",
            gives="tensor<2x3xf32>",
        ),
        ALL["remove-neutral-difference"],
        "0.0",
    )


def test_subtracting_zero_times_a_whole_zero_stays(refused: Any, method: Any):
    refused(
        method(
            "%x: tensor<2x3xf32>",
            "%y = aten.sub.Scalar(%x, 0, 0) : (tensor<2x3xf32>) -> tensor<2x3xf32>",
            gives="tensor<2x3xf32>",
        ),
        ALL["remove-neutral-difference"],
        "0.0",
    )


def test_a_product_that_promotes_integers_stays(refused: Any, method: Any):
    refused(
        method(
            "%x: tensor<2x3xi64>",
            "%y = aten.mul.Scalar(%x, 1.0) : (tensor<2x3xi64>) -> tensor<2x3xf32>",
            gives="tensor<2x3xf32>",
        ),
        ALL["remove-neutral-product"],
    )


def test_a_product_with_another_number_stays(refused: Any, method: Any):
    refused(
        method(
            "%x: tensor<2x3xf32>",
            "%y = aten.mul.Scalar(%x, 1.5) : (tensor<2x3xf32>) -> tensor<2x3xf32>",
            gives="tensor<2x3xf32>",
        ),
        ALL["remove-neutral-product"],
    )


def test_adding_negative_zero_goes(apply: Any, method: Any):
    done = apply(
        method(
            "%x: tensor<2x3xf32>",
            "%a = aten.add.Scalar(%x, -0.0) : (tensor<2x3xf32>) -> tensor<2x3xf32>",
            "%y = aten.neg.default(%a) : (tensor<2x3xf32>) -> tensor<2x3xf32>",
            gives="tensor<2x3xf32>",
        ),
        *ALL.values(),
    )
    assert done.ops() == ["aten.neg.default"]


def test_adding_zero_to_integers_goes(apply: Any, method: Any):
    done = apply(
        method(
            "%x: tensor<2x3xi64>",
            "%a = aten.add.Scalar(%x, 0) : (tensor<2x3xi64>) -> tensor<2x3xi64>",
            "%y = aten.neg.default(%a) : (tensor<2x3xi64>) -> tensor<2x3xi64>",
            gives="tensor<2x3xi64>",
        ),
        *ALL.values(),
    )
    assert done.ops() == ["aten.neg.default"]


def test_zero_times_an_infinite_alpha_is_no_zero(refused: Any, method: Any):
    refused(
        method(
            "%x: tensor<2x3xf32>",
            "%y = aten.sub.Scalar(%x, 0.0, inf) : (tensor<2x3xf32>) -> tensor<2x3xf32>",
            gives="tensor<2x3xf32>",
        ),
        ALL["remove-neutral-difference"],
        "times that is NaN",
    )
