"""The printer of the textual format: xDSL's, with names and numbers that always parse back.

A value's printed name is its hint without a numeric suffix, then `_1`, `_2`, … for the second and
later ones, so that names are unique in a scope. Ops with a `pretty_text` are printed by it. If that
returns None, and always with `generic`, the generic form is printed, which `mlir-opt
--allow-unregistered-dialect` reads. The text of each type is cached.
"""

from __future__ import annotations

import re
from io import StringIO
from typing import Protocol, cast

from xdsl.dialects.builtin import AnyFloat
from xdsl.ir import Attribute, Block, Operation, SSAValue, TypeAttribute
from xdsl.printer import Printer

_OUTSIDE_NAME = re.compile(r"[^A-Za-z0-9_$.-]")
_NUMERIC_SUFFIX = re.compile(r"(?:_[0-9]+)+$")
_ESCAPES = {
    code: "\\\\" if code == 0x5C else f"\\{code:02X}"
    for code in range(256)
    if code in (0x22, 0x5C) or not 0x20 <= code <= 0x7E
}


class HasPrettyText(Protocol):
    """A mixin for ops that print themselves as one string."""

    def pretty_text(self, printer: TextPrinter) -> str | None:
        """Return everything between the results and the location, or None for the generic form."""
        ...


def name_stem(hint: str) -> str:
    """Return a name hint as a valid name: `blk.0→conv_2_5` becomes `blk.0_conv`."""
    name = _OUTSIDE_NAME.sub("_", hint)
    return _NUMERIC_SUFFIX.sub("", f"_{name}" if name[:1].isdigit() else name)


def float_text(value: float) -> str:
    """Format a finite float exactly and with a point, as MLIR's lexer requires."""
    text = repr(value)
    if "." in text:
        return text
    mantissa, e, exponent = text.partition("e")
    return f"{mantissa}.0{e}{exponent}"


class TextPrinter(Printer):
    """Print a module so that `parse_module` returns an equal one."""

    def __init__(self, *, locations: bool = False, generic: bool = False) -> None:
        self._out = StringIO()
        super().__init__(self._out, print_debuginfo=locations, print_generic_format=generic)
        self._spelled: dict[int, tuple[Attribute, str]] = {}
        self._stems: dict[str, str] = {}

    @classmethod
    def sharing_names(cls, printer: Printer) -> TextPrinter:
        """Create a printer of single attributes that shares the value names of another printer."""
        shared = cls()
        shared._ssa_values = printer._ssa_values
        shared._ssa_names = printer._ssa_names
        shared._next_valid_name_id = printer._next_valid_name_id
        return shared

    def text(self) -> str:
        """Return everything that was printed."""
        return self._out.getvalue()

    def print_string(self, text: str, *, indent: int | None = None) -> None:
        """Append to the text; line breaks inside it are indented."""
        if "\n" in text:
            super().print_string(text, indent=indent)
        else:
            self._current_column += len(text)
            self._out.write(text)

    def _print_new_line(self, indent: int | None = None, print_message: bool = True) -> None:
        indent = self._indent if indent is None else indent
        self._out.write("\n" + " " * (indent * self.indent_num_spaces))
        self._current_line += 1
        self._current_column = indent * self.indent_num_spaces

    def value_name(self, value: SSAValue) -> str:
        """Return the name of a value, `%x_1`, which is assigned on first use."""
        name = self._ssa_values.get(value)
        if name is None:
            name = self._ssa_values[value] = self._new_name(value.name_hint)
        return "%" + name

    def _new_name(self, hint: str | None) -> str:
        if hint:
            stem = self._stems.get(hint)
            if stem is None:
                stem = self._stems[hint] = name_stem(hint)
            if stem:
                taken = self.ssa_names.get(stem, 0)
                self.ssa_names[stem] = taken + 1
                return f"{stem}_{taken}" if taken else stem
        return self._get_new_valid_name_id()

    def print_ssa_value(self, value: SSAValue) -> str:
        """Print a value's name and return it without the `%`."""
        name = self.value_name(value)
        self.print_string(name)
        return name[1:]

    def print_bytes_literal(self, bytestring: bytes) -> None:
        """Print a string with MLIR's escapes at once (xDSL prints each byte separately)."""
        self.print_string('"' + bytestring.decode("latin-1").translate(_ESCAPES) + '"')

    def _populate_block_name(self, block: Block, block_index: int | None = None) -> None:
        index = self._get_new_valid_block_id() if block_index is None else block_index
        self._blocks[block] = f"bb{index}"

    def spelled(self, attribute: Attribute) -> str:
        """Return the text of an attribute or type."""
        held = self._spelled.get(id(attribute))
        if held is not None:
            return held[1]
        outer, self._out = self._out, StringIO()
        column = self._current_column
        try:
            super().print_attribute(attribute)
            text = self._out.getvalue()
        finally:
            self._out, self._current_column = outer, column
        if isinstance(attribute, TypeAttribute):
            self._spelled[id(attribute)] = (attribute, text)
        return text

    def print_attribute(self, attribute: Attribute) -> None:
        """Print an attribute or type."""
        if isinstance(attribute, TypeAttribute):
            self.print_string(self.spelled(attribute))
        else:
            super().print_attribute(attribute)

    def print_float(self, value: float, type: AnyFloat) -> None:
        """Print a float as MLIR does, always with a point (xDSL prints `1e-10` for f16)."""
        outer, self._out = self._out, StringIO()
        try:
            super().print_float(value, type)
            text = self._out.getvalue()
        finally:
            self._out = outer
        if "." not in text and not text.startswith("0x"):
            text = float_text(float(text))
        self._out.write(text)

    def print_op(self, op: Operation) -> None:
        """Print an op with its results, by `pretty_text` if the op has one."""
        if not hasattr(op, "pretty_text"):
            super().print_op(op)
            return
        pretty = cast(HasPrettyText, op).pretty_text
        text = None if self.print_generic_format else pretty(self)
        if text is None:
            outer, self.print_generic_format = self.print_generic_format, True
            super().print_op(op)
            self.print_generic_format = outer
            return
        names = ", ".join(self.value_name(result) for result in op.results)
        self.print_string(f"{names} = {text}" if names else text)
        if self.print_debuginfo:
            self.print_string(" ")
            self.print_attribute(op.location)
