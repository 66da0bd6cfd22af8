"""Reorderings of axes: beyond their examples, and what stays."""

from typing import Any

from stepwell.translate.rewrites.views.transposes import RULES

ALL = {rule.name: rule() for rule in RULES}


def test_a_permute_in_normal_form_stays(refused: Any, method: Any):
    refused(
        method(
            "%x: tensor<2x3xf32>",
            "%y = aten.permute.default(%x, [1, 0]) : (tensor<2x3xf32>) -> tensor<3x2xf32>",
            gives="tensor<3x2xf32>",
        ),
        ALL["permute-axes-from-front"],
    )


def test_the_adjoint_of_a_complex_matrix_is_refused(refused: Any, method: Any):
    refused(
        method(
            "%x: tensor<2x3xcomplex<f32>>",
            "%y = aten.adjoint.default(%x) : (tensor<2x3xcomplex<f32>>) -> tensor<3x2xcomplex<f32>>",
            gives="tensor<3x2xcomplex<f32>>",
        ),
        ALL["adjoint-to-permute"],
        "conjugates",
    )


def test_movedim_of_several_axes_keeps_the_order_of_the_others(apply: Any, method: Any):
    done = apply(
        method(
            "%x: tensor<2x3x4x5xf32>",
            "%y = aten.movedim.intlist(%x, [0, 2], [3, -4]) : (tensor<2x3x4x5xf32>) -> tensor<4x3x5x2xf32>",
            gives="tensor<4x3x5x2xf32>",
        ),
        *ALL.values(),
    )
    assert done.ops() == ["aten.permute.default"]


def test_the_transpose_of_a_vector_is_the_identity_permute(apply: Any, method: Any):
    done = apply(
        method(
            "%x: tensor<3xf32>",
            "%y = aten.t.default(%x) : (tensor<3xf32>) -> tensor<3xf32>",
            gives="tensor<3xf32>",
        ),
        *ALL.values(),
    )
    assert done.ops() == ["aten.permute.default"]
