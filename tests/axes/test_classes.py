"""What is trusted to stay finite where products are; and which op makes a NaN of finite numbers."""

from typing import Any

import pytest

import stepwell
from stepwell.translate.range_analysis.assumptions import ANY, trusts_finite, trusts_no_nan

X, W = "tensor<2x2xf32>", "tensor<2x2xi1>"
LAYER = f"%l = aten.mm.default(%x, %x) : ({X}, {X}) -> {X}"


def last(*lines: str) -> tuple[Any, Any]:
    text = f"func.func @forward(%x: {X}, %t: {W}) -> {X} {{\n" + "\n".join(lines)
    program = stepwell.parse(text + f"\nfunc.return %y : {X}\n}}")
    op = program.methods["forward"].body.block.last_op
    assert op is not None
    return op.operands[0], program


def unary(call: str) -> str:
    return f"%y = aten.{call} : ({X}) -> {X}"


@pytest.mark.parametrize(
    ("line", "finite", "maker"),
    [
        (unary("mul.Scalar(%l, 3.0)"), True, None),
        (unary("mul.Scalar(%l, inf)"), False, "aten.mul.Scalar"),  # Of a zero.
        (unary("add.Scalar(%l, -inf)"), False, None),
        (unary("exp.default(%l)"), False, None),
        (unary("div.Scalar(%l, 2.0)"), True, None),
        (unary("log.default(%l)"), False, "aten.log.default"),
        (unary("sqrt.default(%l)"), False, "aten.sqrt.default"),
        (unary("softmax.int(%l, 1)"), True, None),
        (unary("tanh.default(%l)"), True, None),
        (unary("neg.default(%x)"), False, None),
        (f"%y = aten.masked_fill.Scalar(%l, %t, -inf) : ({X}, {W}) -> {X}", False, None),
        (f"%y = aten.div.Tensor(%l, %l) : ({X}, {X}) -> {X}", False, "aten.div.Tensor"),
    ],
)
def test_one_op_behind_a_layer(line: str, finite: bool, maker: str | None) -> None:
    value, program = last(LAYER, line)
    assert (trusts_finite([value], program, "it is not", inputs=ANY) is None) == finite
    found = trusts_no_nan(value, program)
    assert (found and found.reason.split()[0]) == maker


def test_a_root_of_a_square_makes_no_nan() -> None:
    square = f"%s = aten.mul.Tensor(%l, %l) : ({X}, {X}) -> {X}"
    assert trusts_no_nan(*last(LAYER, square, unary("sqrt.default(%s)"))) is None


def test_the_op_that_makes_the_nan_is_named_not_what_hands_it_on() -> None:
    log = f"%g = aten.log.default(%l) : ({X}) -> {X}"
    found = trusts_no_nan(*last(LAYER, log, unary("mul.Scalar(%g, 2.0)")))
    assert found is not None
    assert found.reason.startswith("aten.log.default")
