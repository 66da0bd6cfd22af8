"""Loops in C of operators that say what an element is."""

import pytest

import stepwell.dialects  # noqa: F401  (makes the dialects known)
from stepwell.backends.cortex_m.c import elements
from stepwell.ir.axes.forms import elementwise
from stepwell.ir.axes.maps import axis_map
from stepwell.ir.program import Program
from stepwell.ir.syntax.text import parse_module
from stepwell.ir.weights import WeightStore


@pytest.mark.parametrize(
    ("name", "is_said"), [("floor_divide.default", False), ("div.Tensor", True)]
)
def test_axes_that_an_operator_does_not_say_are_its_familys(name: str, is_said: bool) -> None:
    x = "tensor<4xf32>"
    line = f"%y = aten.{name}(%x, %x) : ({x}, {x}) -> {x}"
    text = f"func.func @forward(%x: {x}) -> {x} {{\n  {line}\n  func.return %y : {x}\n}}"
    op = Program(parse_module(text), WeightStore()).method().body.block.first_op
    assert (axis_map(op) is not None) == is_said
    assert elements._axis_map(op) == elementwise(op)
