"""DivisionToMultiplication: beyond its documented example, and what it leaves alone."""

from typing import Any

from stepwell.translate.rewrites.aten.division_to_multiplication import DivisionToMultiplication


def test_a_third_is_not_exact(refused: Any, method: Any):
    refused(
        method(
            "%x: tensor<2x3xf32>",
            "%y = aten.div.Scalar(%x, 3.0) : (tensor<2x3xf32>) -> tensor<2x3xf32>",
            gives="tensor<2x3xf32>",
        ),
        DivisionToMultiplication(),
        "not exact",
    )


def test_a_power_of_two_whose_reciprocal_is_subnormal_is_refused(refused: Any, method: Any):
    refused(
        method(
            "%x: tensor<2x3xf32>",
            "%y = aten.div.Scalar(%x, 1.7014118346046923e+38) : (tensor<2x3xf32>) -> tensor<2x3xf32>",
            gives="tensor<2x3xf32>",
        ),
        DivisionToMultiplication(),
        "not exact",
    )


def test_integers_divided_stay(refused: Any, method: Any):
    refused(
        method(
            "%x: tensor<2x3xi64>",
            "%y = aten.div.Scalar(%x, 2) : (tensor<2x3xi64>) -> tensor<2x3xf32>",
            gives="tensor<2x3xf32>",
        ),
        DivisionToMultiplication(),
    )


def test_a_divisor_known_only_at_run_time_stays(refused: Any, method_of_n: Any):
    types = '(tensor<3xf32>, !stepwell.int<"n">) -> tensor<3xf32>'
    call = f"%y = aten.div.Scalar(%x, %n) : {types}"
    refused(
        method_of_n("%x: tensor<3xf32>", call, gives="tensor<3xf32>"), DivisionToMultiplication()
    )
