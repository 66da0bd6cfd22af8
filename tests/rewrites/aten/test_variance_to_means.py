"""VarianceToMeans: beyond its documented example, and what it leaves alone."""

from typing import Any

from stepwell.translate.decompositions.aten import normalizations
from stepwell.translate.lowerings.lowering import step


def test_a_variance_of_one_element_has_nothing_to_divide_by(refused: Any, method: Any):
    refused(
        method(
            "%x: tensor<2x1xf32>",
            "%y = aten.var.correction(%x, [1], correction=1) : (tensor<2x1xf32>) -> tensor<2xf32>",
            gives="tensor<2xf32>",
        ),
        step(normalizations.variance_to_means),
        "give a divisor of 0",
    )


def test_half_precision_is_refused(refused: Any, method: Any):
    refused(
        method(
            "%x: tensor<2x3xf16>",
            "%y = aten.var.dim(%x, [1]) : (tensor<2x3xf16>) -> tensor<2xf16>",
            gives="tensor<2xf16>",
        ),
        step(normalizations.variance_to_means),
        "accumulates",
    )


def test_a_biased_deviation_needs_no_factor(apply: Any, method: Any):
    done = apply(
        method(
            "%x: tensor<2x3xf32>",
            "%y = aten.std.dim(%x, [1], false, true) : (tensor<2x3xf32>) -> tensor<2x1xf32>",
            gives="tensor<2x1xf32>",
        ),
        step(normalizations.variance_to_means),
    )
    assert done.ops() == [
        "aten.mean.dim",
        "aten.sub.Tensor",
        "aten.mul.Tensor",
        "aten.mean.dim",
        "aten.sqrt.default",
    ]
