"""torch-mlir's `torch` dialect as text: operators of torch in torch-mlir's notation.

    %int1 = torch.constant.int 1
    %0 = torch.aten.add.Tensor %a, %b, %int1 : !torch.vtensor<[2],f32>, … -> !torch.vtensor<[2],f32>

An op has values, attributes and types. The importer defines its semantics (`translate/upstream`).
Op classes are created when a text first uses them.
"""

from __future__ import annotations

from functools import cache
from typing import Any, cast

from xdsl.dialects.builtin import (
    ArrayAttr,
    FloatAttr,
    IntAttr,
    IntegerAttr,
    StringAttr,
    i1,
    i64,
)
from xdsl.ir import Attribute, Dialect, Operation, ParametrizedAttribute, TypeAttribute
from xdsl.irdl import (
    IRDLOperation,
    irdl_attr_definition,
    irdl_op_definition,
    opt_prop_def,
    param_def,
    var_operand_def,
    var_result_def,
)
from xdsl.parser import AttrParser, Parser
from xdsl.printer import Printer

from stepwell.ir.dtypes import f64
from stepwell.ir.syntax.parser import TextParser, float_of_bits

UNKNOWN_SIZE = -1
_CONSTANTS = ("int", "float", "bool", "str", "none", "number", "device")


class _Sized(ParametrizedAttribute, TypeAttribute):
    """A tensor type with sizes (None: unknown rank) and element type (None: unknown)."""

    shape: ArrayAttr[IntAttr] | StringAttr = param_def()
    element: Attribute = param_def()

    @classmethod
    def parse_parameters(cls, parser: AttrParser) -> list[Attribute]:
        """Parse `<[2,?],f32>`, `<*,f32>`, or nothing."""
        if parser.parse_optional_punctuation("<") is None:
            return [StringAttr("*"), StringAttr("unk")]
        shape: Attribute = StringAttr("*")
        if parser.parse_optional_characters("*") is None:
            sizes = parser.parse_comma_separated_list(
                parser.Delimiter.SQUARE, lambda: _size(parser)
            )
            shape = ArrayAttr([IntAttr(size) for size in sizes])
        parser.parse_punctuation(",")
        known = parser.parse_optional_keyword("unk") is None
        held = parser.parse_type() if known else StringAttr("unk")
        parser.parse_punctuation(">")
        return [shape, held]

    def print_parameters(self, printer: Printer) -> None:
        """Print the parameters as torch-mlir does."""
        if isinstance(self.shape, StringAttr):
            text = "*"
        else:
            sizes = ["?" if d.data == UNKNOWN_SIZE else str(d.data) for d in self.shape.data]
            text = f"[{','.join(sizes)}]"
        held = "unk" if isinstance(self.element, StringAttr) else str(self.element)
        printer.print_string(f"<{text},{held}>")


def _size(parser: AttrParser) -> int:
    if parser.parse_optional_punctuation("?") is not None:
        return UNKNOWN_SIZE
    return parser.parse_integer(allow_boolean=False, allow_negative=False)


@irdl_attr_definition
class VTensor(_Sized):
    """A tensor with value semantics."""

    name = "torch.vtensor"


@irdl_attr_definition
class NonValueTensor(_Sized):
    """A tensor that may be mutated."""

    name = "torch.tensor"


class _Plain(ParametrizedAttribute, TypeAttribute):
    """A type whose parameters are kept as text."""

    text: StringAttr = param_def()

    @classmethod
    def parse_parameters(cls, parser: AttrParser) -> list[Attribute]:
        """Parse the text between `<` and the matching `>`."""
        if parser.parse_optional_punctuation("<") is None:
            return [StringAttr("")]
        return [StringAttr(TextParser.sharing_state(cast(Parser, parser)).text_to_bracket())]

    def print_parameters(self, printer: Printer) -> None:
        """Print the type's parameters as they were read."""
        printer.print_string(f"<{self.text.data}>" if self.text.data else "")


def _plain(kind: str) -> type[_Plain]:
    made = type(kind.title(), (_Plain,), {"name": f"torch.{kind}", "__doc__": f"`!torch.{kind}`."})
    return irdl_attr_definition(made)


PLAIN = {
    kind: _plain(kind)
    for kind in (*_CONSTANTS, "list", "optional", "tuple", "union", "dict", "any", "Device",
                 "Generator", "quint8", "qint8", "qint32")
}  # fmt: skip


def plain_type(kind: str) -> Attribute:
    """Return a type without parameters by its name, such as `!torch.int`."""
    return PLAIN[kind](StringAttr(""))


class TorchOp(IRDLOperation):
    """An op of torch-mlir's `torch` dialect; each operator has a subclass, created on first use."""

    args = var_operand_def()
    res = var_result_def()
    value = opt_prop_def()
    """The value of a constant."""

    @classmethod
    def parse(cls, parser: Parser) -> Operation:
        """Parse the op as torch-mlir prints it."""
        word = cls.name.removeprefix("torch.")
        if word.startswith("constant."):
            return cls._constant(parser, word.removeprefix("constant."))
        if word in ("vtensor.literal", "tensor.literal"):
            with parser.in_parens():
                value = parser.parse_attribute()
            parser.parse_punctuation(":")
            return cls.build(
                operands=[[]], result_types=[[parser.parse_type()]], properties={"value": value}
            )
        value = parser.parse_optional_str_literal() if word == "operator" else None
        bracketed = value is not None and parser.parse_optional_punctuation("(") is not None
        names: list[Any] = []
        while (operand := parser.parse_optional_unresolved_operand()) is not None:
            names.append(operand)
            if parser.parse_optional_punctuation(",") is None:
                break
        if bracketed:
            parser.parse_punctuation(")")
        attributes = parser.parse_optional_attr_dict()
        given, made = cls._types(parser)
        operands = parser.resolve_operands(names, given, parser.pos)
        properties = {} if value is None else {"value": StringAttr(value)}
        return cls.build(
            operands=[operands], result_types=[made], attributes=attributes, properties=properties
        )

    @classmethod
    def _types(cls, parser: Parser) -> tuple[list[Attribute], list[Attribute]]:
        """Parse the types: `T, T -> R`, `(T, T) -> R`, `T to R` or `T`."""
        if parser.parse_optional_punctuation(":") is None:
            return [], []
        given = _listed(parser)
        if parser.parse_optional_punctuation("->") is not None:
            return given, _listed(parser)
        if parser.parse_optional_keyword("to") is not None:
            return given, [parser.parse_type()]
        return given, given if cls.name.startswith("torch.copy") else []

    @classmethod
    def _constant(cls, parser: Parser, kind: str) -> Operation:
        value: Attribute | None = None
        attribute: Attribute = plain_type("Device" if kind == "device" else kind)
        if kind in ("str", "device"):
            value = StringAttr(parser.parse_str_literal())
        elif kind != "none":
            value = _literal(parser, kind)
        attributes = parser.parse_optional_attr_dict()
        if parser.parse_optional_punctuation(":") is not None:
            attribute = parser.parse_type()
        properties = {} if value is None else {"value": value}
        return cls.build(
            operands=[[]], result_types=[[attribute]], properties=properties, attributes=attributes
        )

    def print(self, printer: Printer) -> None:
        """Print the op as torch-mlir does."""
        if self.value is not None and self.name != "torch.operator":
            self._print_constant(printer, self.value)
            return
        if self.value is not None:
            printer.print_string(" ")
            printer.print_attribute(self.value)
        if self.args:
            printer.print_string(" ")
            printer.print_list(self.args, printer.print_ssa_value)
        if self.name == "torch.constant.none":
            return
        listed = self.name.startswith("torch.prim")
        printer.print_string(" : (" if listed else " : ")
        printer.print_list([value.type for value in self.args], printer.print_attribute)
        printer.print_string(") -> " if listed else " -> ")
        printer.print_list([value.type for value in self.res], printer.print_attribute)

    def _print_constant(self, printer: Printer, value: Attribute) -> None:
        if "literal" in self.name:
            printer.print_string("(")
            printer.print_attribute(value)
            printer.print_string(") : ")
            printer.print_attribute(self.res[0].type)
        elif self.name == "torch.constant.bool":
            printer.print_string(" true" if getattr(value, "value").data else " false")  # noqa: B009
        else:
            text = str(value)
            printer.print_string(f" {text.split(' : ')[0]}")


def _literal(parser: Parser, kind: str) -> Attribute:
    """Parse the number of a constant."""
    if kind == "float" and (bits := TextParser.sharing_state(parser).at_bits()) is not None:
        return FloatAttr(float_of_bits(bits, f64), f64)
    value = parser.parse_number(allow_boolean=True)
    if kind == "bool":
        return IntegerAttr(int(bool(value)), i1)
    if kind == "int":
        return IntegerAttr(int(value), i64)
    return FloatAttr(float(value), f64)


def _listed(parser: Parser) -> list[Attribute]:
    """Parse types, in brackets or without."""
    if TextParser.sharing_state(parser).at_punctuation("("):
        return list(parser.parse_comma_separated_list(parser.Delimiter.PAREN, parser.parse_type))
    return list(parser.parse_comma_separated_list(parser.Delimiter.NONE, parser.parse_type))


@cache
def find_torch_op(name: str) -> type[Operation] | None:
    """Return the class of an op of torch-mlir; None for other names."""
    if not name.startswith(("torch.", "torch_c.")):
        return None
    return irdl_op_definition(type("TorchOp_", (TorchOp,), {"name": name, "__doc__": f"`{name}`."}))


Torch = Dialect("torch", [], [VTensor, NonValueTensor, *PLAIN.values()])
