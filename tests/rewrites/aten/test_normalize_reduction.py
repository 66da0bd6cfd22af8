"""NormalizeReduction: beyond its documented example, and what it leaves alone."""

from typing import Any

from stepwell.translate.decompositions.aten import products
from stepwell.translate.lowerings.lowering import step


def test_indices_that_are_used_keep_the_op(refused: Any, method: Any):
    refused(
        method(
            "%x: tensor<2x3xf32>",
            "%a, %y = aten.max.dim(%x, 1) : (tensor<2x3xf32>) -> (tensor<2xf32>, tensor<2xi64>)",
            gives="tensor<2xi64>",
        ),
        step(products.normalize_reduction),
        "indices",
    )


def test_a_mean_in_normal_form_stays(refused: Any, method: Any):
    refused(
        method(
            "%x: tensor<2x3xf32>",
            "%y = aten.mean.dim(%x, [1], true) : (tensor<2x3xf32>) -> tensor<2x1xf32>",
            gives="tensor<2x1xf32>",
        ),
        step(products.normalize_reduction),
    )


def test_a_sum_of_integers_casts_them_as_torch_does(apply: Any, method: Any):
    done = apply(
        method(
            "%x: tensor<2x3xi32>",
            "%y = aten.sum.dim_IntList(%x, [1]) : (tensor<2x3xi32>) -> tensor<2xi64>",
            gives="tensor<2xi64>",
        ),
        step(products.normalize_reduction),
    )
    assert done.ops() == ["aten._to_copy.default", "aten.sum.dim_IntList", "aten.view.default"]


def test_a_dtype_casts_the_operand_first(apply: Any, method: Any):
    done = apply(
        method(
            "%x: tensor<2x3xf32>",
            "%y = aten.mean.dim(%x, [0], true, dtype=f64) : (tensor<2x3xf32>) -> tensor<1x3xf64>",
            gives="tensor<1x3xf64>",
        ),
        step(products.normalize_reduction),
    )
    assert done.ops() == ["aten._to_copy.default", "aten.mean.dim"]


def test_a_number_has_no_axes_to_reduce(refused: Any, method: Any):
    line = "%y = aten.sum.default(%x) : (tensor<f32>) -> tensor<f32>"
    refused(
        method("%x: tensor<f32>", line, gives="tensor<f32>"), step(products.normalize_reduction)
    )
