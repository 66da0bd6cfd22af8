"""MatmulToBmm: beyond its documented example, and what it leaves alone."""

from typing import Any

import pytest

from stepwell.translate.decompositions.aten import products
from stepwell.translate.lowerings.lowering import step


def test_a_product_with_a_weight_is_left_to_linear(refused: Any, method: Any):
    refused(
        method(
            "%x: tensor<2x3xf32>",
            '%w = stepwell.weight <"w"> "parameter" : tensor<3x4xf32>',
            "%y = aten.mm.default(%x, %w) : (tensor<2x3xf32>, tensor<3x4xf32>) -> tensor<2x4xf32>",
            gives="tensor<2x4xf32>",
        ),
        step(products.matmul_to_bmm),
    )


def test_factors_are_refused(refused: Any, method: Any):
    refused(
        method(
            "%x: tensor<1x2x3xf32>, %w: tensor<1x3x4xf32>, %b: tensor<1x2x4xf32>",
            "%y = aten.baddbmm.default(%b, %x, %w, alpha=2) : (tensor<1x2x4xf32>, tensor<1x2x3xf32>, tensor<1x3x4xf32>) -> tensor<1x2x4xf32>",
            gives="tensor<1x2x4xf32>",
        ),
        step(products.matmul_to_bmm),
        "alpha or beta",
    )


def test_a_dot_product_is_one_row_times_one_column(apply: Any, method: Any):
    done = apply(
        method(
            "%x: tensor<3xf32>, %w: tensor<3xf32>",
            "%y = aten.dot.default(%x, %w) : (tensor<3xf32>, tensor<3xf32>) -> tensor<f32>",
            gives="tensor<f32>",
        ),
        step(products.matmul_to_bmm),
    )
    assert done.ops() == [
        "aten.view.default",
        "aten.view.default",
        "aten.bmm.default",
        "aten.view.default",
    ]


def test_a_matrix_on_the_right_of_a_batch_is_not_repeated(apply: Any, method: Any):
    done = apply(
        method(
            "%x: tensor<5x2x3xf32>, %w: tensor<3x4xf32>",
            "%y = aten.matmul.default(%x, %w) : (tensor<5x2x3xf32>, tensor<3x4xf32>) -> tensor<5x2x4xf32>",
            gives="tensor<5x2x4xf32>",
        ),
        step(products.matmul_to_bmm),
    )
    assert done.ops() == [
        "aten.view.default",
        "aten.view.default",
        "aten.bmm.default",
        "aten.view.default",
    ]


LATE = 'tensor<3x?xf32, #stepwell.shape<[3, "n"]>>'
ROWS = 'tensor<?x3xf32, #stepwell.shape<["n", 3]>>'
WIDE = 'tensor<2x?xf32, #stepwell.shape<[2, "n"]>>'


@pytest.mark.parametrize(
    "one, other, made",
    [(ROWS, "tensor<3x3xf32>", ROWS), ("tensor<2x3xf32>", LATE, WIDE)],
    ids=["left", "right"],
)
def test_a_symbolic_side_is_refused(one: str, other: str, made: str, refused: Any, method: Any):
    call = f"%y = aten.matmul.default(%x, %z) : ({one}, {other}) -> {made}"
    refused(
        method(f"%x: {one}, %z: {other}", call, gives=made),
        step(products.matmul_to_bmm),
        "symbolic",
    )
