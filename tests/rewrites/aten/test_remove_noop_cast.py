"""RemoveNoopCast: beyond its documented example, and what it leaves alone."""

from typing import Any

from stepwell.translate.rewrites.aten.remove_noop_cast import RemoveNoopCast


def test_a_cast_to_another_dtype_stays(refused: Any, method: Any):
    refused(
        method(
            "%x: tensor<2x3xf32>",
            "%y = aten.to.dtype(%x, f16) : (tensor<2x3xf32>) -> tensor<2x3xf16>",
            gives="tensor<2x3xf16>",
        ),
        RemoveNoopCast(),
    )


def test_a_cast_that_asks_for_channels_last_stays(refused: Any, method: Any):
    refused(
        method(
            "%x: tensor<1x2x3x4xf32>",
            '%y = aten._to_copy.default(%x, memory_format="torch.channels_last") : (tensor<1x2x3x4xf32>) -> tensor<1x2x3x4xf32>',
            gives="tensor<1x2x3x4xf32>",
        ),
        RemoveNoopCast(),
        "memory format",
    )
