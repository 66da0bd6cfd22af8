"""The operators that are defined by hand: constants, regions, variables.

Regions print and parse in upstream's form, as in tosa-opt::

    %1 = tosa.cond_if %0 (%a = %x) : tensor<i1> (tensor<4xf32>) -> tensor<4xf32> {
    ^bb0(%a: tensor<4xf32>):
      tosa.yield %a : tensor<4xf32>
    } else { ... }
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import ClassVar

from xdsl.dialects.builtin import (
    DenseIntOrFPElementsAttr,
    StringAttr,
    SymbolNameConstraint,
)
from xdsl.ir import Attribute, Block, Operation, Region, SSAValue, TypeAttribute
from xdsl.irdl import (
    irdl_op_definition,
    operand_def,
    opt_prop_def,
    prop_def,
    region_def,
    result_def,
    traits_def,
    var_operand_def,
    var_result_def,
)
from xdsl.parser import Parser, UnresolvedOperand
from xdsl.printer import Printer
from xdsl.traits import IsolatedFromAbove, IsTerminator, Pure

from stepwell.dialects.tosa.base import Field, TosaOp
from stepwell.ir.types import WeightAttr


@irdl_op_definition
class ConstOp(TosaOp):
    """CONST: a tensor whose elements are inline, or in the weight store under a key.

    A key may name codes (uint8, or a wider integer for i48) of an element type that torch lacks. A
    constant of a block-scaled type has a second key, for the scales.
    """

    name = "tosa.const"
    CODE: ClassVar[int] = 67
    values = prop_def(DenseIntOrFPElementsAttr | WeightAttr)
    scales = opt_prop_def(WeightAttr)
    output = result_def()
    traits = traits_def(Pure())

    # Upstream has no custom form for it: it prints as "tosa.const"() <{values = …}>.
    print = Operation.print


@irdl_op_definition
class YieldOp(TosaOp):
    """Ends a region of COND_IF or WHILE_LOOP with its outputs."""

    name = "tosa.yield"
    inputs = var_operand_def()
    traits = traits_def(IsTerminator())

    def print(self, printer: Printer) -> None:
        """Print the operands and their types: `%a, %b : types`."""
        if self.operands:
            printer.print_string(" ")
            printer.print_list(self.operands, printer.print_ssa_value)
            printer.print_string(" : ")
            printer.print_list(self.operand_types, printer.print_attribute)

    @classmethod
    def parse(cls, parser: Parser) -> Operation:
        """Parse the operands and their types: `%a, %b : types`."""
        operands = parser.parse_optional_undelimited_comma_separated_list(
            parser.parse_optional_unresolved_operand, parser.parse_unresolved_operand
        )
        if not operands:
            return cls.create()
        parser.parse_punctuation(":")
        position = parser.pos
        types = parser.parse_comma_separated_list(parser.Delimiter.NONE, parser.parse_type)
        return cls.create(operands=parser.resolve_operands(operands, types, position))


_ISOLATED = traits_def(IsolatedFromAbove())
"""A region is a separate graph in a file: all values that it uses are bound to its arguments."""


class _RegionOp(TosaOp):
    """The base class of COND_IF and WHILE_LOOP: `(%a = %x, …)`, two regions and a keyword between
    them.
    """

    def _print_bindings(self, printer: Printer, block: Block, values: Sequence[SSAValue]) -> None:
        def bind(pair: tuple[SSAValue, SSAValue]) -> None:
            printer.print_ssa_value(pair[0])
            printer.print_string(" = ")
            printer.print_ssa_value(pair[1])

        printer.print_string("(")
        printer.print_list(zip(block.args, values, strict=True), bind)
        printer.print_string(")")


@irdl_op_definition
class CondIfOp(_RegionOp):
    """COND_IF: one of two graphs, selected by a bool."""

    name = "tosa.cond_if"
    CODE: ClassVar[int] = 70
    FIELDS: ClassVar[tuple[Field, ...]] = (
        Field("then_graph", 0, "region"),
        Field("else_graph", 1, "region"),
    )
    condition = operand_def()
    input_list = var_operand_def()
    output_list = var_result_def()
    then_graph = region_def("single_block")
    else_graph = region_def("single_block")

    traits = _ISOLATED

    def print(self, printer: Printer) -> None:
        """Print the op in the syntax of upstream MLIR."""
        printer.print_string(" ")
        printer.print_ssa_value(self.condition)
        if self.input_list:
            printer.print_string(" ")
            self._print_bindings(printer, self.then_graph.block, self.input_list)
        printer.print_string(" : ")
        printer.print_attribute(self.condition.type)
        if self.input_list:
            printer.print_string(" ")
            _print_types(printer, self.input_list.types)
        printer.print_string(" -> ")
        _print_results(printer, self.output_list.types)
        printer.print_string(" ")
        printer.print_region(self.then_graph)
        printer.print_string(" else ")
        printer.print_region(self.else_graph)

    @classmethod
    def parse(cls, parser: Parser) -> Operation:
        """Parse the op in the syntax of upstream MLIR."""
        condition = parser.parse_unresolved_operand()
        names, operands = _parse_bindings(parser)
        parser.parse_punctuation(":")
        condition_type = parser.parse_type()
        position = parser.pos
        inputs = _parse_types(parser) if names else []
        parser.parse_punctuation("->")
        outputs = _parse_results(parser)
        regions = [parser.parse_region()]
        parser.parse_keyword("else")
        regions.append(parser.parse_region())
        return cls.create(
            operands=[
                parser.resolve_operand(condition, condition_type),
                *parser.resolve_operands(operands, inputs, position),
            ],
            result_types=outputs,
            regions=regions,
        )


@irdl_op_definition
class WhileLoopOp(_RegionOp):
    """WHILE_LOOP: repeat a body while a graph over the same values yields true."""

    name = "tosa.while_loop"
    CODE: ClassVar[int] = 71
    FIELDS: ClassVar[tuple[Field, ...]] = (
        Field("cond_graph", 0, "region"),
        Field("body_graph", 1, "region"),
    )
    input_list = var_operand_def()
    output_list = var_result_def()
    cond_graph = region_def("single_block")
    body_graph = region_def("single_block")

    traits = _ISOLATED

    def print(self, printer: Printer) -> None:
        """Print in upstream's form: the bindings name the arguments of the first region."""
        printer.print_string(" ")
        self._print_bindings(printer, self.cond_graph.block, self.input_list)
        printer.print_string(" : ")
        _print_types(printer, self.input_list.types)
        printer.print_string(" -> ")
        _print_results(printer, self.output_list.types)
        printer.print_string(" ")
        printer.print_region(self.cond_graph, print_entry_block_args=False)
        printer.print_string(" do ")
        printer.print_region(self.body_graph)

    @classmethod
    def parse(cls, parser: Parser) -> Operation:
        """Parse the op in the syntax of upstream MLIR."""
        names, operands = _parse_bindings(parser)
        parser.parse_punctuation(":")
        position = parser.pos
        inputs = _parse_types(parser)
        parser.parse_punctuation("->")
        outputs = _parse_results(parser)
        arguments = [name.resolve(type_) for name, type_ in zip(names, inputs, strict=True)]
        regions = [parser.parse_region(arguments)]
        parser.parse_keyword("do")
        regions.append(parser.parse_region())
        return cls.create(
            operands=parser.resolve_operands(operands, inputs, position),
            result_types=outputs,
            regions=regions,
        )


@irdl_op_definition
class VariableOp(TosaOp):
    """VARIABLE: a tensor that keeps its value between calls; an op of the module."""

    name = "tosa.variable"
    CODE: ClassVar[int] = 72
    sym_name = prop_def(SymbolNameConstraint())
    var_shape = prop_def(DenseIntOrFPElementsAttr)
    type = prop_def(TypeAttribute)
    initial_value = opt_prop_def(DenseIntOrFPElementsAttr)


@irdl_op_definition
class VariableWriteOp(TosaOp):
    """VARIABLE_WRITE: set a variable."""

    name = "tosa.variable_write"
    CODE: ClassVar[int] = 73
    variable = prop_def(StringAttr, prop_name="name")
    input1 = operand_def()


@irdl_op_definition
class VariableReadOp(TosaOp):
    """VARIABLE_READ: read a variable."""

    name = "tosa.variable_read"
    CODE: ClassVar[int] = 74
    variable = prop_def(StringAttr, prop_name="name")
    output1 = result_def()


STRUCTURAL = (
    ConstOp,
    YieldOp,
    CondIfOp,
    WhileLoopOp,
    VariableOp,
    VariableWriteOp,
    VariableReadOp,
)


def region(arguments: Sequence[Attribute]) -> Region:
    """Create a region of one empty block."""
    return Region(Block(arg_types=arguments))


def _print_types(printer: Printer, types: Sequence[Attribute]) -> None:
    printer.print_string("(")
    printer.print_list(types, printer.print_attribute)
    printer.print_string(")")


def _print_results(printer: Printer, types: Sequence[Attribute]) -> None:
    if len(types) == 1:
        printer.print_attribute(types[0])
    else:
        _print_types(printer, types)


def _parse_types(parser: Parser) -> Sequence[Attribute]:
    return parser.parse_comma_separated_list(parser.Delimiter.PAREN, parser.parse_type)


def _parse_results(parser: Parser) -> Sequence[Attribute]:
    types = parser.parse_optional_comma_separated_list(parser.Delimiter.PAREN, parser.parse_type)
    return [parser.parse_type()] if types is None else types


def _parse_bindings(
    parser: Parser,
) -> tuple[list[Parser.UnresolvedArgument], list[UnresolvedOperand]]:
    def bind() -> tuple[Parser.UnresolvedArgument, UnresolvedOperand]:
        name = parser.parse_argument(expect_type=False)
        parser.parse_punctuation("=")
        return name, parser.parse_unresolved_operand()

    pairs = parser.parse_optional_comma_separated_list(parser.Delimiter.PAREN, bind) or []
    return [a for a, _ in pairs], [b for _, b in pairs]
