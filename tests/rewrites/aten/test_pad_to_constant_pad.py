"""PadToConstantPad: beyond its documented example, and what it leaves alone."""

from typing import Any

from stepwell.translate.rewrites.slices import pads


def test_reflection_is_refused(refused: Any, method: Any):
    refused(
        method(
            "%x: tensor<1x3xf32>",
            '%y = aten.pad.default(%x, [1, 1], "reflect") : (tensor<1x3xf32>) -> tensor<1x5xf32>',
            gives="tensor<1x5xf32>",
        ),
        pads,
        "mode is reflect",
    )


def test_the_value_is_kept(apply: Any, method: Any):
    done = apply(
        method(
            "%x: tensor<2x3xf32>",
            '%y = aten.pad.default(%x, [1, 0, 0, 1], "constant", 2.5) : (tensor<2x3xf32>) -> tensor<3x4xf32>',
            gives="tensor<3x4xf32>",
        ),
        pads,
    )
    assert done.ops() == ["aten.constant_pad_nd.default"]
