"""HardsigmoidToClamp: beyond its documented example, and what it leaves alone."""

from typing import Any

from stepwell.translate.rewrites.aten.hardsigmoid_to_clamp import HardsigmoidToClamp


def test_the_gate_of_a_hardswish_is_left_to_its_recogniser(refused: Any, method: Any):
    refused(
        method(
            "%x: tensor<2x3xf32>",
            "%a = aten.hardsigmoid.default(%x) : (tensor<2x3xf32>) -> tensor<2x3xf32>",
            "%y = aten.mul.Tensor(%x, %a) : (tensor<2x3xf32>, tensor<2x3xf32>) -> tensor<2x3xf32>",
            gives="tensor<2x3xf32>",
        ),
        HardsigmoidToClamp(),
    )


def test_half_precision_is_refused(refused: Any, method: Any):
    refused(
        method(
            "%x: tensor<2x3xf16>",
            "%y = aten.hardsigmoid.default(%x) : (tensor<2x3xf16>) -> tensor<2x3xf16>",
            gives="tensor<2x3xf16>",
        ),
        HardsigmoidToClamp(),
        "float32",
    )
