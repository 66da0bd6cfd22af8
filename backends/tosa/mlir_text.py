"""Print a TOSA-level program as a module for upstream MLIR's tools: tosa-opt, IREE, torch-mlir.

The text contains no operations of stepwell: constants are part of the text (their bytes in
hexadecimal), symbolic sizes are `?`. Operators print in MLIR's generic form, on which versions of
the tools agree.

Constants of MX models print as in tosa-opt: codes of fp8, fp6 and fp4 are a byte each,
those of mxint8 strings, and a constant of a block-scaled type has its scales in its type:
`dense<tensor<1x32x!tosa.block_scaled<…, {0.5}>> : [[0x3 : f4E2M1FN, …]]>`.
"""

from io import StringIO
from math import isnan

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
from stepwell.dialects.tosa.codes import e8m0, mxint8, payload_of_element
from stepwell.dialects.tosa.constants import dense
from stepwell.dialects.tosa.structural import ConstOp
from stepwell.ir.compat.xdsl.xdsl_private import set_type
from stepwell.ir.core import MutateInputOp, StateOp, UpdateOp, WeightOp
from stepwell.ir.diagnostics import StepwellError, UnsupportedError, describe_op
from stepwell.ir.dtypes import has_torch_dtype, i1
from stepwell.ir.program import Program
from stepwell.ir.types import WeightAttr
from stepwell.ir.weight_bytes import dense_bytes
from stepwell.ir.weights import WeightStore


@irdl_attr_definition
class WrittenElements(BuiltinAttribute, Data[str]):
    """Elements in the syntax of upstream tools, `dense<"0x3F…"> : tensor<4xf32>`, which is only
    printed.
    """

    name = "stepwell.written_elements"

    @classmethod
    def parse_parameter(cls, parser: AttrParser) -> str:
        """Refuse to parse: the attribute occurs only in text for other tools."""
        parser.raise_error("elements written for other tools are read as builtin dense elements")

    def print_parameter(self, printer: Printer) -> None:
        """Print the text, as `print_builtin` does."""
        self.print_builtin(printer)

    def print_builtin(self, printer: Printer) -> None:
        """Print the attribute in the syntax of upstream MLIR."""
        printer.print_string(self.data)


def to_mlir(program: Program, method: str = "forward") -> str:
    """Return the text of one method, in dialects that upstream MLIR has.

    Raises:
        StepwellError: the program is not at level `tosa`.
        UnsupportedError: the program has mutable buffers, or block-scaled weights with an inf or
            NaN.
    """
    if program.level != "tosa":
        raise StepwellError(
            f"a program at level {program.level!r} has no TOSA text",
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
            f"{op.name}: a single function cannot represent a buffer kept between calls",
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
        set_type(value, plain)


def _plain(type_: TensorType[Attribute]) -> TensorType[Attribute]:
    return TensorType(type_.element_type, list(type_.get_shape()))


def _write_out(op: WeightOp | ConstOp, weights: WeightStore) -> None:
    """Replace a constant by one whose elements are part of the text."""
    if isinstance(op, ConstOp) and not isinstance(op.values, WeightAttr):
        return
    key = op.key.data if isinstance(op, WeightOp) else op.values
    type_ = op.results[0].type
    assert isinstance(type_, TensorType)
    element: Attribute = type_.element_type
    weight = weights.get(key.data if isinstance(key, WeightAttr) else str(key))
    if isinstance(element, BlockScaledType):
        assert isinstance(op, ConstOp) and op.scales is not None
        values = _block_scaled(weight, weights.get(op.scales.data), element, op)
    else:
        values = _elements(weight, element, str(type_))
    new = ConstOp.create(properties={"values": values}, result_types=[type_])
    block = op.parent
    assert block is not None
    block.insert_op_before(new, op)
    op.results[0].replace_all_uses_with(new.output)
    op.detach()
    op.erase()


STRING = '"0x{:X}"'
"""The form in which tosa-opt prints a code of mxint8."""


def _elements(
    values: torch.Tensor, element: Attribute, type_: str
) -> WrittenElements | DenseIntOrFPElementsAttr:
    if element == mxint8:
        return WrittenElements(f"dense<{_nested(values, STRING)}> : {type_}")
    if payload_of_element(element) is None and element != e8m0:
        bits = element.width.data if isinstance(element, IntegerType) else 8
        if element == i1 or bits % 8 or not has_torch_dtype(element) or values.numel() == 1:
            return dense(values, element)
    return WrittenElements(f'dense<"0x{dense_bytes(values).hex().upper()}"> : {type_}')


def _block_scaled(
    codes: torch.Tensor, scales: torch.Tensor, element: BlockScaledType, op: ConstOp
) -> WrittenElements:
    """Return a block-scaled constant as text: codes in nested lists, scales in the type.

    A scale is a power of two and prints exactly; a NaN scale has no textual form.
    """
    numbers = scales.to(torch.float32).reshape(-1).tolist()
    if any(isnan(number) for number in numbers):
        raise UnsupportedError(
            "tosa.const: a block of the weight contains an inf or a NaN, so that its scale is NaN, "
            "which tosa-opt reads from text as 2^-127",
            describe_op(op),
            'write the flatbuffer, or give to_mxfp(..., form="operators"), whose scales are a '
            "tensor",
        )
    text = ", ".join(map(repr, numbers))
    shape = "x".join(map(str, codes.shape))
    inner = str(element).removesuffix(">")
    if element.payload == mxint8:
        listed = _nested(codes.view(torch.int8), "{} : i8")
    else:
        listed = _nested(codes.view(torch.uint8), f"0x{{:X}} : {element.payload}")
    return WrittenElements(f"dense<tensor<{shape}x{inner}, {{{text}}}>> : {listed}>")


def _nested(codes: torch.Tensor, form: str) -> str:
    """Return a tensor as nested lists in brackets, each number formatted with `form`."""
    if codes.dim() == 1:
        return f"[{', '.join(map(form.format, codes.tolist()))}]"
    return f"[{', '.join(_nested(row, form) for row in codes)}]"
