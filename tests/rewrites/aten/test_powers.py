"""Powers, quotients and factors: beyond their examples, and what stays."""

from typing import Any

import pytest

from stepwell.translate.canonicalize.powers import RULES

ALL = {rule.name: rule() for rule in RULES}


@pytest.mark.parametrize("name", [name for name in ALL if name.startswith("power-")])
def test_a_fourth_power_stays(name: str, refused: Any, method: Any):
    refused(
        method(
            "%x: tensor<2x3xf32>",
            "%y = aten.pow.Tensor_Scalar(%x, 4) : (tensor<2x3xf32>) -> tensor<2x3xf32>",
            gives="tensor<2x3xf32>",
        ),
        ALL[name],
    )


def test_half_precision_is_rounded_once(refused: Any, method: Any):
    refused(
        method(
            "%x: tensor<2x3xf16>",
            "%y = aten.pow.Tensor_Scalar(%x, 2) : (tensor<2x3xf16>) -> tensor<2x3xf16>",
            gives="tensor<2x3xf16>",
        ),
        ALL["power-to-square"],
        "rounds",
    )


def test_an_exponent_that_promotes_is_refused(refused: Any, method: Any):
    refused(
        method(
            "%x: tensor<2x3xi64>",
            "%y = aten.pow.Tensor_Scalar(%x, 2.0) : (tensor<2x3xi64>) -> tensor<2x3xf32>",
            gives="tensor<2x3xf32>",
        ),
        ALL["power-to-square"],
        "rounds",
    )


def test_a_cube_is_two_products(apply: Any, method: Any):
    done = apply(
        method(
            "%x: tensor<2x3xf32>",
            "%y = aten.pow.Tensor_Scalar(%x, 3.0) : (tensor<2x3xf32>) -> tensor<2x3xf32>",
            gives="tensor<2x3xf32>",
        ),
        *ALL.values(),
    )
    assert done.ops() == ["aten.mul.Tensor", "aten.mul.Tensor"]


def test_an_inverse_square_is_a_product_and_a_reciprocal(apply: Any, method: Any):
    done = apply(
        method(
            "%x: tensor<2x3xf32>",
            "%y = aten.pow.Tensor_Scalar(%x, -2) : (tensor<2x3xf32>) -> tensor<2x3xf32>",
            gives="tensor<2x3xf32>",
        ),
        *ALL.values(),
    )
    assert done.ops() == ["aten.mul.Tensor", "aten.reciprocal.default"]


def test_a_third_is_not_exact(refused: Any, method: Any):
    refused(
        method(
            "%x: tensor<2x3xf32>",
            "%y = aten.div.Scalar(%x, 3.0) : (tensor<2x3xf32>) -> tensor<2x3xf32>",
            gives="tensor<2x3xf32>",
        ),
        ALL["division-to-multiplication"],
        "not exact",
    )


def test_a_power_of_two_whose_reciprocal_is_subnormal_is_refused(refused: Any, method: Any):
    refused(
        method(
            "%x: tensor<2x3xf32>",
            "%y = aten.div.Scalar(%x, 1.7014118346046923e+38) : (tensor<2x3xf32>) -> tensor<2x3xf32>",
            gives="tensor<2x3xf32>",
        ),
        ALL["division-to-multiplication"],
        "not exact",
    )


def test_integers_divided_stay(refused: Any, method: Any):
    refused(
        method(
            "%x: tensor<2x3xi64>",
            "%y = aten.div.Scalar(%x, 2) : (tensor<2x3xi64>) -> tensor<2x3xf32>",
            gives="tensor<2x3xf32>",
        ),
        ALL["division-to-multiplication"],
    )


def test_a_divisor_known_only_at_run_time_stays(refused: Any, method_of_n: Any):
    types = '(tensor<3xf32>, !stepwell.int<"n">) -> tensor<3xf32>'
    call = f"%y = aten.div.Scalar(%x, %n) : {types}"
    refused(
        method_of_n("%x: tensor<3xf32>", call, gives="tensor<3xf32>"),
        ALL["division-to-multiplication"],
        "known only at run time",
    )


def test_a_product_read_twice_stays(refused: Any, method: Any):
    refused(
        method(
            "%x: tensor<2x3xf32>",
            "%a = aten.mul.Scalar(%x, 2) : (tensor<2x3xf32>) -> tensor<2x3xf32>",
            "%b = aten.mul.Scalar(%a, 3) : (tensor<2x3xf32>) -> tensor<2x3xf32>",
            "%y = aten.add.Tensor(%a, %b) : (tensor<2x3xf32>, tensor<2x3xf32>) -> tensor<2x3xf32>",
            gives="tensor<2x3xf32>",
        ),
        ALL["merge-scalar-products"],
    )


def test_a_factor_that_underflows_is_refused(refused: Any, method: Any):
    refused(
        method(
            "%x: tensor<2x3xf32>",
            "%a = aten.mul.Scalar(%x, 1.0e-10) : (tensor<2x3xf32>) -> tensor<2x3xf32>",
            "%y = aten.mul.Scalar(%a, 1.0e-30) : (tensor<2x3xf32>) -> tensor<2x3xf32>",
            gives="tensor<2x3xf32>",
        ),
        ALL["merge-scalar-products"],
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
        ALL["merge-scalar-products"],
    )


def test_a_first_product_that_overflows_stays(refused: Any, method: Any) -> None:
    first = "%a = aten.mul.Scalar(%x, 1.0e+30) : (tensor<2x3xf32>) -> tensor<2x3xf32>"
    second = "%y = aten.mul.Scalar(%a, 1.0e-30) : (tensor<2x3xf32>) -> tensor<2x3xf32>"
    text = method("%x: tensor<2x3xf32>", first, second, gives="tensor<2x3xf32>")
    refused(text, ALL["merge-scalar-products"], "overflow")


@pytest.mark.parametrize("factors", [("1.0e-10", "1.0e+10"), ("1.0e+15", "1.0e-15")])
def test_factors_of_which_one_grows_and_one_shrinks_stay(
    factors: tuple[str, str], refused: Any, method: Any
) -> None:
    first = f"%a = aten.mul.Scalar(%x, {factors[0]}) : (tensor<2x3xf32>) -> tensor<2x3xf32>"
    second = f"%y = aten.mul.Scalar(%a, {factors[1]}) : (tensor<2x3xf32>) -> tensor<2x3xf32>"
    text = method("%x: tensor<2x3xf32>", first, second, gives="tensor<2x3xf32>")
    refused(text, ALL["merge-scalar-products"], "shrinks and one grows")


@pytest.mark.parametrize("late", [0, 1])
def test_a_factor_known_only_at_run_time_stays(late: int, refused: Any, method_of_n: Any) -> None:
    held, n = "tensor<3xf32>", ', !stepwell.int<"n">'
    numbers, types = ["2.0", "2.0"], [held, held]
    numbers[late], types[late] = "%n", held + n
    first = f"%a = aten.mul.Scalar(%x, {numbers[0]}) : ({types[0]}) -> {held}"
    second = f"%y = aten.mul.Scalar(%a, {numbers[1]}) : ({types[1]}) -> {held}"
    refused(method_of_n(f"%x: {held}", first, second, gives=held), ALL["merge-scalar-products"])
