"""What one or two bytes decide is run on all values that there are."""

from __future__ import annotations

import pytest

from stepwell.certifying.exhausting import NotOfBytes, apart_on_all
from stepwell.ir.declared.bounds import EXACT, Bound
from stepwell.ir.program import Program
from stepwell.ir.weights import WeightStore

HELD = "!quant.uniform<i8:f32, 0.5:3>"


def statement(clamp: str) -> Program:
    text = f"""
    builtin.module {{
      func.func @equal(%x: tensor<2x3x{HELD}>) -> (tensor<2x3x{HELD}>, tensor<2x3x{HELD}>) {{
        %r = quant.dcast %x : tensor<2x3x{HELD}> to tensor<2x3xf32>
        %c = aten.clamp.default(%r, 0.0, 6.0) : (tensor<2x3xf32>) -> tensor<2x3xf32>
        %y = quant.qcast %c : tensor<2x3xf32> to tensor<2x3x{HELD}>
        %z = {clamp} : (tensor<2x3x{HELD}>) -> tensor<2x3x{HELD}>
        func.return %y, %z : tensor<2x3x{HELD}>, tensor<2x3x{HELD}>
      }}
    }}"""
    return Program.parse(text, WeightStore())


def test_a_clamp_of_stored_integers_is_that_of_what_they_stand_for() -> None:
    program = statement("xnnpack.clamp(%x, output_min=0.0, output_max=6.0)")
    assert apart_on_all(program, EXACT) is None


@pytest.mark.parametrize("high", ["5.5", "6.5"])
def test_one_value_of_a_byte_that_differs_is_met(high: str) -> None:
    program = statement(f"xnnpack.clamp(%x, output_min=0.0, output_max={high})")
    assert apart_on_all(program, EXACT) is not None
    assert apart_on_all(program, Bound(0.0, 0.0, "a step", units=1)) is None


def test_what_is_not_elementwise_is_not_decided_so() -> None:
    text = f"""
    builtin.module {{
      func.func @equal(%x: tensor<2x{HELD}>) -> (tensor<2x{HELD}>, tensor<2x{HELD}>) {{
        %z = aten.flip.default(%x, [0]) : (tensor<2x{HELD}>) -> tensor<2x{HELD}>
        func.return %x, %z : tensor<2x{HELD}>, tensor<2x{HELD}>
      }}
    }}"""
    with pytest.raises(NotOfBytes):
        apart_on_all(Program.parse(text, WeightStore()), EXACT)
