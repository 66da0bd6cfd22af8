"""What the lowerings share: which operands, weights, biases and uses are quantized as they need.

Each near-miss is shown on a rewrite that asks.
"""

from typing import Any

import pytest
import torch

from stepwell.translate.lowerings.cmsis import elementwise, layers
from stepwell.translate.lowerings.lowering import step


def layer(
    words: Any,
    method: Any,
    *,
    weight: str | None = None,
    bias: tuple[str, ...] = (),
    held: tuple[str, str] = ("0.5:3", "i8"),
    behind: tuple[str, ...] = (),
    value: str = "z",
    out: tuple[str, str] = ("2.0", "i8"),
    taken: str = "",
) -> str:
    operands = "%xr, %wr" + (", %br" if bias else "")
    shapes = ("2x4", "3x4") + (("3",) if bias else ())
    return method(
        f"%x: {words.typed('2x4', *held)}{taken}",
        words.weight("w", "3x4") if weight is None else weight,
        *bias,
        words.dcast("x", "2x4", *held),
        words.call("z", "aten.linear.default", operands, shapes, "2x3"),
        *behind,
        words.qcast(value, "2x3", *out),
        gives=words.typed("2x3", *out),
    )


def through(words: Any, op: str, rest: str = "") -> tuple[str, ...]:
    return (words.call("c", f"aten.{op}", f"%z{rest}", ("2x3",), "2x3"),)


@pytest.mark.parametrize(
    "op, rest, low, high",
    [
        ("relu.default", "", 0, 127),
        ("relu6.default", "", 0, 3),
        ("hardtanh.default", ", -4.0, 8.0", -2, 4),
        ("clamp.default", ", -6.0", -3, 127),
        ("clamp.default", ", None, 6.0", -128, 3),
        ("clamp_min.default", ", -2.0", -1, 127),
        ("clamp_max.default", ", 10.0", -128, 5),
    ],
)
def test_a_clamp_narrows_the_range(
    apply: Any, method: Any, words: Any, op: str, rest: str, low: int, high: int
):
    rest = rest.replace(", None, 6.0", ", max=6.0")
    text = layer(words, method, behind=through(words, op, rest), value="c")
    done = apply(text, step(layers.linear))
    assert f"activation_min = {low} : i64" in done.text
    assert f"activation_max = {high} : i64" in done.text


def test_a_use_as_a_float_keeps_the_float(refused: Any, method: Any, words: Any):
    text = layer(words, method, behind=through(words, "tanh.default"), value="c")
    refused(text, step(layers.linear), "used as a float by aten.tanh.default")


def test_a_result_in_other_integers_keeps_the_float(refused: Any, method: Any, words: Any):
    refused(
        layer(words, method, out=("2.0", "i16")),
        step(layers.linear),
        "quantized to int16, not int8",
    )
    refused(layer(words, method, out=("2.0", "u8")), step(layers.linear), "to uint8")


def test_a_result_with_scales_along_an_axis_keeps_the_float(refused: Any, method: Any, words: Any):
    text = layer(words, method, out=(":1, {1.0, 2.0, 3.0}", "i8"))
    refused(text, step(layers.linear), "along an axis")


def test_an_operand_in_other_integers_keeps_the_float(refused: Any, method: Any, words: Any):
    refused(
        layer(words, method, held=("0.5", "i16")), step(layers.linear), "its operand is quantized"
    )


def test_an_operand_that_is_not_quantized_keeps_the_float(refused: Any, method: Any, words: Any):
    text = method(
        "%xr: tensor<2x4xf32>",
        words.weight("w", "3x4"),
        words.call("z", "aten.linear.default", "%xr, %wr", ("2x4", "3x4"), "2x3"),
        words.qcast("z", "2x3"),
        gives=words.typed("2x3", "1.0"),
    )
    refused(text, step(layers.linear), "is not quantized")


@pytest.mark.parametrize(
    "numbers, storage, reason",
    [
        ("0.25", "i16", "its weight is int16"),
        ("0.25", "u8", "its weight is uint8"),
        (":{0:1, 1:2}, {{0.1, 0.2}, {0.1, 0.3}, {0.2, 0.2}}", "i8", "a scale for each block"),
    ],
)
def test_a_weight_the_kernel_does_not_take_keeps_the_float(
    refused: Any, method: Any, words: Any, numbers: str, storage: str, reason: str
):
    weight = words.weight("w", "3x4", numbers, storage)
    refused(layer(words, method, weight=weight), step(layers.linear), reason)


def test_a_float_weight_keeps_the_float(refused: Any, method: Any, words: Any):
    weight = '%wr = stepwell.weight <"w"> "parameter" : tensor<3x4xf32>'
    refused(layer(words, method, weight=weight), step(layers.linear), "its weight is not quantized")


def test_an_int16_weight_that_is_computed_keeps_the_float(refused: Any, method: Any, words: Any):
    taken = f", %w: {words.typed('3x4', '0.25', 'i16')}"
    weight = words.dcast("w", "3x4", "0.25", "i16")
    text = layer(words, method, weight=weight, taken=taken)
    refused(text, step(layers.linear), "its weight is computed at run time")


def stored_bias(numbers: str, words: Any) -> tuple[str, ...]:
    return (words.weight("b", "3", numbers, "i32"),)


@pytest.mark.parametrize("scale", ["0.125", "0.5"], ids=["the sum's scale", "another"])
def test_a_stored_bias_is_brought_to_the_sums_scale(
    apply: Any, method: Any, words: Any, scale: str
):
    done = apply(layer(words, method, bias=stored_bias(scale, words)), step(layers.linear))
    assert "cmsis.quantized_linear" in done.ops()


def test_a_bias_with_a_zero_point_is_refused(refused: Any, method: Any, words: Any):
    text = layer(words, method, bias=stored_bias("0.125:1", words))
    refused(text, step(layers.linear), "its bias has a zero point")


@pytest.mark.parametrize("quantized", [True, False])
def test_a_computed_bias_is_refused(refused: Any, method: Any, words: Any, quantized: bool):
    if quantized:
        taken = f", %b: {words.typed('3', '0.125', 'i32')}"
        bias = (words.dcast("b", "3", "0.125", "i32"),)
    else:
        taken = ", %b: tensor<3xf32>"
        bias = ("%br = aten.neg.default(%b) : (tensor<3xf32>) -> tensor<3xf32>",)
    text = layer(words, method, bias=bias, taken=taken)
    refused(text, step(layers.linear), "its bias is computed at run time")


def test_a_scale_beyond_every_shift_is_refused(refused: Any, method: Any, words: Any):
    text = layer(words, method, out=("1.000000e+30", "i8"))
    refused(text, step(layers.linear), "needs a shift of")


def test_a_sum_past_int32_is_refused(programs: Any, words: Any, method: Any):
    from stepwell.ir.rewriting.rewrite import History, run_rewrites

    for bias, numbers, reason in (
        ((1 << 31) - 1, "2.0", "can accumulate"),
        (1 << 20, "0.000001", "is scaled up by"),
    ):
        text = layer(words, method, bias=stored_bias("0.125", words), out=(numbers, "i8"))
        program, _ = programs(text)
        program.weights.get("b").fill_(bias)
        program.weights.get("w").fill_(100)
        history = History()
        assert run_rewrites(program, [step(layers.linear)], history) == 0
        assert any(reason in r.reason for r in history.refusals.values()), history.refusals


def test_a_clamp_whose_bound_is_a_value_is_no_clamp(refused: Any, method: Any, words: Any):
    text = method(
        f"%a: {words.typed('4')}, %b: {words.typed('4')}",
        words.dcast("a", "4"),
        words.dcast("b", "4"),
        words.call("z", "aten.add.Tensor", "%ar, %br", ("4", "4"), "4"),
        words.call("c", "aten.clamp.Tensor", "%z, %ar", ("4", "4"), "4"),
        words.qcast("c", "4"),
        gives=words.typed("4", "1.0"),
    )
    refused(text, step(elementwise.arithmetic), "used as a float by aten.clamp.Tensor")


def test_stored_ranges_are_what_quantizing_the_clamped_real_gives():
    from stepwell.dialects.quant.types import per_tensor
    from stepwell.translate.quantized.recognize import narrowed

    held = per_tensor(torch.int8, 0.05, 7).data
    assert narrowed(held, [(0.0, None)]) == (7, 127)
    assert narrowed(held, [(0.0, 1.0), (None, 0.5)]) == (7, 17)
    assert narrowed(held, [(-float("inf"), float("inf"))]) == (-128, 127)


def test_a_result_that_only_a_dead_clamp_reads_is_left(refused: Any, method: Any, words: Any):
    text = method(
        f"%x: {words.typed('2x4')}",
        words.weight("w", "3x4"),
        words.dcast("x", "2x4"),
        words.call("z", "aten.linear.default", "%xr, %wr", ("2x4", "3x4"), "2x3"),
        *through(words, "relu.default"),
        words.qcast("xr", "2x4"),
        gives=words.typed("2x4", "1.0"),
    )
    refused(text, step(layers.linear))


@pytest.mark.parametrize("op", ["hardtanh", "clamp", "clamp_min", "clamp_max"])
def test_a_bound_of_run_time_is_no_clamp(refused: Any, method: Any, words: Any, op: str):
    held = words.real("2x3")
    lines = (
        '%n = sym.constant 2.0 : f64 : !stepwell.float<"2.0">',
        f'%c = aten.{op}.default(%z, %n) : ({held}, !stepwell.float<"2.0">) -> {held}',
    )
    text = layer(words, method, behind=lines, value="c")
    refused(text, step(layers.linear), f"used as a float by aten.{op}.default")


def test_an_operand_quantized_as_it_comes_keeps_the_float(refused: Any, method: Any, words: Any):
    library, real, stored = "quantized_decomposed", "tensor<2x4xf32>", "tensor<2x4xi8>"
    numbers = "tensor<1xf64>, tensor<1xi64>"
    text = method(
        f"%x: {real}",
        words.weight("w", "3x4"),
        f"%s, %p = {library}.choose_qparams.tensor(%x, -128, 127, 1.0e-07, i8) : ({real}) -> ({numbers})",
        f"%q = {library}.quantize_per_tensor.tensor(%x, %s, %p, -128, 127, i8) : ({real}, {numbers}) -> {stored}",
        f"%xr = {library}.dequantize_per_tensor.tensor(%q, %s, %p, -128, 127, i8) : ({stored}, {numbers}) -> {real}",
        words.call("z", "aten.linear.default", "%xr, %wr", ("2x4", "3x4"), "2x3"),
        words.qcast("z", "2x3"),
        gives=words.typed("2x3", "1.0"),
    )
    refused(text, step(layers.linear), "scale is computed at run time")
