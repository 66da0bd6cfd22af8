"""Loops in C of operators that say what an element is."""

import pytest
from short_ir import program_text

from stepwell.backends.cortex_m.c import elements
from stepwell.ir.axes.forms import elementwise
from stepwell.ir.program import Program


@pytest.mark.parametrize("name", ["floor_divide.default", "div.Tensor"])
def test_the_axes_of_an_elementwise_operator_are_its_familys(name: str) -> None:
    op = Program(program_text(f"%y = aten.{name}(%x: f32[4], %x)")).method().body.block.first_op
    assert elements._axis_map(op) == elementwise(op)
