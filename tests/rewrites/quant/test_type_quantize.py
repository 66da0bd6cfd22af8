"""Quantize and dequantize ops to types: other spellings, and parameters that are none."""

from typing import Any

import pytest

from stepwell.translate.rewrites.quant.casts import RULES

QUANTIZE, DEQUANTIZE, *_ = (rule() for rule in RULES)


def test_scales_along_an_axis_go_into_the_type(apply: Any, method: Any):
    text = method(
        "%x: tensor<2x3xf32>",
        '%s = stepwell.weight <"s#positive"> "constant" : tensor<2xf32>',
        '%z = stepwell.weight <"z#zeros"> "constant" : tensor<2xi32>',
        "%y = quantized_decomposed.quantize_per_channel.default(%x, %s, %z, 0, -127, 127, i8) : "
        "(tensor<2x3xf32>, tensor<2xf32>, tensor<2xi32>) -> tensor<2x3xi8>",
        gives="tensor<2x3xi8>",
    )
    assert apply(text, QUANTIZE).ops() == ["quant.qcast", "quant.scast"]


def test_a_scale_that_is_an_input_has_no_place_in_a_type(refused: Any, method: Any):
    text = method(
        "%x: tensor<2x3xi8>, %s: tensor<2xf32>",
        '%z = stepwell.weight <"z#zeros"> "constant" : tensor<2xi32>',
        "%y = quantized_decomposed.dequantize_per_channel.default(%x, %s, %z, 0, -127, 127, i8) : "
        "(tensor<2x3xi8>, tensor<2xf32>, tensor<2xi32>) -> tensor<2x3xf32>",
        gives="tensor<2x3xf32>",
    )
    refused(text, DEQUANTIZE, "computed at run time")


def test_a_scale_of_zero_is_no_quantization(refused: Any, method: Any):
    text = method(
        "%x: tensor<2xi8>",
        "%y = quantized_decomposed.dequantize_per_tensor.default(%x, 0.0, 0, -128, 127, i8) : "
        "(tensor<2xi8>) -> tensor<2xf32>",
        gives="tensor<2xf32>",
    )
    refused(text, DEQUANTIZE, "is not a positive number")


def test_a_dynamic_quantization_was_never_a_candidate(refused: Any, method: Any):
    library, real, stored = "quantized_decomposed", "tensor<2x3xf32>", "tensor<2x3xi8>"
    numbers = "tensor<1xf64>, tensor<1xi64>"
    text = method(
        f"%x: {real}",
        f"%s, %z = {library}.choose_qparams.tensor(%x, -128, 127, 1.0e-07, i8) : ({real}) -> ({numbers})",
        f"%q = {library}.quantize_per_tensor.tensor(%x, %s, %z, -128, 127, i8) : ({real}, {numbers}) -> {stored}",
        f"%y = {library}.dequantize_per_tensor.tensor(%q, %s, %z, -128, 127, i8) : ({stored}, {numbers}) -> {real}",
        gives=real,
    )
    refused(text, QUANTIZE)
    refused(text, DEQUANTIZE)


@pytest.mark.parametrize(
    ("stored", "low", "high"),
    [("ui8", 0, 255), ("i16", -32768, 32767), ("i32", -2147483648, 2147483647)],
)
def test_integers_of_any_width_are_typed(stored: str, low: int, high: int, apply: Any, method: Any):
    text = method(
        f"%x: tensor<4x{stored}>",
        f"%y = quantized_decomposed.dequantize_per_tensor.default(%x, 0.5, 0, {low}, {high}, {stored})"
        f" : (tensor<4x{stored}>) -> tensor<4xf32>",
        gives="tensor<4xf32>",
    )
    assert apply(text, DEQUANTIZE).ops() == ["quant.scast", "quant.dcast"]
