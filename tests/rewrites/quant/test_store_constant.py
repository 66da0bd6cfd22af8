"""Constants stored and moved ahead of time: beyond the documented example, and what they leave alone."""

from typing import Any

from stepwell.translate.rewrites.quant.constants import RULES

STORE, STORE_ANEW, PERMUTE, RESHAPE = (rule() for rule in RULES)

W = '%w = stepwell.weight <"w"> "parameter" : tensor<4x2xf32>'


def test_a_stored_weight_in_another_quantization_is_stored_anew(apply: Any, method: Any):
    given, made = (f"tensor<4x!quant.uniform<i8:f32, {scale}>>" for scale in ("0.5", "0.25"))
    text = method(
        "%x: tensor<1xf32>",
        '%s = stepwell.weight <"s"> "parameter" : tensor<4xi8>',
        f"%t = quant.scast %s : tensor<4xi8> to {given}",
        f"%r = quant.dcast %t : {given} to tensor<4xf32>",
        f"%y = quant.qcast %r : tensor<4xf32> to {made}",
        gives=made,
    )
    assert apply(text, STORE, STORE_ANEW).ops() == ["quant.scast"]


def test_a_computed_value_is_quantized_when_it_is_there(refused: Any, method: Any):
    made = "tensor<4x!quant.uniform<i8:f32, 0.25>>"
    text = method("%x: tensor<4xf32>", f"%y = quant.qcast %x : tensor<4xf32> to {made}", gives=made)
    refused(text, STORE)


def test_a_weight_of_another_float_type_is_refused(refused: Any, method: Any):
    made = "tensor<4x!quant.uniform<i8:f16, 0.25>>"
    text = method(
        "%x: tensor<1xf32>",
        '%w = stepwell.weight <"w"> "parameter" : tensor<4xf16>',
        f"%y = quant.qcast %w : tensor<4xf16> to {made}",
        gives=made,
    )
    refused(text, STORE, "only float32 weights")


def test_a_reshaped_and_a_permuted_weight_are_derived(apply: Any, method: Any):
    text = method(
        "%x: tensor<1xf32>",
        W,
        "%v = aten.view.default(%w, [2, 4]) : (tensor<4x2xf32>) -> tensor<2x4xf32>",
        "%y = aten.t.default(%v) : (tensor<2x4xf32>) -> tensor<4x2xf32>",
        gives="tensor<4x2xf32>",
    )
    assert apply(text, PERMUTE, RESHAPE).ops() == []


def test_an_input_moves_at_run_time(refused: Any, method: Any):
    text = method(
        "%x: tensor<4x2xf32>",
        "%y = aten.t.default(%x) : (tensor<4x2xf32>) -> tensor<2x4xf32>",
        gives="tensor<2x4xf32>",
    )
    refused(text, PERMUTE)
    refused(text, RESHAPE)


def test_two_weights_joined_are_left(refused: Any, method: Any):
    text = method(
        "%x: tensor<1xf32>",
        W,
        "%y = aten.cat.default([%w, %w]) : (tensor<4x2xf32>, tensor<4x2xf32>) -> tensor<8x2xf32>",
        gives="tensor<8x2xf32>",
    )
    refused(text, PERMUTE)
    refused(text, RESHAPE)


def test_a_weight_split_in_parts_is_left(refused: Any, method: Any):
    text = method(
        "%x: tensor<1xf32>",
        W,
        "%a, %b = aten.split.Tensor(%w, 2) : (tensor<4x2xf32>) -> (tensor<2x2xf32>, tensor<2x2xf32>)",
        "%y = aten.add.Tensor(%a, %b) : (tensor<2x2xf32>, tensor<2x2xf32>) -> tensor<2x2xf32>",
        gives="tensor<2x2xf32>",
    )
    refused(text, PERMUTE)
    refused(text, RESHAPE)


def test_a_part_of_a_weight_is_left(refused: Any, method: Any):
    text = method(
        "%x: tensor<1xf32>",
        W,
        "%y = aten.slice.Tensor(%w, 0, 0, 2) : (tensor<4x2xf32>) -> tensor<2x2xf32>",
        gives="tensor<2x2xf32>",
    )
    refused(text, PERMUTE)
    refused(text, RESHAPE)


def test_a_weight_of_a_shape_of_run_time_is_left(refused: Any, method: Any):
    given = 'tensor<?xf32, #stepwell.shape<["s0"]>>'
    made = 'tensor<?x?xf32, #stepwell.shape<["s0", "10//s0"]>>'
    text = method(
        f"%x: {given}",
        '%w = stepwell.weight <"w"> "parameter" : tensor<10xf32>',
        f'%n = aten.sym_size.int(%x, 0) : ({given}) -> !stepwell.int<"s0">',
        f'%y = aten.view.default(%w, [%n, -1]) : (tensor<10xf32>, !stepwell.int<"s0">) -> {made}',
        gives=made,
    )
    refused(text, PERMUTE)
    refused(text, RESHAPE)
