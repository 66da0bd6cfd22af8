"""EinsumToBmm: beyond its documented example, and what it leaves alone."""

from typing import Any

from stepwell.translate.rewrites.aten.einsum_to_bmm import EinsumToBmm


def test_a_diagonal_is_refused(refused: Any, method: Any):
    refused(
        method(
            "%x: tensor<3x3xf32>, %z: tensor<3x2xf32>",
            '%y = aten.einsum.default("ii,ij->ij", [%x, %z]) : (tensor<3x3xf32>, tensor<3x2xf32>) -> tensor<3x2xf32>',
            gives="tensor<3x2xf32>",
        ),
        EinsumToBmm(),
        "diagonal",
    )


def test_three_tensors_are_refused(refused: Any, method: Any):
    refused(
        method(
            "%x: tensor<3xf32>",
            '%y = aten.einsum.default("i,i,i->i", [%x, %x, %x]) : (tensor<3xf32>, tensor<3xf32>, tensor<3xf32>) -> tensor<3xf32>',
            gives="tensor<3xf32>",
        ),
        EinsumToBmm(),
        "3 tensors",
    )


def test_a_sum_within_one_operand_is_refused(refused: Any, method: Any):
    refused(
        method(
            "%x: tensor<3x4xf32>, %z: tensor<3xf32>",
            '%y = aten.einsum.default("ij,i->i", [%x, %z]) : (tensor<3x4xf32>, tensor<3xf32>) -> tensor<3xf32>',
            gives="tensor<3xf32>",
        ),
        EinsumToBmm(),
        "within one",
    )


def test_an_ellipsis_is_refused(refused: Any, method: Any):
    refused(
        method(
            "%x: tensor<3x4xf32>, %z: tensor<4xf32>",
            '%y = aten.einsum.default("...i,i->...", [%x, %z]) : (tensor<3x4xf32>, tensor<4xf32>) -> tensor<3xf32>',
            gives="tensor<3xf32>",
        ),
        EinsumToBmm(),
        "ellipsis",
    )


def test_an_outer_product_has_nothing_to_sum(apply: Any, method: Any):
    done = apply(
        method(
            "%x: tensor<3xf32>, %z: tensor<4xf32>",
            '%y = aten.einsum.default("i,j->ji", [%x, %z]) : (tensor<3xf32>, tensor<4xf32>) -> tensor<4x3xf32>',
            gives="tensor<4x3xf32>",
        ),
        EinsumToBmm(),
    )
    assert done.ops() == [
        "aten.view.default",
        "aten.view.default",
        "aten.bmm.default",
        "aten.view.default",
        "aten.permute.default",
    ]
