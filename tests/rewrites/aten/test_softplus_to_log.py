"""SoftplusToLog: beyond its documented example, and what it leaves alone."""

from typing import Any

from stepwell.translate.rewrites.aten.softplus_to_log import SoftplusToLog


def test_another_beta_is_refused(refused: Any, method: Any):
    refused(
        method(
            "%x: tensor<2x3xf32>",
            "%y = aten.softplus.default(%x, 2) : (tensor<2x3xf32>) -> tensor<2x3xf32>",
            gives="tensor<2x3xf32>",
        ),
        SoftplusToLog(),
        "beta",
    )


def test_a_low_threshold_is_refused(refused: Any, method: Any):
    refused(
        method(
            "%x: tensor<2x3xf32>",
            "%y = aten.softplus.default(%x, 1, 4) : (tensor<2x3xf32>) -> tensor<2x3xf32>",
            gives="tensor<2x3xf32>",
        ),
        SoftplusToLog(),
        "threshold",
    )


def test_half_precision_is_refused(refused: Any, method: Any):
    refused(
        method(
            "%x: tensor<2x3xf16>",
            "%y = aten.mish.default(%x) : (tensor<2x3xf16>) -> tensor<2x3xf16>",
            gives="tensor<2x3xf16>",
        ),
        SoftplusToLog(),
        "float32",
    )
