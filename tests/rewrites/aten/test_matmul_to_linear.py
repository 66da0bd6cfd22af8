"""MatmulToLinear: beyond its documented example, and what it leaves alone."""

from typing import Any

from stepwell.translate.decompositions.aten import products
from stepwell.translate.lowerings.lowering import step


def test_a_product_with_a_computed_matrix_stays(refused: Any, method: Any):
    refused(
        method(
            "%x: tensor<2x3xf32>, %w: tensor<3x4xf32>",
            "%y = aten.mm.default(%x, %w) : (tensor<2x3xf32>, tensor<3x4xf32>) -> tensor<2x4xf32>",
            gives="tensor<2x4xf32>",
        ),
        step(products.matmul_to_linear),
    )


def test_factors_are_refused(refused: Any, method: Any):
    refused(
        method(
            "%x: tensor<2x3xf32>, %b: tensor<4xf32>",
            '%w = stepwell.weight <"w"> "parameter" : tensor<3x4xf32>',
            "%y = aten.addmm.default(%b, %x, %w, beta=2) : (tensor<4xf32>, tensor<2x3xf32>, tensor<3x4xf32>) -> tensor<2x4xf32>",
            gives="tensor<2x4xf32>",
        ),
        step(products.matmul_to_linear),
        "alpha or beta",
    )


def test_a_residual_in_addmm_is_added_behind(apply: Any, method: Any):
    done = apply(
        method(
            "%x: tensor<2x3xf32>, %b: tensor<2x4xf32>",
            '%w = stepwell.weight <"w"> "parameter" : tensor<3x4xf32>',
            "%y = aten.addmm.default(%b, %x, %w) : (tensor<2x4xf32>, tensor<2x3xf32>, tensor<3x4xf32>) -> tensor<2x4xf32>",
            gives="tensor<2x4xf32>",
        ),
        step(products.matmul_to_linear),
    )
    assert done.ops() == ["aten.linear.default", "aten.add.Tensor"]


def test_a_batch_times_a_weight_is_one_linear(apply: Any, method: Any):
    done = apply(
        method(
            "%x: tensor<5x2x3xf32>",
            '%w = stepwell.weight <"w"> "parameter" : tensor<3x4xf32>',
            "%y = aten.matmul.default(%x, %w) : (tensor<5x2x3xf32>, tensor<3x4xf32>) -> tensor<5x2x4xf32>",
            gives="tensor<5x2x4xf32>",
        ),
        step(products.matmul_to_linear),
    )
    assert done.ops() == ["aten.linear.default"]


def test_a_product_with_a_vector_is_no_layer(refused: Any, method: Any):
    weight = '%w = stepwell.weight <"w"> "parameter" : tensor<3xf32>'
    call = "%y = aten.matmul.default(%x, %w) : (tensor<2x3xf32>, tensor<3xf32>) -> tensor<2xf32>"
    refused(
        method("%x: tensor<2x3xf32>", weight, call, gives="tensor<2xf32>"),
        step(products.matmul_to_linear),
    )
