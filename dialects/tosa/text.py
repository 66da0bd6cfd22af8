"""Parsing what upstream prints: hexadecimal floats keep their bits.

MLIR prints an inf or a NaN as its bit pattern, `dense<0xFF800000> : tensor<1xf32>`; xDSL reads
that as the number 4286578688.0 (and prints such values itself), without an error.  An attention
mask holds -inf, so it matters.
"""

from __future__ import annotations

from xdsl.context import Context
from xdsl.dialects.builtin import (
    AnyFloat,
    Builtin,
    ComplexType,
    IndexType,
    IntegerType,
    ModuleOp,
)
from xdsl.dialects.func import Func
from xdsl.parser import AttrParser, Parser
from xdsl.utils.exceptions import ParseError

from stepwell.dialects.tosa import Tosa
from stepwell.ir.core import Stepwell
from stepwell.ir.diagnostics import ParseFailure


class _Bits(AttrParser._TensorLiteralElement):  # pyright: ignore[reportPrivateUsage]
    """An element written as a bit pattern; what it means depends on the type that follows."""

    def to_type(
        self, parser: AttrParser, type: AnyFloat | IntegerType | IndexType | ComplexType
    ) -> int | float | tuple[int, int] | tuple[float, float]:
        if isinstance(type, AnyFloat) and isinstance(self.value, int):
            return float_of_bits(self.value, type)
        return super().to_type(parser, type)


def float_of_bits(bits: int, type_: AnyFloat) -> float:
    """The number of a float type that has this bit pattern."""
    return type_.unpack(bits.to_bytes(type_.compile_time_size, "little"), 1)[0]


class TextParser(Parser):
    """xDSL's parser, with hexadecimal float literals read as upstream MLIR reads them."""

    def _parse_tensor_literal_element(self) -> AttrParser._TensorLiteralElement:
        element = super()._parse_tensor_literal_element()
        if element.span.text.startswith("0x"):
            return _Bits(element.is_negative, element.value, element.span)
        return element


def tosa_context() -> Context:
    """A context that knows builtin, func, stepwell and tosa."""
    context = Context()
    for dialect in (Builtin, Func, Stepwell, Tosa):
        context.load_dialect(dialect)
    return context


def parse_tosa(text: str, name: str = "<text>") -> ModuleOp:
    """A module from TOSA text, ours or tosa-opt's; raises `ParseFailure`."""
    try:
        return TextParser(tosa_context(), text, name).parse_module()
    except ParseError as error:
        lines = [line for line in str(error).splitlines() if line.strip()]
        raise ParseFailure(
            lines[-1].strip(), lines[0].strip() if len(lines) > 1 else name
        ) from error
