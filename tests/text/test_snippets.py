"""The ops of a method alone: what is free is an argument, constants stand where they are read."""

import pytest
from printed_ops import text_of_ops
from xdsl.dialects.func import FuncOp
from xdsl.utils.exceptions import ParseError

import stepwell.dialects  # noqa: F401  (makes the dialects known)
from stepwell.ir.syntax.snippets import module_of_ops
from stepwell.ir.syntax.text import parse_module, structurally_equal

X = "tensor<3xf32>"
MIXED = f"""\
%m, %i = aten.max.dim(%x, 0, true) : ({X}) -> (tensor<1xf32>, tensor<1xi64>)
%y = tosa.mul %x, dense<-0.5>, dense<0> : ({X}, tensor<1xf32>, tensor<1xi8>) -> {X}
%z = aten.index_select.default(%y, 0, dense<[2, 0]>) : ({X}, tensor<2xi64>) -> tensor<2xf32>
"""


def method_of(text: str) -> FuncOp:
    (method,) = module_of_ops(text).ops
    assert isinstance(method, FuncOp)
    return method


def test_ops_come_back_as_they_were_written() -> None:
    assert text_of_ops(method_of(MIXED)) == MIXED


def test_the_last_results_are_returned() -> None:
    line = f"%y = aten.relu.default(%x) : ({X}) -> {X}"
    whole = f"func.func @forward(%x: {X}) -> {X} {{\n{line}\nfunc.return %y : {X}\n}}"
    assert structurally_equal(module_of_ops(line), parse_module(whole))


def test_a_return_may_say_otherwise() -> None:
    text = MIXED + "func.return %y, %m : tensor<3xf32>, tensor<1xf32>\n"
    assert text_of_ops(method_of(text)) == text


def test_arguments_may_be_given() -> None:
    held = {value.name_hint or "": value.type for value in method_of(MIXED).body.block.args}
    line = "%y = aten.relu.default(%b) : (tensor<2xf32>) -> tensor<2xf32>"
    taken = {"b": method_of(line).body.block.args[0].type} | held
    (method,) = module_of_ops(line, taken).ops
    assert [argument.name_hint for argument in method.regions[0].block.args] == ["b", "x"]
    with pytest.raises(KeyError):
        module_of_ops(line, held)


def test_what_is_no_op_is_refused() -> None:
    with pytest.raises(ParseError):
        module_of_ops(MIXED + "nonsense")
