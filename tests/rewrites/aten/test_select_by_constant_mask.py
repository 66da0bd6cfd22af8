"""SelectByConstantMask: beyond its documented example, and what it leaves alone."""

from typing import Any

import pytest

from stepwell.translate.rewrites.slices.select_by_constant_mask import SelectByConstantMask


def test_a_mixed_mask_is_left_where_a_nan_could_hide(refused: Any, method: Any):
    refused(
        method(
            "%x: tensor<3x3xf32>",
            '%m = stepwell.weight <"m#causal"> "constant" : tensor<3x3xi1>',
            "%y = aten.masked_fill.Scalar(%x, %m, -inf) : (tensor<3x3xf32>, tensor<3x3xi1>) -> tensor<3x3xf32>",
            gives="tensor<3x3xf32>",
        ),
        SelectByConstantMask(),
        "NaN",
    )


def test_a_finite_other_side_is_no_arithmetic(refused: Any, method: Any):
    refused(
        method(
            "%x: tensor<3x3xf32>",
            '%m = stepwell.weight <"m#causal"> "constant" : tensor<3x3xi1>',
            "%y = aten.masked_fill.Scalar(%x, %m, 0.0) : (tensor<3x3xf32>, tensor<3x3xi1>) -> tensor<3x3xf32>",
            gives="tensor<3x3xf32>",
        ),
        SelectByConstantMask(hides_no_nan=True),
        "no arithmetic is exact",
    )


def test_a_computed_mask_stays(refused: Any, method: Any):
    refused(
        method(
            "%x: tensor<3x3xf32>, %m: tensor<3x3xi1>",
            "%y = aten.masked_fill.Scalar(%x, %m, 0.0) : (tensor<3x3xf32>, tensor<3x3xi1>) -> tensor<3x3xf32>",
            gives="tensor<3x3xf32>",
        ),
        SelectByConstantMask(),
    )


def test_minus_infinity_is_a_minimum_where_no_nan_can_hide(apply: Any, method: Any):
    done = apply(
        method(
            "%x: tensor<3x3xf32>",
            '%m = stepwell.weight <"m#causal"> "constant" : tensor<3x3xi1>',
            "%y = aten.where.ScalarOther(%m, %x, -inf) : (tensor<3x3xi1>, tensor<3x3xf32>) -> tensor<3x3xf32>",
            gives="tensor<3x3xf32>",
        ),
        SelectByConstantMask(hides_no_nan=True),
    )
    assert done.ops() == ["aten.minimum.default"]


@pytest.mark.parametrize("given", ["1x3xf32", "3x3xcomplex<f32>"])
def test_a_kept_side_that_grows_or_has_no_order_is_refused(given: str, refused: Any, method: Any):
    gives = "tensor<3x3x" + given[4:] + ">"
    text = method(
        f"%x: tensor<{given}>",
        '%m = stepwell.weight <"m#causal"> "constant" : tensor<3x3xi1>',
        f"%y = aten.where.ScalarOther(%m, %x, -inf) : (tensor<3x3xi1>, tensor<{given}>) -> {gives}",
        gives=gives,
    )
    refused(text, SelectByConstantMask(hides_no_nan=True), "broadcast or cast")
