"""LowerBoundary: beyond its documented example, and what it leaves alone."""

from typing import Any

from stepwell.translate.lowerings.cmsis import borders
from stepwell.translate.lowerings.lowering import step


def test_bytes_without_a_sign_go_back_to_where_they_came_from(apply: Any, method: Any, words: Any):
    text = method(
        "%f: tensor<4xf32>",
        words.qcast("f", "4", "0.5:3", "u8", name="x"),
        words.dcast("x", "4", "0.5:3", "u8").replace("%xr", "%y"),
        gives="tensor<4xf32>",
    )
    done = apply(text, step(borders.boundary))
    assert "quantized_decomposed.quantize_per_tensor.default" in done.ops()


def test_a_weight_that_floats_use_is_dequantized_ahead_of_time(apply: Any, method: Any, words: Any):
    weight = words.weight("w", "3x4", ":0, {0.1, 0.2, 0.3}").replace("%wr", "%y")
    assert (
        apply(
            method("%x: tensor<1xf32>", weight, gives="tensor<3x4xf32>"), step(borders.boundary)
        ).ops()
        == []
    )


def test_scales_along_an_axis_of_a_computed_value_are_refused(
    refused: Any, method: Any, words: Any
):
    numbers = ":0, {0.1, 0.2, 0.3}"
    text = method(
        f"%x: {words.typed('3x4', numbers)}",
        words.dcast("x", "3x4", numbers).replace("%xr", "%y"),
        gives="tensor<3x4xf32>",
    )
    refused(text, step(borders.boundary), "scales along an axis are for weights")
