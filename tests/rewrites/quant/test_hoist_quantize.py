"""HoistQuantize: beyond its documented example, and what it leaves alone."""

from typing import Any

from stepwell.translate.rewrites.quant.hoist_quantize import HoistQuantize

Q = "tensor<{}x!quant.uniform<i8:f32, 0.5>>"


def test_a_concatenation_quantizes_each_operand(apply: Any, method: Any):
    text = method(
        "%a: tensor<2xf32>, %b: tensor<3xf32>",
        "%c = aten.cat.default([%a, %b]) : (tensor<2xf32>, tensor<3xf32>) -> tensor<5xf32>",
        f"%y = quant.qcast %c : tensor<5xf32> to {Q.format(5)}",
        gives=Q.format(5),
    )
    assert apply(text, HoistQuantize()).ops().count("quant.qcast") == 2


def test_an_op_that_computes_is_quantized_behind(refused: Any, method: Any):
    text = method(
        "%a: tensor<2xf32>",
        "%c = aten.neg.default(%a) : (tensor<2xf32>) -> tensor<2xf32>",
        f"%y = quant.qcast %c : tensor<2xf32> to {Q.format(2)}",
        gives=Q.format(2),
    )
    refused(text, HoistQuantize())


def test_dropout_in_training_computes(refused: Any, method: Any):
    text = method(
        "%a: tensor<2xf32>",
        "%c = aten.dropout.default(%a, 0.0, true) : (tensor<2xf32>) -> tensor<2xf32>",
        f"%y = quant.qcast %c : tensor<2xf32> to {Q.format(2)}",
        gives=Q.format(2),
    )
    refused(text, HoistQuantize())


def test_an_input_is_quantized_where_it_is(refused: Any, method: Any):
    text = method(
        "%a: tensor<2xf32>",
        f"%y = quant.qcast %a : tensor<2xf32> to {Q.format(2)}",
        gives=Q.format(2),
    )
    refused(text, HoistQuantize())


def test_scales_along_an_axis_do_not_follow_a_view(refused: Any, method: Any):
    held = "tensor<2x3x!quant.uniform<i8:f32:0, {0.5, 0.25}>>"
    text = method(
        "%a: tensor<6xf32>",
        "%c = aten.view.default(%a, [2, 3]) : (tensor<6xf32>) -> tensor<2x3xf32>",
        f"%y = quant.qcast %c : tensor<2x3xf32> to {held}",
        gives=held,
    )
    refused(text, HoistQuantize(), "do not follow a movement")


def test_a_value_that_is_read_as_a_float_too_is_moved_as_one(refused: Any, method: Any):
    held = Q.format("2x3")
    text = method(
        "%a: tensor<6xf32>",
        "%c = aten.view.default(%a, [2, 3]) : (tensor<6xf32>) -> tensor<2x3xf32>",
        f"%y = quant.qcast %c : tensor<2x3xf32> to {held}",
        gives=held,
    )
    text = text.replace(f"-> {held} {{", f"-> ({held}, tensor<2x3xf32>) {{").replace(
        f"func.return %y : {held}", f"func.return %y, %c : {held}, tensor<2x3xf32>"
    )
    refused(text, HoistQuantize())
