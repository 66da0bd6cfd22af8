"""The ops of a method without its signature, as in examples, with inline constants.

    %a = tosa.add %x, dense<2.0> : (tensor<3xf32>, tensor<1xf32>) -> tensor<3xf32>
    %y = tosa.exp %a : (tensor<3xf32>) -> tensor<3xf32>

A value that no line defines is an argument; arguments are in the order of their first uses. The
results of the last line are returned, unless there is a `func.return`.
"""

from __future__ import annotations

import textwrap
from collections.abc import Mapping
from typing import Any

from xdsl.dialects.builtin import DenseIntOrFPElementsAttr, ModuleOp
from xdsl.dialects.func import FuncOp, ReturnOp
from xdsl.ir import Attribute, Block, Operation, Region
from xdsl.parser import UnresolvedOperand
from xdsl.utils.lexer import Input, Span

from stepwell.ir.core import WeightOp
from stepwell.ir.syntax.inline_values import take_values
from stepwell.ir.syntax.parser import TextParser
from stepwell.ir.syntax.text import TextContext
from stepwell.ir.types import WeightAttr
from stepwell.ir.weights import WeightStore


def module_of_ops(text: str, arguments: Mapping[str, Attribute] | None = None) -> ModuleOp:
    """Parse ops as a module with one method, `@forward`.

    Args:
        text: the text, one op per line.
        arguments: the arguments of the method, if some are unused or in another order.

    Raises:
        ParseError: xDSL cannot parse the text.
        KeyError: an op uses a value that is neither defined nor an argument.
    """
    parser = _OpsParser(TextContext(), textwrap.dedent(text))
    ops = parser.parse_ops()
    free = {name: values[0] for name, values in parser.forward_ssa_references.items()}
    if arguments is None:
        arguments = {name: value.type for name, value in free.items()}
    block = Block(arg_types=list(arguments.values()))
    places = dict(zip(arguments, block.args, strict=True))
    for name, place in places.items():
        place.name_hint = name
    for name, value in free.items():
        value.replace_all_uses_with(places[name])
    block.add_ops([*parser.constants, *ops])
    if not isinstance(ops[-1], ReturnOp):
        block.add_op(ReturnOp(*ops[-1].results))
    last = block.last_op
    assert last is not None
    types = (list(arguments.values()), [value.type for value in last.operands])
    return ModuleOp([FuncOp("forward", types, Region(block))])


class _OpsParser(TextParser):
    """A parser of ops until the end of the text, with `dense<…>` as operands."""

    def __init__(self, context: TextContext, text: str) -> None:
        super().__init__(context, text)
        self.constants: list[WeightOp] = []
        self._literals: dict[str, str] = {}

    def parse_ops(self) -> list[Operation]:
        """Parse all ops of the text."""
        ops: list[Operation] = []
        while (op := self.parse_optional_operation()) is not None:
            ops.append(op)
        if self.pos < len(self._current_token.span.input.content.rstrip()):
            self.raise_error("an operation is expected")
        return ops

    def parse_optional_unresolved_operand(self) -> UnresolvedOperand | None:
        """Parse a value's name, or a literal, for which a name is created."""
        if self.current_keyword() != "dense":
            return super().parse_optional_unresolved_operand()
        span = self._current_token.span
        content, end = span.input.content, span.end
        depth = content[end] == "<"
        while depth:
            end += 1
            depth += {"<": 1, ">": -1}.get(content[end], 0)
        name = f"%dense.{len(self._literals)}"
        self._literals[name[1:]] = content[span.start : end + 1]
        self._resume_from(end + 1)
        return UnresolvedOperand(Span(0, len(name), Input(name, "<literal>")), 0)

    def resolve_operand(self, operand: UnresolvedOperand, type: Any) -> Any:
        """Return the value of an operand; a literal becomes a constant of the operand's type."""
        literal = self._literals.get(operand.operand_name)
        if literal is None:
            return super().resolve_operand(operand, type)
        value = TextParser(TextContext(), f"{literal} : {type}").parse_attribute()
        assert isinstance(value, DenseIntOrFPElementsAttr)
        self.constants.append(op := _constant(value, type))
        return op.results[0]


def _constant(value: DenseIntOrFPElementsAttr, type_: Attribute) -> WeightOp:
    """Create a constant with the key that a weight store gives its elements."""
    op, weights = WeightOp("constant", type_), WeightStore()
    op.properties["value"] = value
    take_values(ModuleOp([op.clone()]), weights)
    op.properties["key"] = WeightAttr(weights.constant(weights.get("constant")))
    return op
