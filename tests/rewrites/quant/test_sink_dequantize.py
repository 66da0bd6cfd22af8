"""SinkDequantize: beyond its documented example, and what it leaves alone."""

from typing import Any

from stepwell.translate.rewrites.quant.sink_dequantize import (
    SinkDequantize,
    SinkDequantizeAlongAxis,
)

A, B = ("tensor<4x!quant.uniform<i8:f32, " + numbers + ">>" for numbers in ("0.5:3", "0.25"))
R = "tensor<4xf32>"


def joined(method: Any, first: str, second: str) -> str:
    return method(
        f"%a: {first}, %b: {second}",
        f"%ar = quant.dcast %a : {first} to {R}",
        f"%br = quant.dcast %b : {second} to {R}",
        f"%y = aten.cat.default([%ar, %br]) : ({R}, {R}) -> tensor<8xf32>",
        gives="tensor<8xf32>",
    )


def test_a_concatenation_of_equal_scales_moves_integers(apply: Any, method: Any):
    assert apply(joined(method, A, A), SinkDequantize()).ops()[-1] == "quant.dcast"


def test_a_concatenation_of_different_scales_moves_reals(refused: Any, method: Any):
    refused(joined(method, A, B), SinkDequantize())


def test_an_operand_that_was_never_quantized_moves_as_a_real(refused: Any, method: Any):
    text = method(
        f"%a: {A}, %b: {R}",
        f"%ar = quant.dcast %a : {A} to {R}",
        f"%n = aten.neg.default(%b) : ({R}) -> {R}",
        f"%y = aten.cat.default([%ar, %n]) : ({R}, {R}) -> tensor<8xf32>",
        gives="tensor<8xf32>",
    )
    refused(text, SinkDequantize())


def test_all_parts_of_a_split_are_dequantized(apply: Any, method: Any):
    text = method(
        f"%a: {A}",
        f"%ar = quant.dcast %a : {A} to {R}",
        "%p, %y = aten.split.Tensor(%ar, 2) : (tensor<4xf32>) -> (tensor<2xf32>, tensor<2xf32>)",
        gives="tensor<2xf32>",
    )
    text = text.replace("-> tensor<2xf32> {", "-> (tensor<2xf32>, tensor<2xf32>) {")
    text = text.replace("return %y : tensor<2xf32>", "return %p, %y : tensor<2xf32>, tensor<2xf32>")
    done = apply(text, SinkDequantize())
    assert done.count == 1 and done.ops().count("quant.dcast") == 2


def test_dropout_in_training_computes(refused: Any, method: Any):
    text = method(
        f"%a: {A}",
        f"%ar = quant.dcast %a : {A} to {R}",
        f"%y = aten.dropout.default(%ar, 0.0, true) : ({R}) -> {R}",
        gives=R,
    )
    refused(text, SinkDequantize())


def along(method: Any, op: str, made: str) -> str:
    held = "tensor<2x3x!quant.uniform<i8:f32:0, {0.5, 0.25}>>"
    return method(
        f"%a: {held}",
        f"%ar = quant.dcast %a : {held} to tensor<2x3xf32>",
        f"%y = {op} : (tensor<2x3xf32>) -> {made}",
        gives=made,
    )


def test_scales_along_an_axis_follow_its_permutation(apply: Any, method: Any):
    done = apply(along(method, "aten.t.default(%ar)", "tensor<3x2xf32>"), SinkDequantizeAlongAxis())
    assert "f32:1, {0.5, 0.25}" in done.text


def test_scales_along_an_axis_follow_nothing_else(refused: Any, method: Any):
    text = along(method, "aten.view.default(%ar, [6])", "tensor<6xf32>")
    refused(text, SinkDequantizeAlongAxis(), "follow a permutation only")


def test_one_scale_for_all_is_no_business_of_scales_along_an_axis(refused: Any, method: Any):
    text = method(
        f"%a: {A}",
        f"%ar = quant.dcast %a : {A} to {R}",
        f"%y = aten.view.default(%ar, [2, 2]) : ({R}) -> tensor<2x2xf32>",
        gives="tensor<2x2xf32>",
    )
    refused(text, SinkDequantizeAlongAxis())
