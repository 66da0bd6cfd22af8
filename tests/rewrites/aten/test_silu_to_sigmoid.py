"""SiluToSigmoid: beyond its documented example, and what it leaves alone."""

from typing import Any

from stepwell.translate.rewrites.aten.silu_to_sigmoid import SiluToSigmoid


def test_a_gelu_stays(refused: Any, method: Any):
    refused(
        method(
            "%x: tensor<2x3xf32>",
            "%y = aten.gelu.default(%x) : (tensor<2x3xf32>) -> tensor<2x3xf32>",
            gives="tensor<2x3xf32>",
        ),
        SiluToSigmoid(),
    )
