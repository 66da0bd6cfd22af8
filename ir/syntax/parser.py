"""The parser of the textual format: xDSL's, corrected where it misreads MLIR's and stepwell's
output.

These are read as MLIR reads them: bit patterns of floats inside `dense<…>` and `array<…>` (xDSL
reads `0xFF800000`, -inf, as 4286578688.0), strings beyond ASCII, and names that two scopes share.
Excessive sizes in a text (an integer of a billion bits, a splat of a trillion elements) are refused
before anything that large is allocated. Each distinct text of a tensor type is parsed once.
"""

from __future__ import annotations

import re
from bisect import bisect_right
from collections.abc import Callable, Sequence
from typing import Any, TypeVar

from xdsl.context import Context
from xdsl.dialects.builtin import (
    AnyDenseElement,
    AnyFloat,
    ComplexType,
    DenseArrayBase,
    DenseIntOrFPElementsAttr,
    DictionaryAttr,
    FileLineColLoc,
    IndexType,
    IntAttr,
    IntegerType,
    ModuleOp,
    RankedStructure,
    StringAttr,
    UnknownLoc,
)
from xdsl.ir import Attribute, Operation, TypeAttribute
from xdsl.parser import AttrParser, Parser, ParserState, UnresolvedOperand
from xdsl.utils.exceptions import ParseError
from xdsl.utils.lexer import Input, Span
from xdsl.utils.mlir_lexer import MLIRTokenKind

from stepwell.ir.syntax.lexer import TextLexer

T = TypeVar("T")
MAX_INTEGER_BITS = (1 << 24) - 1
"""The widest integer type, as in MLIR."""
MAX_DENSE_ELEMENTS = 1 << 26
"""The largest number of elements of a `dense` literal; larger constants belong in the
weight store.
"""
MAX_SHAPE_TEXT = 4096
"""The largest number of characters of a shape, because each dimension is split off the token of the
rest.
"""

_FLAT_TENSOR = re.compile(r"tensor<[^<>\"()\[\]{}]*>")


def float_of_bits(bits: int, type_: AnyFloat) -> float:
    """Convert a bit pattern to a number of a float type."""
    return type_.unpack(bits.to_bytes(type_.compile_time_size, "little"), 1)[0]


class _Element(AttrParser._TensorLiteralElement):  # pyright: ignore[reportPrivateUsage]
    """A literal that is interpreted once the type that follows it is known."""

    def to_type(
        self, parser: AttrParser, type: AnyFloat | IntegerType | IndexType | ComplexType
    ) -> Any:
        text = self.span.text
        if isinstance(type, AnyFloat):
            if isinstance(self.value, tuple):
                parser.raise_error("a complex literal in a float tensor", self.span)
            return _float(text, type)
        if isinstance(type, ComplexType):
            if not isinstance(self.value, tuple):
                parser.raise_error("a complex tensor needs (real, imaginary) pairs", self.span)
            parts = [part.strip() for part in text[1:-1].split(",")]
            element = type.element_type
            if isinstance(element, AnyFloat):
                return tuple(_float(part, element) for part in parts)
            return tuple(int(part, 0) for part in parts)
        return super().to_type(parser, type)


def _float(text: str, type_: AnyFloat) -> float:
    if text.startswith("0x"):
        return float_of_bits(int(text, 16), type_)
    return float(text) if text not in ("true", "false") else float(text == "true")


def _is_function_type(content: str, at: int) -> bool:
    """Whether an arrow follows the bracket that closes the opening bracket at index `at`."""
    depth = 0
    for end in range(at, len(content)):
        depth += (content[end] == "(") - (content[end] == ")")
        if not depth:
            return content[end + 1 :].lstrip().startswith("->")
    return False


class TextParser(Parser):
    """A parser of one text; the module's docstring lists the differences from xDSL's."""

    _TensorLiteralElement = _Element

    def __init__(
        self, context: Context, text: str, name: str = "<text>", *, locate: bool = False
    ) -> None:
        super().__init__(context, "", name)
        self._parser_state = ParserState(TextLexer(Input(text, name)))
        self._types: dict[str, TypeAttribute] = {}
        self._first_uses: dict[str, Span] = {}
        self._locate = locate
        self._starts: list[int] = []

    @classmethod
    def sharing_state(cls, parser: Parser) -> TextParser:
        """Create a TextParser that shares the state of another parser (that of plain
        `xdsl-opt`).
        """
        if isinstance(parser, TextParser):
            return parser
        ours = cls.__new__(cls)
        ours.__dict__ = parser.__dict__
        ours.__dict__.setdefault("_types", {})
        ours.__dict__.setdefault("_first_uses", {})
        ours.__dict__.setdefault("_locate", False)
        return ours

    # -- modules and values --------------------------------------------------------------------

    def parse_module(self, allow_implicit_module: bool = True) -> ModuleOp:
        """Parse a module; report an undefined value at its first use."""
        try:
            return super().parse_module(allow_implicit_module)
        except ParseError:
            for name in self.forward_ssa_references:
                at_end = self._current_token.kind == MLIRTokenKind.EOF
                if at_end and (span := self._first_uses.get(name)) is not None:
                    self.raise_error(f"%{name} is used but not defined", span)
            raise

    def parse_operation(self) -> Operation:
        """Parse an op; an op without a location is located in this text."""
        span = self._current_token.span
        op = super().parse_operation()
        if self._locate and isinstance(op.location, UnknownLoc):
            if not self._starts:
                self._starts = [0, *(m.end() for m in re.finditer("\n", span.input.content))]
            line = bisect_right(self._starts, span.start)
            column = span.start - self._starts[line - 1] + 1
            name = StringAttr(span.input.name)
            op.location = FileLineColLoc(name, IntAttr(line), IntAttr(column))
        return op

    def resolve_operand(self, operand: UnresolvedOperand, type: Any) -> Any:
        """Return the value of an operand; the location of a forward reference is recorded."""
        values = self.ssa_values.get(operand.operand_name)
        if values is None:
            self._first_uses.setdefault(operand.operand_name, operand.span)
        elif operand.index < len(values) and values[operand.index].type is type:
            return values[operand.index]
        return super().resolve_operand(operand, type)

    def at_punctuation(self, spelling: str) -> bool:
        """Whether the current token is this one; nothing is consumed."""
        return self._current_token.kind.value == spelling

    def current_keyword(self) -> str | None:
        """Return the current token if it is a bare word; nothing is consumed."""
        token = self._current_token
        return token.text if token.kind == MLIRTokenKind.BARE_IDENT else None

    def word_before(self, following: str) -> str | None:
        """Consume a bare word and `following` if they are next, and return the word; else consume
        nothing.
        """
        token = self._current_token
        if token.kind != MLIRTokenKind.BARE_IDENT:
            return None
        content = token.span.input.content
        end = token.span.end
        while content[end : end + 1].isspace():
            end += 1
        if content[end : end + 1] != following:
            return None
        self._consume_token()
        self._consume_token()
        return token.text

    def text_to_bracket(self) -> str:
        """Return the text up to the `>` that closes an open `<`, which is consumed too."""
        content, start, depth = self._current_token.span.input.content, self.pos, 1
        while True:
            token = self._consume_token()
            if token.kind == MLIRTokenKind.EOF:
                self.raise_error("a bracket is left open", start)
            depth += (token.text == "<") - (token.text == ">")
            if not depth:
                return content[start : token.span.start]

    def at_bits(self) -> int | None:
        """Consume `0x…`, the bits of a float, if it is next."""
        token = self._current_token
        if token.kind != MLIRTokenKind.INTEGER_LIT or not token.text.startswith("0x"):
            return None
        self._consume_token()
        return int(token.text, 16)

    # -- types ---------------------------------------------------------------------------------

    def _parse_optional_builtin_type(self) -> TypeAttribute | None:
        token = self._current_token
        if token.kind != MLIRTokenKind.BARE_IDENT or token.text != "tensor":
            return super()._parse_optional_builtin_type()
        content, start = token.span.input.content, token.span.start
        flat = _FLAT_TENSOR.match(content, start)
        if flat is not None:
            builtin_type = self._types.get(flat[0])
            if builtin_type is not None:
                self._resume_from(flat.end())
                return builtin_type
        parsed = super()._parse_optional_builtin_type()
        if parsed is not None and flat is not None:
            self._types[flat[0]] = parsed
        return parsed

    def _parse_optional_integer_or_float_type(self) -> TypeAttribute | None:
        token = self._current_token
        if token.kind == MLIRTokenKind.BARE_IDENT:
            match = self._builtin_integer_type_regex.match(token.text)
            if match is not None and (len(match[1]) > 8 or int(match[1]) > MAX_INTEGER_BITS):
                self.raise_error(f"an integer type has at most {MAX_INTEGER_BITS} bits")
        return super()._parse_optional_integer_or_float_type()

    def _parse_optional_shape_delimiter(self) -> str | None:
        span = self._current_token.span
        if span.end - span.start > MAX_SHAPE_TEXT:
            self.raise_error("a shape with that many dimensions", span.start)
        return super()._parse_optional_shape_delimiter()

    # -- linalg's operators ---------------------------------------------------------------------

    def parse_optional_attr_dict(self) -> dict[str, Attribute]:
        """Parse `{…}`, or an alias of one, as in `linalg.generic #trait`."""
        token = self._current_token
        if token.kind == MLIRTokenKind.HASH_IDENT:
            stated = self.attribute_aliases.get(token.text)
            if isinstance(stated, DictionaryAttr):
                self._consume_token()
                return dict(stated.data)
        return super().parse_optional_attr_dict()

    def parse_comma_separated_list(
        self, delimiter: Parser.Delimiter, parse: Callable[[], T], context_msg: str = ""
    ) -> list[T]:
        """Parse a list; types after an arrow may be in brackets: `-> (tensor<2xf32>, i1)`."""
        if delimiter is self.Delimiter.NONE and self.at_punctuation("("):
            content, at = self._current_token.span.input.content, self.pos
            if content[:at].rstrip().endswith("->") and not _is_function_type(content, at):
                delimiter = self.Delimiter.PAREN
        return super().parse_comma_separated_list(delimiter, parse, context_msg)

    # -- literals ------------------------------------------------------------------------------

    def _parse_optional_complex(self) -> tuple[Any, Span] | None:
        if self._current_token.kind != MLIRTokenKind.L_PAREN:
            return None
        start = self._consume_token(MLIRTokenKind.L_PAREN).span.start
        real, _ = self._parse_bool_int_or_float()
        self.parse_punctuation(",")
        imaginary, _ = self._parse_bool_int_or_float()
        end = self._parse_token(MLIRTokenKind.R_PAREN, "Expected ')'").span.end
        return (real, imaginary), Span(start, end, self.lexer.input)

    def _parse_dense_literal_type(self) -> Any:
        start = self.pos
        type_ = super()._parse_dense_literal_type()
        self._check_elements(type_, start)
        return type_

    def parse_dense_int_or_fp_elements_attr(
        self, type: RankedStructure[AnyDenseElement] | None
    ) -> DenseIntOrFPElementsAttr:
        """Parse `dense<…>`, with bit patterns interpreted by the type after it."""
        if type is not None:
            self._check_elements(type, self.pos)
        return super().parse_dense_int_or_fp_elements_attr(type)

    def _check_elements(self, type_: RankedStructure[Any], position: int) -> None:
        count = 1
        for dim in type_.get_shape():
            count *= dim
        if count > MAX_DENSE_ELEMENTS:
            self.raise_error(
                f"a dense literal has {count} elements; put such constants into the weight store",
                position,
            )

    def _parse_builtin_densearray_attr(self) -> DenseArrayBase | None:
        self.parse_characters("<", " in dense array")
        start = self.pos
        element = self.parse_attribute()
        if not isinstance(element, AnyFloat):
            self._resume_from(start)
            return self._integer_array()
        values: Sequence[float] = []
        if not self.parse_optional_punctuation(">"):
            self.parse_punctuation(":", " in dense array")
            values = self.parse_comma_separated_list(
                self.Delimiter.NONE, lambda: self._float_literal(element)
            )
            self.parse_punctuation(">", " in dense array")
        return DenseArrayBase.from_list(element, values)

    def _integer_array(self) -> DenseArrayBase:
        start = self.pos
        element = self.parse_attribute()
        if not isinstance(element, IntegerType):
            self.raise_error("a dense array holds integers or floats", start, self.pos)
        values: Sequence[int] = []
        if not self.parse_optional_punctuation(">"):
            self.parse_punctuation(":", " in dense array")
            values = self.parse_comma_separated_list(
                self.Delimiter.NONE, lambda: self._parse_typed_integer(element)
            )
            self.parse_punctuation(">", " in dense array")
        return DenseArrayBase.from_list(element, values)

    def _float_literal(self, type_: AnyFloat) -> float:
        token = self._current_token
        if token.kind == MLIRTokenKind.INTEGER_LIT and token.text.startswith("0x"):
            self._consume_token()
            return float_of_bits(int(token.text, 16), type_)
        return float(self.parse_number())
