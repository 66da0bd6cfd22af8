"""What is trusted to stay finite where products are; and which op makes a NaN of finite numbers."""

from typing import Any

import pytest
from short_ir import program_text

import stepwell
from stepwell.translate.range_analysis.assumptions import ANY, trusts_finite, trusts_no_nan


def last(text: str) -> tuple[Any, Any]:
    """The result of the last of some ops behind a layer `%l`, and the program."""
    program = stepwell.Program(program_text(f"%l = aten.mm.default(%x: f32[2, 2], %x); {text}"))
    op = program.method().body.block.last_op
    assert op is not None
    return op.operands[0], program


@pytest.mark.parametrize(
    ("line", "finite", "maker"),
    [
        ("%y = aten.mul.Scalar(%l, 3.0)", True, None),
        ("%y = aten.mul.Scalar(%l, inf)", False, "aten.mul.Scalar"),  # Of a zero.
        ("%y = aten.add.Scalar(%l, -inf)", False, None),
        ("%y = aten.exp.default(%l)", False, None),
        ("%y = aten.div.Scalar(%l, 2.0)", True, None),
        ("%y = aten.log.default(%l)", False, "aten.log.default"),
        ("%y = aten.sqrt.default(%l)", False, "aten.sqrt.default"),
        ("%y = aten.softmax.int(%l, 1)", True, None),
        ("%y = aten.tanh.default(%l)", True, None),
        ("%y = aten.neg.default(%x)", False, None),
        ("%y = aten.masked_fill.Scalar(%l, %t: i1[2, 2], -inf)", False, None),
        ("%y = aten.div.Tensor(%l, %l)", False, "aten.div.Tensor"),
    ],
)
def test_one_op_behind_a_layer(line: str, finite: bool, maker: str | None) -> None:
    value, program = last(line)
    assert (trusts_finite([value], program, "it is not", inputs=ANY) is None) == finite
    found = trusts_no_nan(value, program)
    assert (found and found.reason.split()[0]) == maker


def test_a_root_of_a_square_makes_no_nan() -> None:
    squared = "%s = aten.mul.Tensor(%l, %l); %y = aten.sqrt.default(%s)"
    assert trusts_no_nan(*last(squared)) is None


def test_the_op_that_makes_the_nan_is_named_not_what_hands_it_on() -> None:
    found = trusts_no_nan(*last("%g = aten.log.default(%l); %y = aten.mul.Scalar(%g, 2.0)"))
    assert found is not None
    assert found.reason.startswith("aten.log.default")
