"""EinsumToBmm: beyond its documented example, and what it leaves alone."""

from typing import Any

import pytest

from stepwell.translate.lowerings.aten import products
from stepwell.translate.lowerings.lowering import step


def test_a_diagonal_is_refused(refused: Any, method: Any):
    refused(
        method(
            "%x: tensor<3x3xf32>, %z: tensor<3x2xf32>",
            '%y = aten.einsum.default("ii,ij->ij", [%x, %z]) : (tensor<3x3xf32>, tensor<3x2xf32>) -> tensor<3x2xf32>',
            gives="tensor<3x2xf32>",
        ),
        step(products.einsum_to_bmm),
        "diagonal",
    )


def test_three_tensors_are_refused(refused: Any, method: Any):
    refused(
        method(
            "%x: tensor<3xf32>",
            '%y = aten.einsum.default("i,i,i->i", [%x, %x, %x]) : (tensor<3xf32>, tensor<3xf32>, tensor<3xf32>) -> tensor<3xf32>',
            gives="tensor<3xf32>",
        ),
        step(products.einsum_to_bmm),
        "3 tensors",
    )


def test_a_sum_within_one_operand_is_refused(refused: Any, method: Any):
    refused(
        method(
            "%x: tensor<3x4xf32>, %z: tensor<3xf32>",
            '%y = aten.einsum.default("ij,i->i", [%x, %z]) : (tensor<3x4xf32>, tensor<3xf32>) -> tensor<3xf32>',
            gives="tensor<3xf32>",
        ),
        step(products.einsum_to_bmm),
        "within one",
    )


def test_an_ellipsis_is_refused(refused: Any, method: Any):
    refused(
        method(
            "%x: tensor<3x4xf32>, %z: tensor<4xf32>",
            '%y = aten.einsum.default("...i,i->...", [%x, %z]) : (tensor<3x4xf32>, tensor<4xf32>) -> tensor<3xf32>',
            gives="tensor<3xf32>",
        ),
        step(products.einsum_to_bmm),
        "ellipsis",
    )


def test_an_outer_product_has_nothing_to_sum(apply: Any, method: Any):
    done = apply(
        method(
            "%x: tensor<3xf32>, %z: tensor<4xf32>",
            '%y = aten.einsum.default("i,j->ji", [%x, %z]) : (tensor<3xf32>, tensor<4xf32>) -> tensor<4x3xf32>',
            gives="tensor<4x3xf32>",
        ),
        step(products.einsum_to_bmm),
    )
    assert done.ops() == [
        "aten.view.default",
        "aten.view.default",
        "aten.bmm.default",
        "aten.view.default",
        "aten.permute.default",
    ]


ONE = "tensor<3x4xf32>"
LATE = 'tensor<?x4xf32, #stepwell.shape<["n", 4]>>'
NEAR_MISSES = {
    "an implied result": ("ij,jk", ONE, "tensor<4x2xf32>", "tensor<3x2xf32>", "implied"),
    "two dtypes": ("ij,k->ijk", ONE, "tensor<2xf64>", "tensor<3x4x2xf64>", "several dtypes"),
    "an axis of 1": ("ij,ij->ij", ONE, "tensor<1x4xf32>", ONE, "broadcast"),
    "two axes of open sizes": ("ij,ij->", LATE, LATE, "tensor<f32>", "more than one axis a side"),
}


@pytest.mark.parametrize("name", NEAR_MISSES)
def test_a_sum_of_products_stays_with(name: str, refused: Any, method: Any):
    equation, one, other, made, reason = NEAR_MISSES[name]
    call = f'%y = aten.einsum.default("{equation}", [%x, %z]) : ({one}, {other}) -> {made}'
    refused(
        method(f"%x: {one}, %z: {other}", call, gives=made), step(products.einsum_to_bmm), reason
    )
