"""The text form of a `SchemaOp`: it reads as the call that the PyTorch program makes.

    %y = aten.conv2d.default(%x, %w, %b, [2, 2], [3, 3], groups=4) : (…) -> tensor<…>

Arguments stand in schema order. Those left out are omitted arguments; after a gap, from the first
one that was passed by name, and for keyword-only ones they are written `name=value`. The types
are the operands' in the op's order: tensors first, then numbers known only at run time, which
stand inline like any other value. What the call cannot say follows it: `<{properties}>`, then
`{attributes}`. An op that breaks its schema has no such form and prints in the generic one.
"""

from __future__ import annotations

import math
from collections.abc import Container, Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal, cast

from xdsl.dialects.builtin import (
    AnyFloat,
    ArrayAttr,
    ComplexType,
    DenseArrayBase,
    FloatAttr,
    IntegerAttr,
    IntegerType,
    NoneType,
    StringAttr,
    f64,
    i1,
    i64,
)
from xdsl.ir import Attribute, SSAValue, TypeAttribute
from xdsl.parser import Parser, UnresolvedOperand
from xdsl.utils.exceptions import VerifyException

from stepwell.dialects.aten.attributes import ComplexArg, Dynamic, NoneArg, count_dynamic
from stepwell.dialects.aten.schema import Argument
from stepwell.ir.diagnostics import StepwellError
from stepwell.ir.parser import TextParser
from stepwell.ir.printer import TextPrinter, float_text

if TYPE_CHECKING:
    from stepwell.dialects.aten.op import SchemaOp

SEGMENTS = "operandSegmentSizes"
KEYWORDS_FROM = "aten.keywords_from"
EXPLICIT_NONE = "aten.explicit_none"
_NAN = FloatAttr(math.nan, f64)

Manner = Literal["position", "name", "filler"]


def call_layout(
    arguments: Sequence[Argument], given: Container[str], first_keyword: str | None
) -> dict[str, Manner]:
    """How each argument is written in a call: by position, by name, or as a None that fills a gap.

    Only an optional tensor can fill a gap, since an omitted one and None are the same operand.
    """
    layout: dict[str, Manner] = {}
    by_position = True
    for index, argument in enumerate(arguments):
        if argument.keyword_only or argument.name == first_keyword:
            by_position = False
        if argument.name in given:
            layout[argument.name] = "position" if by_position else "name"
        elif (
            by_position
            and argument.type.is_tensor
            and argument.type.nullable
            and any(
                a.name in given and not a.keyword_only and a.name != first_keyword
                for a in arguments[index + 1 :]
            )
        ):
            layout[argument.name] = "filler"
        else:
            by_position = False
    return layout


def _call_style(
    arguments: Sequence[Argument], written: dict[str, Manner], nones: Sequence[str]
) -> dict[str, Attribute]:
    """The attributes that a written call implies: what was passed by name, which None was said."""
    keyword: str | None = None
    if call_layout(arguments, written, None) != written:
        names = (a.name for a in arguments if not a.keyword_only)
        keyword = next((name for name in names if written.get(name) == "name"), None)
    said: list[str] = []
    if nones:
        fillers = call_layout(arguments, [n for n in written if n not in nones], keyword)
        said = [name for name in nones if fillers.get(name) != "filler"]
    style: dict[str, Attribute] = {}
    if keyword is not None:
        style[KEYWORDS_FROM] = StringAttr(keyword)
    if said:
        style[EXPLICIT_NONE] = ArrayAttr([StringAttr(name) for name in said])
    return style


# -- printing --------------------------------------------------------------------------------


class _NoPrettyForm(Exception):
    """The op breaks its schema; only the generic form can show it."""


class _NotCanonical(Exception):
    """A property that is not what its argument's value would be stored as."""


def spell(op: SchemaOp, printer: TextPrinter) -> str | None:
    """The call, or None where the op does not follow its schema."""
    if op.regions or op.successors:
        return None
    try:
        values, nones, leftover = _values(op, printer)
    except (_NoPrettyForm, VerifyException):
        return None
    arguments = op.SCHEMA.arguments
    marker = op.attributes.get(KEYWORDS_FROM)
    layout = call_layout(arguments, values, marker.data if isinstance(marker, StringAttr) else None)
    call = ", ".join(
        values[name]
        if how == "position"
        else "none"
        if how == "filler"
        else f"{name}={values[name]}"
        for name, how in layout.items()
    )
    parts = [f"{op.name}({call})"]
    if leftover:
        parts.append(f" <{{{_dictionary(leftover, printer)}}}>")
    if op.attributes:
        written: dict[str, Manner] = {
            name: "name" if how == "name" else "position" for name, how in layout.items()
        }
        fillers = [name for name, how in layout.items() if how == "filler"]
        style = _call_style(arguments, written, [*fillers, *nones])
        if any(name not in op.attributes for name in style):
            return None
        held = {name: a for name, a in op.attributes.items() if style.get(name) != a}
        if held:
            parts.append(f" {{{_dictionary(held, printer)}}}")
    spelled = printer.spelled
    operands = ", ".join([spelled(value.type) for value in op.operands])
    results = [spelled(result.type) for result in op.results]
    result = results[0] if len(results) == 1 else f"({', '.join(results)})"
    parts.append(f" : ({operands}) -> {result}")
    return "".join(parts)


def _dictionary(held: dict[str, Attribute], printer: TextPrinter) -> str:
    return ", ".join(
        f"{printer.spelled(StringAttr(name))} = {printer.spelled(a)}" for name, a in held.items()
    )


def _values(
    op: SchemaOp, printer: TextPrinter
) -> tuple[dict[str, str], list[str], dict[str, Attribute]]:
    """(text of each given argument, tensors given as None, properties that a call cannot say)."""
    sizes = op.group_sizes()
    operands = op.operands
    if sum(sizes) != len(operands) or any(size < 0 for size in sizes):
        raise _NoPrettyForm
    schema = op.SCHEMA
    if len(sizes) != len(schema.tensor_arguments) + schema.takes_runtime_scalars:
        raise _NoPrettyForm
    first_dynamic = len(operands) - (sizes[-1] if schema.takes_runtime_scalars else 0)
    dynamic = iter(operands[first_dynamic:])
    said = _explicit_none(op)
    values: dict[str, str] = {}
    nones: list[str] = []
    properties = dict(op.properties)
    properties.pop(SEGMENTS, None)
    offset = group = 0
    for argument in schema.arguments:
        name = argument.name
        if argument.type.is_tensor:
            names = [printer.value_name(v) for v in operands[offset : offset + sizes[group]]]
            offset, group = offset + sizes[group], group + 1
            if argument.type.is_list:
                values[name] = _tensor_list(names, f"{name}_present", properties)
            elif len(names) > 1 or not (names or argument.type.nullable):
                raise _NoPrettyForm
            elif names:
                values[name] = names[0]
            elif name in said:
                values[name] = "none"
                nones.append(name)
        elif (attr := properties.get(name)) is not None:
            try:
                values[name] = _argument_text(attr, argument, printer, dynamic)
            except _NotCanonical:
                if count_dynamic(attr):
                    raise _NoPrettyForm from None
                continue
            del properties[name]
    if next(dynamic, None) is not None:
        raise _NoPrettyForm
    return values, nones, properties


def _explicit_none(op: SchemaOp) -> tuple[str, ...]:
    held = op.attributes.get(EXPLICIT_NONE)
    if not isinstance(held, ArrayAttr):
        return ()
    items = cast(ArrayAttr[Attribute], held).data
    return tuple(item.data for item in items if isinstance(item, StringAttr))


def _tensor_list(names: list[str], mask_name: str, properties: dict[str, Attribute]) -> str:
    mask = properties.get(mask_name)
    if isinstance(mask, NoneArg):
        if names:
            raise _NoPrettyForm
        del properties[mask_name]
        return "none"
    if isinstance(mask, ArrayAttr):
        present = [_scalar_is_true(item) for item in cast(ArrayAttr[Attribute], mask).data]
        if sum(present) != len(names):
            raise _NoPrettyForm
        if not all(present):
            del properties[mask_name]
            rest = iter(names)
            names = [next(rest) if here else "none" for here in present]
    return f"[{', '.join(names)}]"


def _scalar_is_true(attr: Attribute) -> bool:
    if not isinstance(attr, IntegerAttr) or attr.type != i1:
        raise _NoPrettyForm
    return attr.value.data != 0


def _argument_text(
    attr: Attribute, argument: Argument, printer: TextPrinter, dynamic: Iterator[SSAValue]
) -> str:
    base = argument.type.base
    if isinstance(attr, DenseArrayBase):
        values = cast(Sequence[int | float], attr.get_values())
        if attr.elt_type == i64 and (base != "float" or not values) and (values or base != "float"):
            return f"[{', '.join(map(str, values))}]"
        if attr.elt_type == f64 and (values or base == "float"):
            return f"[{', '.join(_float_word(float(v)) for v in values)}]"
        raise _NotCanonical
    if isinstance(attr, ArrayAttr):
        items = cast(ArrayAttr[Attribute], attr).data
        if all(type(i) is IntegerAttr and i.type != i1 for i in items) or all(
            type(i) is FloatAttr for i in items
        ):
            raise _NotCanonical
        return f"[{', '.join(_scalar_text(item, printer, dynamic) for item in items)}]"
    if base == "float" and isinstance(attr, IntegerAttr) and attr.type != i1:
        raise _NotCanonical
    return _scalar_text(attr, printer, dynamic)


def _scalar_text(attr: Attribute, printer: TextPrinter, dynamic: Iterator[SSAValue]) -> str:
    if isinstance(attr, IntegerAttr):
        if attr.type == i64:
            return str(attr.value.data)
        if attr.type == i1 and attr.value.data in (0, -1):
            return "true" if attr.value.data else "false"
        raise _NotCanonical
    if isinstance(attr, FloatAttr):
        if attr.type != f64:
            raise _NotCanonical
        return _float_word(attr.value.data)
    if isinstance(attr, StringAttr):
        return printer.spelled(attr)
    if isinstance(attr, NoneArg):
        return "none"
    if isinstance(attr, Dynamic):
        value = next(dynamic, None)
        if value is None:
            raise _NoPrettyForm
        return printer.value_name(value)
    if isinstance(attr, ComplexArg):
        real, imaginary = attr.real, attr.imaginary
        if real.type != f64 or imaginary.type != f64:
            raise _NotCanonical
        return f"complex({_float_word(real.value.data)}, {_float_word(imaginary.value.data)})"
    if isinstance(attr, IntegerType | AnyFloat | ComplexType) or (
        isinstance(attr, TypeAttribute)
        and not isinstance(attr, NoneType)
        and printer.spelled(attr).startswith("!")
    ):
        return printer.spelled(attr)
    raise _NotCanonical


def _float_word(value: float) -> str:
    if math.isfinite(value):
        return float_text(value)
    if math.isinf(value):
        return "inf" if value > 0 else "-inf"
    if FloatAttr(value, f64) != _NAN:
        raise _NotCanonical
    return "nan"


# -- parsing ---------------------------------------------------------------------------------


@dataclass
class _Operand:
    """A value by name; its type is known at the end of the op."""

    unresolved: UnresolvedOperand
    value: SSAValue | None = None


def parse(cls: type[SchemaOp], parser: Parser) -> SchemaOp:
    """Read what `spell` writes, after the op's name; the schema says what each argument is."""
    assert isinstance(parser, TextParser)
    given, written = _parse_call(cls, parser)
    properties = parser.parse_optional_properties_dict()
    attributes = parser.parse_optional_attr_dict()
    parser.parse_punctuation(":", f" before the type of {cls.name}")
    position = parser.pos
    inputs = parser.parse_comma_separated_list(parser.Delimiter.PAREN, parser.parse_type)
    parser.parse_punctuation("->")
    results = parser.parse_optional_comma_separated_list(parser.Delimiter.PAREN, parser.parse_type)
    if results is None:
        results = [parser.parse_type()]
    _resolve(cls, given, inputs, parser, position)
    schema = cls.SCHEMA
    nones = [
        name
        for name, value in given.items()
        if value is None
        and schema.by_name[name].type.is_tensor
        and not schema.by_name[name].type.is_list
    ]
    arguments = {n: _substitute(v) for n, v in given.items() if n not in nones}
    for name in properties:
        if name in schema.by_name:
            arguments.setdefault(name, None)
    try:
        op = cls.from_arguments(arguments, results)
    except StepwellError as error:
        parser.raise_error(error.problems[0].fact, position)
    op.properties.update(properties)
    if nones or "name" in written.values():
        op.attributes.update(_call_style(schema.arguments, written, nones))
    op.attributes.update(attributes)
    return op


def _parse_call(
    cls: type[SchemaOp], parser: TextParser
) -> tuple[dict[str, Any], dict[str, Manner]]:
    positional = [a for a in cls.SCHEMA.arguments if not a.keyword_only]
    given: dict[str, Any] = {}
    written: dict[str, Manner] = {}
    by_name = cls.SCHEMA.by_name
    parser.parse_punctuation("(")
    count = 0
    while not parser.at_punctuation(")"):
        if given:
            parser.parse_punctuation(",", " or ')' after an argument")
        start = parser.pos
        name = parser.word_before("=")
        if name is None:
            if count != len(given):
                parser.raise_error("a positional argument after one given by name")
            if count == len(positional):
                parser.raise_error(f"{cls.name} takes {count} positional arguments")
            argument = positional[count]
            count += 1
        elif name not in by_name or name in given:
            parser.raise_error(f"{cls.name}: argument {name!r} is unknown or given twice", start)
        else:
            argument = by_name[name]
        given[argument.name] = _parse_value(argument, parser)
        written[argument.name] = "position" if name is None else "name"
    parser.parse_punctuation(")")
    return given, written


def _parse_value(argument: Argument, parser: TextParser) -> Any:
    if parser.parse_optional_punctuation("["):
        items: list[Any] = []
        while not parser.at_punctuation("]"):
            if items:
                parser.parse_punctuation(",", " or ']' in a list")
            items.append(_parse_scalar(argument, parser))
        parser.parse_punctuation("]")
        if not argument.type.is_list:
            parser.raise_error(f"argument {argument.name} of type {argument.type} is not a list")
        return items
    return _parse_scalar(argument, parser)


_WORDS: dict[str, Any] = {
    "none": None,
    "true": True,
    "false": False,
    "inf": math.inf,
    "nan": math.nan,
}


def _parse_scalar(argument: Argument, parser: TextParser) -> Any:
    if (operand := parser.parse_optional_unresolved_operand()) is not None:
        return _Operand(operand)
    word = parser.current_keyword()
    if argument.type.is_tensor and word != "none":
        parser.raise_error(f"argument {argument.name} must be a value, as in %{argument.name}")
    if word is not None:
        if word in _WORDS:
            parser.parse_identifier()
            return _WORDS[word]
        if parser.word_before("("):
            return _parse_complex(parser)
        return parser.parse_type()
    if (string := parser.parse_optional_str_literal()) is not None:
        return string
    if parser.at_punctuation("-") or (number := parser.parse_optional_number()) is None:
        if parser.at_punctuation("-"):
            return _parse_negative(parser)
        return parser.expect(
            parser.parse_optional_type, f"argument {argument.name} has no such value"
        )
    return number


def _parse_negative(parser: TextParser) -> int | float:
    parser.parse_punctuation("-")
    if parser.parse_optional_keyword("inf"):
        return -math.inf
    if parser.at_punctuation("-"):
        parser.raise_error("a number must follow '-'")
    return -parser.parse_number()


def _parse_complex(parser: TextParser) -> complex:
    def part() -> float:
        if parser.at_punctuation("-"):
            return float(_parse_negative(parser))
        word = parser.parse_optional_keyword("inf") or parser.parse_optional_keyword("nan")
        return float(word) if word else float(parser.parse_number())

    real = part()
    parser.parse_punctuation(",")
    imaginary = part()
    parser.parse_punctuation(")")
    return complex(real, imaginary)


def _resolve(
    cls: type[SchemaOp],
    given: dict[str, Any],
    types: Sequence[TypeAttribute],
    parser: TextParser,
    position: int,
) -> None:
    """Give every operand its value: tensors in schema order, then run-time numbers."""
    tensors: list[_Operand] = []
    numbers: list[_Operand] = []
    for argument in cls.SCHEMA.arguments:
        value = given.get(argument.name)
        for item in cast(list[Any], value) if isinstance(value, list) else [value]:
            if isinstance(item, _Operand):
                (tensors if argument.type.is_tensor else numbers).append(item)
    operands = [*tensors, *numbers]
    if len(operands) != len(types):
        parser.raise_error(
            f"{cls.name} is given {len(operands)} values and {len(types)} types", position
        )
    for operand, type_ in zip(operands, types, strict=True):
        operand.value = parser.resolve_operand(operand.unresolved, type_)


def _substitute(value: Any) -> Any:
    if isinstance(value, _Operand):
        return value.value
    if isinstance(value, list):
        return [_substitute(item) for item in cast(list[Any], value)]
    return value
