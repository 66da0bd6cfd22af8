"""Parsing of a schema op's textual form by its schema."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, TypeVar, cast

from xdsl.ir import SSAValue, TypeAttribute
from xdsl.parser import Parser, UnresolvedOperand

from stepwell.dialects.aten.call import CallOp, Manner, call_style
from stepwell.dialects.aten.schema import Argument
from stepwell.ir.diagnostics import StepwellError
from stepwell.ir.syntax.parser import TextParser

_C = TypeVar("_C", bound=CallOp)


@dataclass
class _Operand:
    """The name of an operand, whose type follows at the end of the op."""

    unresolved: UnresolvedOperand
    value: SSAValue | None = None


def parse_call(cls: type[_C], parser: Parser) -> _C:
    """Parse the output of `text.spell`, after the op's name; the schema defines each argument."""
    parser = TextParser.sharing_state(parser)
    given, written = _parse_arguments(cls, parser)
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
        op.attributes.update(call_style(schema.arguments, written, nones))
    op.attributes.update(attributes)
    return op


def _parse_arguments(
    cls: type[CallOp], parser: TextParser
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
                parser.raise_error("a positional argument after one passed by name")
            if count == len(positional):
                parser.raise_error(f"{cls.name} takes {count} positional arguments")
            argument = positional[count]
            count += 1
        elif name not in by_name or name in given:
            parser.raise_error(
                f"{cls.name}: argument {name!r} is unknown or was passed twice", start
            )
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
    cls: type[CallOp],
    given: dict[str, Any],
    types: Sequence[TypeAttribute],
    parser: TextParser,
    position: int,
) -> None:
    """Resolve every operand to its value: tensors in schema order, then dynamic numbers."""
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
