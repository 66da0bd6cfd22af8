"""FoldConstants: beyond its documented example, and what it leaves alone."""

from typing import Any

from stepwell.translate.rewrites.aten.fold_constants import FoldConstants


def test_what_depends_on_an_input_stays(refused: Any, method: Any):
    refused(
        method(
            "%x: tensor<2x3xf32>",
            '%w = stepwell.weight <"w"> "parameter" : tensor<2x3xf32>',
            "%y = aten.add.Tensor(%x, %w) : (tensor<2x3xf32>, tensor<2x3xf32>) -> tensor<2x3xf32>",
            gives="tensor<2x3xf32>",
        ),
        FoldConstants(),
    )


def test_a_constant_that_would_grow_too_large_is_refused(refused: Any, method: Any):
    refused(
        method(
            "%x: tensor<2x3xf32>",
            '%w = stepwell.weight <"w"> "parameter" : tensor<2x3xf32>',
            "%e = aten.repeat.default(%w, [64, 64]) : (tensor<2x3xf32>) -> tensor<128x192xf32>",
            "%y = aten.sum.default(%e) : (tensor<128x192xf32>) -> tensor<f32>",
            gives="tensor<f32>",
        ),
        FoldConstants(largest=1000),
        "bytes more",
    )


def test_random_numbers_are_no_constant(refused: Any, method: Any):
    refused(
        method(
            "%x: tensor<2x3xf32>",
            "%y = aten.mul.Scalar(%x, 0.0) : (tensor<2x3xf32>) -> tensor<2x3xf32>",
            gives="tensor<2x3xf32>",
        ),
        FoldConstants(),
    )


def test_a_constant_made_from_nothing_is_a_weight(apply: Any, method: Any):
    done = apply(
        method(
            "%x: tensor<4xi64>",
            "%a = aten.arange.default(4) : () -> tensor<4xi64>",
            "%y = aten.add.Tensor(%x, %a) : (tensor<4xi64>, tensor<4xi64>) -> tensor<4xi64>",
            gives="tensor<4xi64>",
        ),
        FoldConstants(),
    )
    assert done.ops() == ["aten.add.Tensor"]


def test_a_fill_of_an_input_s_shape_is_a_weight(apply: Any, method: Any):
    done = apply(
        method(
            "%x: tensor<2x3xf32>",
            "%a = aten.full_like.default(%x, 2.5) : (tensor<2x3xf32>) -> tensor<2x3xf32>",
            "%y = aten.add.Tensor(%x, %a) : (tensor<2x3xf32>, tensor<2x3xf32>) -> tensor<2x3xf32>",
            gives="tensor<2x3xf32>",
        ),
        FoldConstants(),
    )
    assert done.ops() == ["aten.add.Tensor"]
