"""Named operators of MLIR's `linalg` that xDSL does not define, as text.

    %d = linalg.dot ins(%a, %b : tensor<4xf32>, tensor<4xf32>) outs(%c : tensor<f32>) -> tensor<f32>
    %p = linalg.pack %x inner_dims_pos = [1] inner_tiles = [8] into %e : tensor<4x16xf32> -> …

An op has operands, outputs and attributes. The importer defines its semantics
(`translate/upstream/named.py`).
"""

from __future__ import annotations

from typing import Any, ClassVar

from xdsl.dialects.builtin import ArrayAttr, IntegerAttr, i64
from xdsl.ir import Attribute, Operation, SSAValue
from xdsl.irdl import (
    AttrSizedOperandSegments,
    IRDLOperation,
    irdl_op_definition,
    var_operand_def,
    var_region_def,
    var_result_def,
)
from xdsl.parser import Parser, UnresolvedOperand
from xdsl.printer import Printer

NAMES = frozenset(
    """abs ceil floor negf tanh erf rsqrt reciprocal square div div_unsigned powf softmax
    dot matvec vecmat batch_matmul batch_matvec batch_vecmat batch_reduce_matmul mmt4d batch_mmt4d
    matmul_transpose_a matmul_transpose_b batch_matmul_transpose_a batch_matmul_transpose_b
    conv_1d conv_2d conv_1d_nwc_wcf conv_1d_ncw_fcw conv_3d_ndhwc_dhwcf conv_3d_ncdhw_fcdhw
    depthwise_conv_1d_nwc_wc depthwise_conv_2d_nhwc_hwc depthwise_conv_2d_nchw_chw
    depthwise_conv_2d_nhwc_hwcm pooling_nhwc_max pooling_nhwc_min pooling_nhwc_sum
    pooling_nchw_sum""".split()
)
TILED = ("linalg.pack", "linalg.unpack", "tensor.pack", "tensor.unpack")
"""Older versions of MLIR have these in `tensor`."""


class Structured(IRDLOperation):
    """An op with the text `linalg.NAME {…} ins(…) outs(…) -> …`."""

    inputs = var_operand_def()
    outputs = var_operand_def()
    res = var_result_def()
    body = var_region_def()
    irdl_options = (AttrSizedOperandSegments(as_property=True),)
    KEYWORDS: ClassVar[tuple[str, ...]] = ("dimension",)

    @classmethod
    def parse(cls, parser: Parser) -> Operation:
        """Parse the op as `mlir-opt` prints it."""
        attributes = dict(parser.parse_optional_attr_dict())
        if parser.parse_optional_keyword("dimension") is not None:
            with parser.in_parens():
                attributes["dimension"] = IntegerAttr(parser.parse_integer(), i64)
        groups = [_operands(parser, word) for word in ("ins", "outs")]
        attributes |= parser.parse_optional_attr_dict()
        types: list[Attribute] = []
        if parser.parse_optional_punctuation("->") is not None:
            types = parser.parse_comma_separated_list(parser.Delimiter.NONE, parser.parse_type)
        return cls.build(operands=groups, result_types=[types], regions=[[]], attributes=attributes)

    def print(self, printer: Printer) -> None:
        """Print the op as `mlir-opt` does."""
        rest = {k: v for k, v in self.attributes.items() if k != "dimension"}
        printer.print_op_attributes(rest)
        if "dimension" in self.attributes:
            printer.print_string(f" dimension({_numbers(self.attributes['dimension'])})")
        for word, values in (("ins", self.inputs), ("outs", self.outputs)):
            printer.print_string(f" {word}(")
            printer.print_list(values, printer.print_ssa_value)
            printer.print_string(" : ")
            printer.print_list([v.type for v in values], printer.print_attribute)
            printer.print_string(")")
        if self.res:
            printer.print_string(" -> ")
            printer.print_list([v.type for v in self.res], printer.print_attribute)


class Tiled(IRDLOperation):
    """`linalg.pack`, `linalg.unpack`: split axes into tiles, which become the last
    axes, and back.
    """

    args = var_operand_def()
    """The source, the destination, and for a pack the padding value."""
    res = var_result_def()
    LISTS: ClassVar[tuple[str, ...]] = ("outer_dims_perm", "inner_dims_pos", "inner_tiles")

    @classmethod
    def parse(cls, parser: Parser) -> Operation:
        """Parse the op as `mlir-opt` prints it; tile sizes are numbers."""
        source = parser.parse_unresolved_operand()
        padding: SSAValue | None = None
        attributes: dict[str, Attribute] = {}
        if parser.parse_optional_keyword("padding_value") is not None:
            with parser.in_parens():
                value = parser.parse_unresolved_operand()
                parser.parse_punctuation(":")
                padding = parser.resolve_operand(value, parser.parse_type())
        for word in cls.LISTS:
            if parser.parse_optional_keyword(word) is not None:
                parser.parse_punctuation("=")
                numbers = parser.parse_comma_separated_list(
                    parser.Delimiter.SQUARE, parser.parse_integer
                )
                attributes[word] = ArrayAttr([IntegerAttr(n, i64) for n in numbers])
        parser.parse_keyword("into")
        into = parser.parse_unresolved_operand()
        attributes |= parser.parse_optional_attr_dict()
        parser.parse_punctuation(":")
        given = parser.parse_type()
        parser.parse_punctuation("->")
        made = parser.parse_type()
        operands = [parser.resolve_operand(source, given), parser.resolve_operand(into, made)]
        if padding is not None:
            operands.append(padding)
        return cls.build(operands=[operands], result_types=[[made]], attributes=attributes)

    def print(self, printer: Printer) -> None:
        """Print the op as `mlir-opt` does."""
        source, into, *padding = self.args
        printer.print_string(" ")
        printer.print_ssa_value(source)
        for value in padding:
            printer.print_string(" padding_value(")
            printer.print_ssa_value(value)
            printer.print_string(f" : {value.type})")
        for word in self.LISTS:
            if word in self.attributes:
                printer.print_string(f" {word} = {_numbers(self.attributes[word])}")
        printer.print_string(" into ")
        printer.print_ssa_value(into)
        printer.print_string(f" : {source.type} -> {into.type}")


def numbers_of(value: Attribute | None) -> list[int]:
    """Return the integers of a list attribute, a `dense<…>` or a number; an empty list for None."""
    if isinstance(value, ArrayAttr):
        return [number for each in value.data for number in numbers_of(each)]
    if isinstance(value, IntegerAttr):
        return [int(value.value.data)]
    return [] if value is None else [int(v) for v in value.get_values()]  # pyright: ignore


def _numbers(value: Attribute) -> Any:
    numbers = numbers_of(value)
    return numbers if isinstance(value, ArrayAttr) else numbers[0]


def _operands(parser: Parser, word: str) -> list[SSAValue]:
    if parser.parse_optional_keyword(word) is None:
        return []
    with parser.in_parens():
        names: list[UnresolvedOperand] = parser.parse_comma_separated_list(
            parser.Delimiter.NONE, parser.parse_unresolved_operand
        )
        parser.parse_punctuation(":")
        types = parser.parse_comma_separated_list(parser.Delimiter.NONE, parser.parse_type)
    return list(parser.resolve_operands(names, types, parser.pos))


def _class_of(name: str, base: type[IRDLOperation]) -> type[Operation]:
    word = name.rpartition(".")[2]
    return irdl_op_definition(type(word, (base,), {"name": name, "__doc__": f"`{name}`."}))


CLASSES = {
    **{f"linalg.{name}": _class_of(f"linalg.{name}", Structured) for name in NAMES},
    **{name: _class_of(name, Tiled) for name in TILED},
}
"""Op classes by name."""
