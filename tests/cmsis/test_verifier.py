"""What the cmsis level refuses, each by its own sentence; and that its text reads back."""

from __future__ import annotations

import pytest
import torch

import stepwell
from stepwell.ir.diagnostics import StepwellError, VerificationError

X, W, Y = (
    f"tensor<{shape}x!quant.uniform<i8:f32, {scale}>>"
    for shape, scale in (("2x4", "0.1:3"), ("8x4", "0.5"), ("2x8", "1.0"))
)


def program(body: str, arguments: str, result: str, target: str = "cortex-m4") -> str:
    return f"""
    builtin.module attributes {{stepwell.level = "cmsis", cmsis.target = "{target}"}} {{
      func.func @forward({arguments}) -> {result} {{
        {body}
      }}
    }}"""


LINEAR = {
    "input_offset": "-3 : i64",
    "filter_offset": "0 : i64",
    "output_offset": "0 : i64",
    "requantize_multipliers": "array<i64: 1717986918>",
    "requantize_shifts": "array<i64: -4>",
    "activation_max": "127 : i64",
    "activation_min": "-128 : i64",
}


def linear(target: str = "cortex-m4", **changed: str) -> str:
    fields = ", ".join(f"{k} = {v}" for k, v in {**LINEAR, **changed}.items())
    body = f"""
        %y = cmsis.quantized_linear(%x, %w) {{{fields}}} : ({X}, {W}) -> {Y}
        func.return %y : {Y}"""
    return program(body, f"%x: {X}, %w: {W}", Y, target)


def problems(text: str) -> str:
    try:
        stepwell.parse(text).verify()
    except VerificationError as error:
        return str(error)
    return ""


def test_a_layer_whose_fields_follow_from_its_types_is_sound_and_reads_back() -> None:
    text = linear()
    assert problems(text) == ""
    parsed = stepwell.parse(text)
    assert str(stepwell.parse(str(parsed))) == str(parsed)


@pytest.mark.parametrize(
    "field, value, sentence",
    [
        ("input_offset", "3 : i64", "input_offset is 3"),
        ("output_offset", "7 : i64", "output_offset is 7"),
        ("requantize_multipliers", "array<i64: 1717986917>", "the scales of the types give"),
        ("requantize_shifts", "array<i64: -3>", "the scales of the types give"),
        ("requantize_shifts", "array<i64: 31>", "shift 31 is outside -31:30"),
        ("requantize_shifts", "array<i64: -32>", "shift -32 is outside -31:30"),
        ("requantize_multipliers", "array<i64: 4294967296>", "does not fit int32"),
        ("requantize_multipliers", "array<i64: 1, 2>", "one multiplier and shift"),
        ("activation_max", "200 : i64", "is not within -128:127"),
        ("activation_min", "128 : i64", "is not within -128:127"),
    ],
)
def test_a_field_that_contradicts_the_types_or_the_kernel_is_refused(
    field: str, value: str, sentence: str
) -> None:
    assert sentence in problems(linear(**{field: value}))


def test_an_mve_layer_without_kernel_sums_is_refused() -> None:
    assert "no kernel_sum" in problems(linear("cortex-m55"))


def test_a_float_op_on_quantized_values_is_refused() -> None:
    body = f"""
        %y = aten.relu.default(%x) : ({X}) -> {X}
        func.return %y : {X}"""
    assert "computes with reals" in problems(program(body, f"%x: {X}", X))


def test_a_float_op_on_the_raw_integers_of_quantized_values_is_refused() -> None:
    body = f"""
        %r = quant.scast %x : {X} to tensor<2x4xi8>
        %v = aten.view.default(%r, [8]) : (tensor<2x4xi8>) -> tensor<8xi8>
        %y = aten.relu.default(%v) : (tensor<8xi8>) -> tensor<8xi8>
        func.return %y : tensor<8xi8>"""
    found = problems(program(body, f"%x: {X}", "tensor<8xi8>"))
    assert "aten.relu.default reads its stored integers as if they were real values" in found


def test_moving_the_raw_integers_is_allowed() -> None:
    body = f"""
        %r = quant.scast %x : {X} to tensor<2x4xi8>
        %v = aten.view.default(%r, [8]) : (tensor<2x4xi8>) -> tensor<8xi8>
        func.return %v : tensor<8xi8>"""
    assert problems(program(body, f"%x: {X}", "tensor<8xi8>")) == ""


def softmax(row: int) -> str:
    given = f"tensor<2x{row}x!quant.uniform<i8:f32, 0.5:3>>"
    made = f"tensor<2x{row}x!quant.uniform<i8:f32, 0.00390625:-128>>"
    body = f"""
        %y = cmsis.softmax(%x) {{dim = -1 : i64, input_zero_point = 3 : i64,
          output_zero_point = -128 : i64, input_multiplier = 1073741824 : i64,
          input_shift = 26 : i64, diff_min = -31 : i64}} : ({given}) -> {made}
        func.return %y : {made}"""
    return program(body, f"%x: {given}", made)


def test_a_softmax_row_that_can_overflow_is_refused_and_the_longest_safe_one_is_not() -> None:
    assert "can reach a sum of 2**28" in problems(softmax(512))
    assert problems(softmax(511)) == ""


def pool(scratch: int, target: str) -> str:
    body = f"""
        %y = cmsis.quantized_avg_pool2d_nhwc(%x) {{kernel_size = array<i64: 2, 2>,
          stride = array<i64: 2, 2>, padding = array<i64: 0, 0>, ceil_mode = false,
          zero_point = 0 : i64, multiplier = 1 : i64, shift = 0 : i64,
          scratch = {scratch} : i64}} : (tensor<1x4x4x8xi8>) -> tensor<1x2x2x8xi8>
        func.return %y : tensor<1x2x2x8xi8>"""
    return program(body, "%x: tensor<1x4x4x8xi8>", "tensor<1x2x2x8xi8>", target)


@pytest.mark.parametrize("target, bytes_", [("cortex-m4", 32), ("cortex-m3", 0), ("cortex-m55", 0)])
def test_scratch_is_what_the_kernel_needs_on_the_target(target: str, bytes_: int) -> None:
    assert problems(pool(bytes_, target)) == ""
    assert f"needs {bytes_}" in problems(pool(bytes_ + 4, target))


def test_a_target_that_does_not_exist_is_refused_by_name() -> None:
    exported = torch.export.export(torch.nn.Linear(2, 2), (torch.ones(1, 2),))
    with pytest.raises(StepwellError, match="cortex-m99 is not a Cortex-M CPU"):
        stepwell.lower(exported, "cortex-m99")


def test_an_unquantized_model_stays_float_and_every_layer_says_why() -> None:
    exported = torch.export.export(torch.nn.Linear(2, 2).eval(), (x := torch.ones(1, 2),))
    lowered = stepwell.lower(exported, "cortex-m55")
    assert torch.equal(lowered.program.run(x)[0], exported.module()(x))
    assert any("is not quantized" in refusal.reason for refusal in lowered.report.refusals)
