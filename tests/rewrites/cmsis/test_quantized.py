"""What the lowerings share: which operands, weights, biases and uses are quantized as they need.

Each near-miss is shown on a rewrite that asks.
"""

from typing import Any

import pytest
import torch
from rewrite_cases import cases
from rewrite_runs import program_of

from stepwell.ir.rewriting.rewrite import History, run_rewrites
from stepwell.translate.lowerings.cmsis import elementwise, layers
from stepwell.translate.lowerings.lowering import step

LINEAR = """
    %w = quant.scast(%ws: weight "w" i8[3, 4]) -> i8<0.25>[3, 4]; %wr = quant.dcast(%w)
    %xr = quant.dcast(%x: i8<0.5:3>[2, 4])
"""
BIASED = f"""{LINEAR}
    %b = quant.scast(%bs: weight "b" i32[3]) -> i32<BIAS>[3]; %br = quant.dcast(%b)
    %z = aten.linear.default(%xr, %wr, %br); %y = quant.qcast(%z) -> i8<MADE>[2, 3]
"""


@pytest.mark.parametrize(
    ("call", "low", "high"),
    [
        ("relu.default(%z)", 0, 127),
        ("relu6.default(%z)", 0, 3),
        ("hardtanh.default(%z, -4.0, 8.0)", -2, 4),
        ("clamp.default(%z, -6.0)", -3, 127),
        ("clamp.default(%z, max=6.0)", -128, 3),
        ("clamp_min.default(%z, -2.0)", -1, 127),
        ("clamp_max.default(%z, 10.0)", -128, 5),
    ],
)
def test_a_clamp_narrows_the_range(apply: Any, call: str, low: int, high: int):
    text = f"""{LINEAR}
        %z = aten.linear.default(%xr, %wr); %c = aten.{call}; %y = quant.qcast(%c) -> i8<2.0>[2, 3]
    """
    done = apply(text, step(layers.linear))
    assert f"activation_min = {low} : i64" in done.text
    assert f"activation_max = {high} : i64" in done.text


test_quantized = cases(layers, elementwise)("""
lower-linear: a use as a float keeps the float -> refused: used as a float by aten.tanh.default
    %w = quant.scast(%ws: weight "w" i8[3, 4]) -> i8<0.25>[3, 4]; %wr = quant.dcast(%w)
    %xr = quant.dcast(%x: i8<0.5:3>[2, 4]); %z = aten.linear.default(%xr, %wr)
    %c = aten.tanh.default(%z); %y = quant.qcast(%c) -> i8<2.0>[2, 3]
lower-linear: a result in other integers keeps the float -> refused: quantized to int16, not int8
    %w = quant.scast(%ws: weight "w" i8[3, 4]) -> i8<0.25>[3, 4]; %wr = quant.dcast(%w)
    %xr = quant.dcast(%x: i8<0.5:3>[2, 4]); %z = aten.linear.default(%xr, %wr)
    %y = quant.qcast(%z) -> i16<2.0>[2, 3]
lower-linear: a result in other integers keeps the float -> refused: to uint8
    %w = quant.scast(%ws: weight "w" i8[3, 4]) -> i8<0.25>[3, 4]; %wr = quant.dcast(%w)
    %xr = quant.dcast(%x: i8<0.5:3>[2, 4]); %z = aten.linear.default(%xr, %wr)
    %y = quant.qcast(%z) -> !quant.uniform<u8:f32, 2.0>[2, 3]
lower-linear: a result with scales along an axis keeps the float -> refused: along an axis
    %w = quant.scast(%ws: weight "w" i8[3, 4]) -> i8<0.25>[3, 4]; %wr = quant.dcast(%w)
    %xr = quant.dcast(%x: i8<0.5:3>[2, 4]); %z = aten.linear.default(%xr, %wr)
    %y = quant.qcast(%z) -> i8<:1, {1.0, 2.0, 3.0}>[2, 3]
lower-linear: an operand in other integers keeps the float -> refused: the operand is quantized
    %w = quant.scast(%ws: weight "w" i8[3, 4]) -> i8<0.25>[3, 4]; %wr = quant.dcast(%w)
    %xr = quant.dcast(%x: i16<0.5>[2, 4]); %z = aten.linear.default(%xr, %wr)
    %y = quant.qcast(%z) -> i8<2.0>[2, 3]
lower-linear: an operand that is not quantized keeps the float -> refused: is not quantized
    %w = quant.scast(%ws: weight "w" i8[3, 4]) -> i8<0.25>[3, 4]; %wr = quant.dcast(%w)
    %z = aten.linear.default(%xr: f32[2, 4], %wr); %y = quant.qcast(%z) -> i8<1.0>[2, 3]
lower-linear: 0.25-i16-the weight is int16 -> refused: the weight is int16
    %w = quant.scast(%ws: weight "w" i16[3, 4]) -> i16<0.25>[3, 4]; %wr = quant.dcast(%w)
    %xr = quant.dcast(%x: i8<0.5:3>[2, 4]); %z = aten.linear.default(%xr, %wr)
    %y = quant.qcast(%z) -> i8<2.0>[2, 3]
lower-linear: 0.25-u8-the weight is uint8 -> refused: the weight is uint8
    %w = quant.scast(%ws: weight "w" ui8[3, 4]) -> !quant.uniform<u8:f32, 0.25>[3, 4]
    %wr = quant.dcast(%w); %xr = quant.dcast(%x: i8<0.5:3>[2, 4])
    %z = aten.linear.default(%xr, %wr); %y = quant.qcast(%z) -> i8<2.0>[2, 3]
lower-linear: a weight the kernel does not take keeps the float -> refused: a scale for each block
    %w = quant.scast(%ws: weight "w" i8[3, 4]) -> i8<:{0:1, 1:2}, {{0.1, 0.2}, {0.1, 0.3}, {0.2, 0.2}}>[3, 4]
    %wr = quant.dcast(%w); %xr = quant.dcast(%x: i8<0.5:3>[2, 4])
    %z = aten.linear.default(%xr, %wr); %y = quant.qcast(%z) -> i8<2.0>[2, 3]
lower-linear: a float weight keeps the float -> refused: the weight is not quantized
    %xr = quant.dcast(%x: i8<0.5:3>[2, 4]); %z = aten.linear.default(%xr, %wr: weight "w" f32[3, 4])
    %y = quant.qcast(%z) -> i8<2.0>[2, 3]
lower-linear: an int16 weight that is computed keeps the float -> refused: the weight is computed at run time
    %wr = quant.dcast(%w: i16<0.25>[3, 4]); %xr = quant.dcast(%x: i8<0.5:3>[2, 4])
    %z = aten.linear.default(%xr, %wr); %y = quant.qcast(%z) -> i8<2.0>[2, 3]
lower-linear: a bias with a zero point -> refused: the bias has a zero point
    %w = quant.scast(%ws: weight "w" i8[3, 4]) -> i8<0.25>[3, 4]; %wr = quant.dcast(%w)
    %b = quant.scast(%bs: weight "b" i32[3]) -> i32<0.125:1>[3]; %br = quant.dcast(%b)
    %xr = quant.dcast(%x: i8<0.5:3>[2, 4]); %z = aten.linear.default(%xr, %wr, %br)
    %y = quant.qcast(%z) -> i8<2.0>[2, 3]
lower-linear: a computed bias -> refused: the bias is computed at run time
    - %w = quant.scast(%ws: weight "w" i8[3, 4]) -> i8<0.25>[3, 4]; %wr = quant.dcast(%w)
      %br = quant.dcast(%b: i32<0.125>[3]); %xr = quant.dcast(%x: i8<0.5:3>[2, 4])
      %z = aten.linear.default(%xr, %wr, %br); %y = quant.qcast(%z) -> i8<2.0>[2, 3]
    - %w = quant.scast(%ws: weight "w" i8[3, 4]) -> i8<0.25>[3, 4]; %wr = quant.dcast(%w)
      %br = aten.neg.default(%b: f32[3]); %xr = quant.dcast(%x: i8<0.5:3>[2, 4])
      %z = aten.linear.default(%xr, %wr, %br); %y = quant.qcast(%z) -> i8<2.0>[2, 3]
lower-linear: a scale beyond every shift -> refused: needs a shift of
    %w = quant.scast(%ws: weight "w" i8[3, 4]) -> i8<0.25>[3, 4]; %wr = quant.dcast(%w)
    %xr = quant.dcast(%x: i8<0.5:3>[2, 4]); %z = aten.linear.default(%xr, %wr)
    %y = quant.qcast(%z) -> i8<1.0e+30>[2, 3]
lower-arithmetic: a clamp whose bound is a value is no clamp -> refused: used as a float by aten.clamp.Tensor
    %ar = quant.dcast(%a: i8<0.5>[4]); %br = quant.dcast(%b: i8<0.5>[4])
    %z = aten.add.Tensor(%ar, %br)
    %c = aten.clamp.Tensor(%z, %ar); %y = quant.qcast(%c) -> i8<1.0>[4]
lower-linear: a result that only a dead clamp reads -> unchanged
    %w = quant.scast(%ws: weight "w" i8[3, 4]) -> i8<0.25>[3, 4]; %wr = quant.dcast(%w)
    %xr = quant.dcast(%x: i8<0.5>[2, 4]); %z = aten.linear.default(%xr, %wr)
    %c = aten.relu.default(%z); %y = quant.qcast(%xr) -> i8<1.0>[2, 4]
lower-linear: an operand quantized as it comes keeps the float -> refused: scale is computed at run time
    %w = quant.scast(%ws: weight "w" i8[3, 4]) -> i8<0.25>[3, 4]; %wr = quant.dcast(%w)
    %s, %p = quantized_decomposed.choose_qparams.tensor(%x: f32[2, 4], -128, 127, 1e-07, i8)
    %q = quantized_decomposed.quantize_per_tensor.tensor(%x, %s, %p, -128, 127, i8)
    %xr = quantized_decomposed.dequantize_per_tensor.tensor(%q, %s, %p, -128, 127, i8)
    %z = aten.linear.default(%xr, %wr); %y = quant.qcast(%z) -> i8<1.0>[2, 3]
""")


@pytest.mark.parametrize("scale", ["0.125", "0.5"], ids=["the sum's scale", "another"])
def test_a_stored_bias_is_brought_to_the_sums_scale(apply: Any, scale: str):
    text = BIASED.replace("BIAS", scale).replace("MADE", "2.0")
    assert "cmsis.quantized_linear" in apply(text, step(layers.linear)).ops()


def test_a_sum_past_int32_is_refused():
    for bias, numbers, reason in (
        ((1 << 31) - 1, "2.0", "can accumulate"),
        (1 << 20, "0.000001", "is scaled up by"),
    ):
        program = program_of(BIASED.replace("BIAS", "0.125").replace("MADE", numbers))
        program.weights.get("b").fill_(bias)
        program.weights.get("w").fill_(100)
        history = History()
        assert run_rewrites(program, [step(layers.linear)], history) == 0
        assert any(reason in r.reason for r in history.refusals.values()), history.refusals


def test_stored_ranges_are_what_quantizing_the_clamped_real_gives():
    from stepwell.dialects.quant.types import per_tensor
    from stepwell.translate.quantized.recognize import narrowed

    held = per_tensor(torch.int8, 0.05, 7).data
    assert narrowed(held, [(0.0, None)]) == (7, 127)
    assert narrowed(held, [(0.0, 1.0), (None, 0.5)]) == (7, 17)
    assert narrowed(held, [(-float("inf"), float("inf"))]) == (-128, 127)


@pytest.mark.parametrize("op", ["hardtanh", "clamp", "clamp_min", "clamp_max"])
def test_a_bound_of_run_time_is_no_clamp(refused: Any, op: str):
    text = f"""{LINEAR}
        %n = sym.constant 2.0 : f64 : !stepwell.float<"2.0">; %z = aten.linear.default(%xr, %wr)
        %c = aten.{op}.default(%z, %n); %y = quant.qcast(%c) -> i8<2.0>[2, 3]
    """
    refused(text, step(layers.linear), f"used as a float by aten.{op}.default")
