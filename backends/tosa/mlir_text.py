"""A TOSA-level program as a module for upstream MLIR's tools: tosa-opt, IREE, torch-mlir.

Nothing of ours is left in it: constants stand in the text (their bytes in hexadecimal), symbolic
sizes are `?`.  Operators print in MLIR's generic form, which versions of the tools agree on.
"""

from __future__ import annotations

from io import StringIO

import torch
from xdsl.dialects.builtin import (
    DenseIntOrFPElementsAttr,
    IntegerType,
    ModuleOp,
    TensorType,
)
from xdsl.dialects.func import FuncOp
from xdsl.ir import Attribute, BuiltinAttribute, Data, Operation, SSAValue
from xdsl.irdl import irdl_attr_definition
from xdsl.parser import AttrParser
from xdsl.printer import Printer

from stepwell.dialects.tosa.attributes import BlockScaledType
from stepwell.dialects.tosa.constants import dense
from stepwell.dialects.tosa.structural import ConstOp
from stepwell.ir.core import MutateInputOp, StateOp, UpdateOp, WeightOp
from stepwell.ir.diagnostics import StepwellError, UnsupportedError, describe_op
from stepwell.ir.dtypes import has_torch_dtype, i1
from stepwell.ir.program import Program
from stepwell.ir.types import WeightAttr
from stepwell.ir.weights import WeightStore, dense_bytes


@irdl_attr_definition
class HexElements(BuiltinAttribute, Data[tuple[str, str]]):
    """`dense<"0x3F80…"> : tensor<4xf32>`: elements by their bytes. Printed, never parsed."""

    name = "stepwell.hex_elements"

    @classmethod
    def parse_parameter(cls, parser: AttrParser) -> tuple[str, str]:
        """It stands only in text for other tools."""
        parser.raise_error("elements in hexadecimal are read as builtin dense elements")

    def print_parameter(self, printer: Printer) -> None:
        """As `print_builtin`."""
        self.print_builtin(printer)

    def print_builtin(self, printer: Printer) -> None:
        """The builtin form."""
        digits, type_ = self.data
        printer.print_string(f'dense<"0x{digits}"> : {type_}')


def to_mlir(program: Program, method: str = "forward") -> str:
    """The text of one method, in dialects that upstream MLIR has.

    Raises:
        StepwellError: the program is not at level `tosa`.
        UnsupportedError: it has mutable buffers, or constants of a block-scaled type.
    """
    if program.level != "tosa":
        raise StepwellError(
            f"a program at level {program.level!r} is no TOSA text",
            help='lower it first: stepwell.lower(program, "tosa-1.0+fp")',
        )
    func = program.method(method).clone()
    func.attributes.clear()
    for op in list(func.walk()):
        _make_plain(op, program.weights)
    types = ([a.type for a in func.body.block.args], list(_returned(func)))
    func.properties["function_type"] = type(func.function_type).from_lists(*types)
    out = StringIO()
    Printer(out, print_generic_format=True).print_op(ModuleOp([func]))
    return out.getvalue() + "\n"


def _returned(func: FuncOp) -> list[Attribute]:
    last = func.body.block.last_op
    assert last is not None
    return [value.type for value in last.operands]


def _make_plain(op: Operation, weights: WeightStore) -> None:
    if isinstance(op, StateOp | UpdateOp | MutateInputOp):
        raise UnsupportedError(
            f"{op.name}: a buffer kept between calls has no place in a single function",
            describe_op(op),
            "write the flatbuffer, which declares variables",
        )
    for region in op.regions:
        for block in region.blocks:
            for argument in block.args:
                _without_encoding(argument)
    for result in op.results:
        _without_encoding(result)
    if isinstance(op, WeightOp | ConstOp):
        _write_out(op, weights)


def _without_encoding(value: SSAValue) -> None:
    type_ = value.type
    if isinstance(type_, TensorType) and type_.encoding != (plain := _plain(type_)).encoding:
        value._type = plain  # pyright: ignore[reportPrivateUsage]


def _plain(type_: TensorType[Attribute]) -> TensorType[Attribute]:
    return TensorType(type_.element_type, list(type_.get_shape()))


def _write_out(op: WeightOp | ConstOp, weights: WeightStore) -> None:
    """Replace a constant by one whose elements stand in the text."""
    if isinstance(op, ConstOp) and not isinstance(op.values, WeightAttr):
        return
    key = op.key.data if isinstance(op, WeightOp) else op.values
    type_ = op.results[0].type
    assert isinstance(type_, TensorType)
    element: Attribute = type_.element_type
    if isinstance(element, BlockScaledType):
        raise UnsupportedError(
            "tosa.const: a constant of a block-scaled type has no text that the tools read",
            describe_op(op),
        )
    held = weights.get(key.data if isinstance(key, WeightAttr) else str(key))
    new = ConstOp.create(
        properties={"values": _elements(held, element, str(type_))}, result_types=[type_]
    )
    block = op.parent
    assert block is not None
    block.insert_op_before(new, op)
    op.results[0].replace_all_uses_with(new.output)
    op.detach()
    op.erase()


def _elements(
    values: torch.Tensor, element: Attribute, type_: str
) -> HexElements | DenseIntOrFPElementsAttr:
    bits = element.width.data if isinstance(element, IntegerType) else 8
    if element == i1 or bits % 8 or not has_torch_dtype(element) or values.numel() == 1:
        return dense(values, element)
    return HexElements((dense_bytes(values).hex().upper(), type_))
