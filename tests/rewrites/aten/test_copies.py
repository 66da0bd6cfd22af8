"""Copies and casts: beyond their examples, and what stays."""

from typing import Any

from stepwell.translate.canonicalize.copies import RULES

ALL = {rule.name: rule() for rule in RULES}


def test_a_copy_to_channels_last_stays(refused: Any, method: Any):
    refused(
        method(
            "%x: tensor<1x2x3x4xf32>",
            '%y = aten.contiguous.default(%x, memory_format="torch.channels_last") : (tensor<1x2x3x4xf32>) -> tensor<1x2x3x4xf32>',
            gives="tensor<1x2x3x4xf32>",
        ),
        ALL["remove-copy"],
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
        ALL["remove-copy"],
        "reads the strides",
    )


def test_a_cast_to_another_dtype_stays(refused: Any, method: Any):
    refused(
        method(
            "%x: tensor<2x3xf32>",
            "%y = aten.to.dtype(%x, f16) : (tensor<2x3xf32>) -> tensor<2x3xf16>",
            gives="tensor<2x3xf16>",
        ),
        ALL["remove-noop-cast"],
    )


def test_a_cast_that_asks_for_channels_last_stays(refused: Any, method: Any):
    refused(
        method(
            "%x: tensor<1x2x3x4xf32>",
            '%y = aten._to_copy.default(%x, memory_format="torch.channels_last") : (tensor<1x2x3x4xf32>) -> tensor<1x2x3x4xf32>',
            gives="tensor<1x2x3x4xf32>",
        ),
        ALL["remove-noop-cast"],
        "memory format",
    )


def test_a_cast_to_the_dtype_it_has_is_not_respelled(refused: Any, method: Any):
    refused(
        method(
            "%x: tensor<2x3xf32>, %z: tensor<4xf32>",
            "%y = aten.type_as.default(%x, %z) : (tensor<2x3xf32>, tensor<4xf32>) -> tensor<2x3xf32>",
            gives="tensor<2x3xf32>",
        ),
        ALL["type-as-to-copy"],
    )
