"""What delegates of every backend share: printing, parsing, and verification against their body."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, ClassVar, Self

from xdsl.dialects.builtin import FunctionType, StringAttr
from xdsl.ir import Attribute, Block, Operation, Region, SSAValue
from xdsl.irdl import IRDLOperation, region_def, traits_def, var_operand_def, var_result_def
from xdsl.parser import Parser, UnresolvedOperand
from xdsl.printer import Printer
from xdsl.traits import IsolatedFromAbove
from xdsl.utils.exceptions import VerifyException


def verify_interface(op: Operation, body: Region, end: type[Operation]) -> None:
    """Check that the block's arguments and yielded values match the operands and results."""
    block = body.block
    if [a.type for a in block.args] != [v.type for v in op.operands]:
        raise VerifyException("the block's arguments differ from the operands' types")
    last = block.last_op
    if not isinstance(last, end):
        raise VerifyException(f"a delegate must end in {end.name}")
    if [v.type for v in last.operands] != [r.type for r in op.results]:
        raise VerifyException("the yielded types differ from the results' types")
    if not op.results:
        raise VerifyException("a delegate without results does nothing")


def print_operands(op: Operation, printer: Printer) -> None:
    """Print the operands as `(%x, %y) `."""
    printer.print_string("(")
    printer.print_list(op.operands, printer.print_ssa_value)
    printer.print_string(") ")


def print_body(op: Operation, body: Region, printer: Printer) -> None:
    """Print the body, attributes and type of a delegate: `{ … } : (types) -> types`."""
    printer.print_region(body)
    printer.print_op_attributes(op.attributes)
    printer.print_string(" : ")
    printer.print_attribute(
        FunctionType.from_lists([v.type for v in op.operands], [r.type for r in op.results])
    )


def parse_operands(parser: Parser) -> list[UnresolvedOperand]:
    """Parse the output of `print_operands`."""
    return parser.parse_comma_separated_list(
        parser.Delimiter.PAREN, parser.parse_unresolved_operand
    )


def parse_body(parser: Parser, values: Sequence[UnresolvedOperand]) -> dict[str, Any]:
    """Parse the output of `print_body`, as the arguments of `create`."""
    body = parser.parse_region()
    attributes = parser.parse_optional_attr_dict()
    parser.parse_punctuation(":")
    type_ = parser.parse_type()
    if not isinstance(type_, FunctionType) or len(type_.inputs.data) != len(values):
        parser.raise_error(f"a function type of {len(values)} inputs is needed here")
    return {
        "operands": [
            parser.resolve_operand(v, t) for v, t in zip(values, type_.inputs.data, strict=True)
        ],
        "result_types": list(type_.outputs.data),
        "attributes": attributes,
        "regions": [body],
    }


class NamedDelegateOp(IRDLOperation):
    """A sub-graph on a device. Its operands are the inputs, its results the outputs."""

    DEVICE: ClassVar[str]
    """The property that names the backend or the accelerator."""
    END: ClassVar[type[Operation]]
    """The terminator of the region."""
    inputs = var_operand_def()
    outputs = var_result_def()
    body = region_def("single_block")
    traits = traits_def(IsolatedFromAbove())

    @classmethod
    def make(
        cls, device: str, inputs: Sequence[SSAValue], results: Sequence[Attribute], body: Block
    ) -> Self:
        """Create a delegate around a block whose arguments correspond to `inputs`."""
        return cls.create(
            operands=inputs,
            result_types=results,
            properties={cls.DEVICE: StringAttr(device)},
            regions=[Region(body)],
        )

    def verify_(self) -> None:
        verify_interface(self, self.body, self.END)

    def print(self, printer: Printer) -> None:
        """Print `"device"(%x) { … } : (types) -> types`."""
        printer.print_string(" ")
        printer.print_attribute(self.properties[self.DEVICE])
        print_operands(self, printer)
        print_body(self, self.body, printer)

    @classmethod
    def parse(cls, parser: Parser) -> Self:
        """Parse the output of `print`."""
        properties = {cls.DEVICE: StringAttr(parser.parse_str_literal())}
        return cls.create(properties=properties, **parse_body(parser, parse_operands(parser)))
