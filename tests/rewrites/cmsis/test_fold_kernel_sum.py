"""FoldKernelSum: beyond its documented example, and what it leaves alone."""

from typing import Any

import pytest

from stepwell.translate.rewrites.cmsis.operators.fold_kernel_sum import BiasForm, FoldKernelSum

FIELDS = """{input_offset = 5 : i64, filter_offset = 0 : i64, output_offset = 0 : i64,
    requantize_multipliers = array<i64: 1073741824>, requantize_shifts = array<i64: -3>,
    activation_max = 127 : i64, activation_min = -128 : i64}"""
W = '%w = stepwell.weight <"w"> "parameter" : tensor<3x4xi8>'
B = '%b = stepwell.weight <"b"> "parameter" : tensor<3xi32>'
S = '%s = stepwell.weight <"s"> "parameter" : tensor<1x3xi32>'


def layer(method: Any, *lines: str, taken: str = "", bias: str = "", sums: str = "") -> str:
    operands = "%x, %w" + (f", bias = %{bias}" if bias else "")
    operands += f", kernel_sum = %{sums}" if sums else ""
    types = "tensor<2x4xi8>, tensor<3x4xi8>" + (", tensor<3xi32>" if bias else "")
    types += ", tensor<1x3xi32>" if sums else ""
    return method(
        f"%x: tensor<2x4xi8>{taken}",
        *lines,
        f"%y = cmsis.quantized_linear({operands}) {FIELDS} : ({types}) -> tensor<2x3xi8>",
        gives="tensor<2x3xi8>",
    )


def test_without_a_bias_the_sums_stand_alone(apply: Any, method: Any):
    done = apply(layer(method, W), FoldKernelSum())
    assert "kernel_sum" in done.text and "bias" not in done.text


def test_both_are_kept_when_asked(apply: Any, method: Any):
    done = apply(layer(method, W, B, bias="b"), FoldKernelSum(BiasForm.BOTH))
    assert "kernel_sum = " in done.text and "bias = " in done.text


def test_sums_that_are_there_are_kept(refused: Any, method: Any):
    refused(layer(method, W, S, sums="s"), FoldKernelSum())


def test_the_bias_form_folds_nothing(refused: Any, method: Any):
    refused(layer(method, W, B, bias="b"), FoldKernelSum(BiasForm.BIAS))


def test_sums_at_run_time_are_refused(refused: Any, method: Any):
    refused(layer(method, W), FoldKernelSum(BiasForm.RUN_TIME), "no scratch operand")


@pytest.mark.parametrize(
    "lines, taken, bias, reason",
    [
        ((), ", %w: tensor<3x4xi8>", "", "its weight is computed at run time"),
        ((W,), ", %b: tensor<3xi32>", "b", "its bias is computed at run time"),
    ],
    ids=["weight", "bias"],
)
def test_what_is_computed_at_run_time_has_no_known_sums(
    refused: Any, method: Any, lines: Any, taken: str, bias: str, reason: str
):
    refused(layer(method, *lines, taken=taken, bias=bias), FoldKernelSum(), reason)
