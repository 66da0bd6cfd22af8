"""TOSA's own types and enumerations in upstream MLIR's notation.

`!tosa.shape<4>`, `!tosa.mxint8`, `!tosa.block_scaled<BLOCK_SHAPE_32:f8E8M0FNU:f4E2M1FN>`, and
enumerations such as `#tosa.nan_mode<PROPAGATE>`.
"""

from __future__ import annotations

from functools import cache
from typing import ClassVar

from xdsl.dialects.builtin import IntAttr
from xdsl.ir import Attribute, Data, ParametrizedAttribute, TypeAttribute
from xdsl.irdl import irdl_attr_definition
from xdsl.parser import AttrParser
from xdsl.printer import Printer


@irdl_attr_definition
class ShapeType(ParametrizedAttribute, TypeAttribute):
    """`!tosa.shape<4>`: a list of four sizes, known at compile time or computed by shape ops."""

    name = "tosa.shape"
    rank: IntAttr

    @classmethod
    def of(cls, rank: int) -> ShapeType:
        """Return the type of a list of `rank` sizes."""
        return _shape_type(rank)

    @classmethod
    def parse_parameters(cls, parser: AttrParser) -> list[Attribute]:
        """Parse parameters such as `<4>`."""
        with parser.in_angle_brackets():
            return [IntAttr(parser.parse_integer(allow_boolean=False, allow_negative=False))]

    def print_parameters(self, printer: Printer) -> None:
        """Print parameters such as `<4>`."""
        printer.print_string(f"<{self.rank.data}>")


@cache
def _shape_type(rank: int) -> ShapeType:
    return ShapeType(IntAttr(rank))


@irdl_attr_definition
class MxInt8Type(ParametrizedAttribute, TypeAttribute):
    """`!tosa.mxint8`: a fixed-point payload with six fractional bits."""

    name = "tosa.mxint8"


@irdl_attr_definition
class BlockScaledType(ParametrizedAttribute, TypeAttribute):
    """`!tosa.block_scaled<BLOCK_SHAPE_32:f8E8M0FNU:f8E4M3FN>`: 32 payloads to a scale."""

    name = "tosa.block_scaled"
    scale: Attribute
    payload: Attribute

    BLOCK_SHAPE: ClassVar[str] = "BLOCK_SHAPE_32"

    @classmethod
    def parse_parameters(cls, parser: AttrParser) -> list[Attribute]:
        """Parse parameters such as `<BLOCK_SHAPE_32:scale:payload>`."""
        with parser.in_angle_brackets():
            parser.parse_keyword(cls.BLOCK_SHAPE)
            parser.parse_punctuation(":")
            scale = parser.parse_type()
            parser.parse_punctuation(":")
            return [scale, parser.parse_type()]

    def print_parameters(self, printer: Printer) -> None:
        """Print parameters such as `<BLOCK_SHAPE_32:scale:payload>`."""
        printer.print_string(f"<{self.BLOCK_SHAPE}:")
        printer.print_attribute(self.scale)
        printer.print_string(":")
        printer.print_attribute(self.payload)
        printer.print_string(">")


class EnumerationAttr(Data[str]):
    """`#tosa.<kind><CASE>`. `codes` are the values of the cases in the flatbuffer schema."""

    codes: ClassVar[dict[str, int]]

    @classmethod
    def parse_parameter(cls, parser: AttrParser) -> str:
        """Parse a case of the enumeration in angle brackets."""
        with parser.in_angle_brackets():
            return cls.parse_case(parser)

    @classmethod
    def parse_case(cls, parser: AttrParser) -> str:
        """Parse a case of the enumeration without angle brackets."""
        case = parser.parse_identifier(context_msg=f" for {cls.name}")
        if case not in cls.codes:
            parser.raise_error(f"{case} is not a case of {cls.name}: {', '.join(cls.codes)}")
        return case

    def print_parameter(self, printer: Printer) -> None:
        """Print the case of the enumeration in angle brackets."""
        printer.print_string(f"<{self.data}>")

    @property
    def code(self) -> int:
        """Return the case's value in a flatbuffer."""
        return self.codes[self.data]

    @classmethod
    def case_of(cls, code: int) -> str | None:
        """Return the case with this value in a flatbuffer, if any."""
        return next((case for case, value in cls.codes.items() if value == code), None)


@irdl_attr_definition
class NanModeAttr(EnumerationAttr):
    """How an operator treats NaN: it propagates or is ignored."""

    name = "tosa.nan_mode"
    codes: ClassVar[dict[str, int]] = {"PROPAGATE": 1, "IGNORE": 2}


@irdl_attr_definition
class ResizeModeAttr(EnumerationAttr):
    """How RESIZE samples. The schema's name for MLIR's NEAREST_NEIGHBOR is NEAREST."""

    name = "tosa.resize_mode"
    codes: ClassVar[dict[str, int]] = {"NEAREST_NEIGHBOR": 1, "BILINEAR": 2}


@irdl_attr_definition
class RoundingModeAttr(EnumerationAttr):
    """The rounding mode of a RESCALE."""

    name = "tosa.rounding_mode"
    codes: ClassVar[dict[str, int]] = {"SINGLE_ROUND": 1, "INEXACT_ROUND": 2, "DOUBLE_ROUND": 3}


@irdl_attr_definition
class BlockSizeAttr(EnumerationAttr):
    """How many elements share a scale in the operators that take scales as tensors."""

    name = "tosa.block_size"
    codes: ClassVar[dict[str, int]] = {"BLOCK_SIZE_1": 1, "BLOCK_SIZE_32": 32}


ATTRIBUTES = (
    ShapeType,
    MxInt8Type,
    BlockScaledType,
    NanModeAttr,
    ResizeModeAttr,
    RoundingModeAttr,
    BlockSizeAttr,
)
