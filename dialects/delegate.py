"""Functions for delegates of every backend: printing, parsing, and verification against
their body.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from xdsl.dialects.builtin import FunctionType
from xdsl.ir import Operation, Region
from xdsl.parser import Parser, UnresolvedOperand
from xdsl.printer import Printer
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
