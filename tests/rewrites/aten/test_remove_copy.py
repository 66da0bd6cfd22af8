"""RemoveCopy: beyond its documented example, and what it leaves alone."""

from typing import Any

from stepwell.translate.rewrites.aten.remove_copy import RemoveCopy


def test_a_copy_to_channels_last_stays(refused: Any, method: Any):
    refused(
        method(
            "%x: tensor<1x2x3x4xf32>",
            '%y = aten.contiguous.default(%x, memory_format="torch.channels_last") : (tensor<1x2x3x4xf32>) -> tensor<1x2x3x4xf32>',
            gives="tensor<1x2x3x4xf32>",
        ),
        RemoveCopy(),
        "memory format",
    )


def test_a_copy_whose_strides_are_read_stays(refused: Any, method: Any):
    refused(
        method(
            "%x: tensor<2x3xf32>",
            "%t = aten.permute.default(%x, [1, 0]) : (tensor<2x3xf32>) -> tensor<3x2xf32>",
            "%c = aten.contiguous.default(%t) : (tensor<3x2xf32>) -> tensor<3x2xf32>",
            "%v = aten.view.default(%c, [6]) : (tensor<3x2xf32>) -> tensor<6xf32>",
            "%y = aten.as_strided.default(%v, [2], [3]) : (tensor<6xf32>) -> tensor<2xf32>",
            gives="tensor<2xf32>",
        ),
        RemoveCopy(),
        "reads the strides",
    )
