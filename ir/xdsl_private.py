"""xDSL's private names, but those of the parser and printer that `ir/parser.py` and
`ir/printer.py` extend (`EXTENDED`).
"""

from __future__ import annotations

from typing import Any

from xdsl.ir import Attribute, SSAValue

from stepwell.ir.private import PrivateName

EXTENDED: tuple[PrivateName, ...] = tuple(
    PrivateName(f"xdsl.parser:{name}", serves)
    for name, serves in (
        ("AttrParser._TensorLiteralElement", "numbers in dense<…>"),
        ("AttrParser._parse_optional_builtin_type", "types of symbolic sizes"),
        ("AttrParser._parse_optional_integer_or_float_type", "element types that MLIR has not"),
        ("AttrParser._parse_optional_shape_delimiter", "types of symbolic sizes"),
        ("AttrParser._parse_dense_literal_type", "dense<…> of other elements"),
    )
)
"""What the reader of texts overrides."""


def set_type(value: SSAValue[Any], type_: Attribute) -> None:
    """Give a value another type in place: xDSL's own way makes a new value, and loses its uses."""
    value._type = type_  # pyright: ignore[reportPrivateUsage]


def current_text(parser: Any) -> str:
    """The token in front of a parser."""
    return parser._current_token.text
