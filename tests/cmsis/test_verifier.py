"""What the cmsis level refuses, each by its own sentence."""

import pytest
import torch
from short_ir import program_text
from xdsl.dialects.builtin import StringAttr

import stepwell
from stepwell.dialects.cmsis.ops.base import TARGET
from stepwell.ir.diagnostics import StepwellError, VerificationError
from stepwell.ir.levels import set_level

LINEAR = {
    "input_offset": "-3",
    "filter_offset": "0",
    "output_offset": "0",
    "requantize_multipliers": "[1717986918]",
    "requantize_shifts": "[-4]",
    "activation_max": "127",
    "activation_min": "-128",
}


def linear(target: str = "cortex-m4", **changed: str) -> str:
    fields = ", ".join(f"{k}={v}" for k, v in {**LINEAR, **changed}.items())
    call = f"cmsis.quantized_linear(%x: i8<0.1:3>[2, 4], %w: i8<0.5>[8, 4], {fields})"
    return problems(f"%y = {call} -> i8<1.0>[2, 8]", target)


def program(text: str, target: str = "cortex-m4") -> stepwell.Program:
    module = program_text(text)
    set_level(module, "cmsis")
    module.attributes[TARGET] = StringAttr(target)
    return stepwell.Program(module)


def problems(text: str, target: str = "cortex-m4") -> str:
    try:
        program(text, target).verify()
    except VerificationError as error:
        return str(error)
    return ""


def test_a_layer_whose_fields_follow_from_its_types_is_sound() -> None:
    assert linear() == ""


@pytest.mark.parametrize(
    "field, value, sentence",
    [
        ("input_offset", "3", "input_offset is 3"),
        ("output_offset", "7", "output_offset is 7"),
        ("requantize_multipliers", "[1717986917]", "the scales of the types give"),
        ("requantize_shifts", "[-3]", "the scales of the types give"),
        ("requantize_shifts", "[31]", "shift 31 is outside -31:30"),
        ("requantize_shifts", "[-32]", "shift -32 is outside -31:30"),
        ("requantize_multipliers", "[4294967296]", "does not fit int32"),
        ("requantize_multipliers", "[1, 2]", "one multiplier and shift"),
        ("activation_max", "200", "is not within -128:127"),
        ("activation_min", "128", "is not within -128:127"),
    ],
)
def test_a_field_that_contradicts_the_types_or_the_kernel_is_refused(
    field: str, value: str, sentence: str
) -> None:
    assert sentence in linear(**{field: value})


def test_an_mve_layer_without_kernel_sums_is_refused() -> None:
    assert "no kernel_sum" in linear("cortex-m55")


def test_a_float_op_on_quantized_values_is_refused() -> None:
    relu = "%y = aten.relu.default(%x: i8<0.1:3>[2, 4]) -> i8<0.1:3>[2, 4]"
    assert "computes with reals" in problems(relu)


MOVED = """%r = quant.scast(%x: i8<0.1:3>[2, 4]) -> i8[2, 4]
    %v = aten.view.default(%r, [8])"""


def test_a_float_op_on_the_raw_integers_of_quantized_values_is_refused_moving_them_is_not() -> None:
    found = problems(f"{MOVED}; %y = aten.relu.default(%v)")
    assert "aten.relu.default reads its stored integers as if they were real values" in found
    assert problems(MOVED) == ""


def softmax(row: int) -> str:
    return problems(
        f"%y = cmsis.softmax(%x: i8<0.5:3>[2, {row}], dim=-1, input_zero_point=3, "
        "output_zero_point=-128, input_multiplier=1073741824, input_shift=26, diff_min=-31) "
        f"-> i8<0.00390625:-128>[2, {row}]"
    )


def test_a_softmax_row_that_can_overflow_is_refused_and_the_longest_safe_one_is_not() -> None:
    assert "can reach a sum of 2**28" in softmax(512)
    assert softmax(511) == ""


def pool(scratch: int, target: str) -> str:
    return problems(
        "%y = cmsis.quantized_avg_pool2d_nhwc(%x: i8[1, 4, 4, 8], kernel_size=[2, 2], "
        "stride=[2, 2], padding=[0, 0], ceil_mode=false, zero_point=0, multiplier=1, shift=0, "
        f"scratch={scratch}) -> i8[1, 2, 2, 8]",
        target,
    )


@pytest.mark.parametrize("target, bytes_", [("cortex-m4", 32), ("cortex-m3", 0), ("cortex-m55", 0)])
def test_scratch_is_what_the_kernel_needs_on_the_target(target: str, bytes_: int) -> None:
    assert pool(bytes_, target) == ""
    assert f"needs {bytes_}" in pool(bytes_ + 4, target)


def test_a_target_that_does_not_exist_is_refused_by_name() -> None:
    exported = torch.export.export(torch.nn.Linear(2, 2), (torch.ones(1, 2),))
    with pytest.raises(StepwellError, match="cortex-m99 is not a Cortex-M CPU"):
        stepwell.lower(exported, "cortex-m99")


def test_an_unquantized_model_stays_float_and_every_layer_says_why() -> None:
    exported = torch.export.export(torch.nn.Linear(2, 2).eval(), (x := torch.ones(1, 2),))
    lowered = stepwell.lower(exported, "cortex-m55")
    assert torch.equal(lowered.program.run(x)[0], exported.module()(x))
    assert any("is not quantized" in refusal.reason for refusal in lowered.report.refusals)
