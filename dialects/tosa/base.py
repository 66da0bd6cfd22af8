"""The base class of TOSA operators: flatbuffer schema and textual form."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

from xdsl.dialects.builtin import BoolAttr, DenseArrayBase, IntegerAttr, IntegerType
from xdsl.ir import Attribute, Operation, SSAValue
from xdsl.irdl import IRDLOperation
from xdsl.parser import Parser
from xdsl.printer import Printer
from xdsl.utils.lexer import Position

from stepwell.dialects.tosa.attributes import EnumerationAttr
from stepwell.ir.axes.maps import HasAxes
from stepwell.ir.diagnostics import StepwellError


@dataclass(frozen=True)
class Field:
    """One attribute of an operator: its name, its slot in the schema's table, its kind.

    Kinds: `i32`, `bool`, `type` (a DType), `i64s` and `i32s` (a list of int32, which MLIR types as
    `array<i64>` or `array<i32>`), `value` (bytes of one element), `bytes`, `string`, `region` (the
    name of a region), or the class name of an enumeration.
    """

    name: str
    slot: int
    kind: str
    default: str | None = None


Enumerations = Mapping[str, type[EnumerationAttr]]
"""The attributes of an operator that are enumerations."""


class TosaOp(HasAxes, IRDLOperation):
    """Base class of the operators. `CODE` is the schema's number of the operator and its
    attributes.

    `BARE_CASES` is whether upstream prints `mode = BILINEAR` or `#tosa.resize_mode<BILINEAR>`.
    """

    CODE: ClassVar[int] = 0
    FIELDS: ClassVar[tuple[Field, ...]] = ()
    ENUMERATIONS: ClassVar[Enumerations] = {}
    BARE_CASES: ClassVar[bool] = True

    def print(self, printer: Printer) -> None:
        """Print `tosa.conv2d %x, %w, … {pad = …} : (types) -> type`, like upstream."""
        shown: dict[str, Attribute] = {}
        for name, value in sorted((self.properties | self.attributes).items()):
            field = next((f for f in self.FIELDS if f.name == name), None)
            if field and field.default is not None and str(_bare(value)) == field.default:
                continue
            shown[name] = value
        if self.operands:
            printer.print_string(" ")
            printer.print_list(self.operands, printer.print_ssa_value)
        if shown:
            printer.print_string(" {")
            printer.print_list(shown.items(), lambda item: self._print_entry(printer, *item))
            printer.print_string("}")
        printer.print_string(" : ")
        printer.print_function_type(self.operand_types, self.result_types)

    def _print_entry(self, printer: Printer, name: str, value: Attribute) -> None:
        printer.print_string(f"{name} = ")
        if self.BARE_CASES and isinstance(value, EnumerationAttr):
            printer.print_string(value.data)
        else:
            printer.print_attribute(value)

    @classmethod
    def parse(cls, parser: Parser) -> Operation:
        """Parse the output of `print` and of tosa-opt."""
        operands = parser.parse_optional_undelimited_comma_separated_list(
            parser.parse_optional_unresolved_operand, parser.parse_unresolved_operand
        )
        entries: dict[str, Attribute] = {}
        if parser.parse_optional_punctuation("{") is not None:
            items = parser.parse_comma_separated_list(
                parser.Delimiter.NONE, lambda: cls._parse_entry(parser)
            )
            parser.parse_punctuation("}")
            entries = dict(items)
        parser.parse_punctuation(":")
        position = parser.pos
        types = parser.parse_function_type()
        resolved = parser.resolve_operands(operands or [], types.inputs.data, position)
        return cls.assemble(parser, position, resolved, types.outputs.data, entries)

    @classmethod
    def _parse_entry(cls, parser: Parser) -> tuple[str, Attribute]:
        name = parser.parse_identifier(context_msg=" for an attribute")
        parser.parse_punctuation("=")
        enumeration = cls.ENUMERATIONS.get(name)
        if enumeration is not None:
            position = parser.pos
            attribute = parser.parse_optional_attribute()
            if attribute is None:
                attribute = enumeration(enumeration.parse_case(parser))
            if not isinstance(attribute, enumeration):
                parser.raise_error(
                    f"{name} must be a case of {enumeration.name}", position, parser.pos
                )
            return name, attribute
        return name, parser.parse_attribute()

    @classmethod
    def assemble(
        cls,
        parser: Parser,
        position: Position,
        operands: Sequence[SSAValue],
        results: Sequence[Attribute],
        entries: Mapping[str, Attribute],
    ) -> Operation:
        """Build the op from its parsed parts; a wrong number of operands is a parse error."""
        try:
            return cls.make(operands, results, **entries)
        except StepwellError as error:
            parser.raise_error(error.problems[0].fact, position, parser.pos)

    @classmethod
    def make(
        cls, operands: Sequence[SSAValue], results: Sequence[Attribute], **entries: Attribute
    ) -> Operation:
        """Build an op from operands, result types, and `entries`, its properties by name."""
        known = {field.name for field in cls.FIELDS} | {"values"}
        properties = {name: value for name, value in entries.items() if name in known}
        attributes = {name: value for name, value in entries.items() if name not in known}
        return cls.create(
            operands=operands,
            result_types=results,
            properties=properties,
            attributes=attributes,
        )

    @classmethod
    def field_attribute(cls, name: str, value: Any) -> Attribute:
        """Convert a field's number, list of numbers, string or bool to an attribute."""
        if name in cls.ENUMERATIONS:
            return cls.ENUMERATIONS[name](value)
        (kind,) = (field.kind for field in cls.FIELDS if field.name == name)
        if kind in ("i64s", "i32s"):
            return DenseArrayBase.from_list(IntegerType(int(kind[1:3])), list(value))
        return BoolAttr.from_bool(value) if kind == "bool" else IntegerAttr(value, 32)


def _bare(value: Attribute) -> object:
    if isinstance(value, EnumerationAttr):
        return value.data
    return value
