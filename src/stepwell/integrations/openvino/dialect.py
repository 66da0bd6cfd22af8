"""The dialect `openvino`: one operation for each operator of OpenVINO's opsets, and delegates.

    %y = openvino.delegate "CPU"(%x) {
    ^bb0(%in: tensor<1x8xf32>):
      %w = stepwell.weight <"fc.weight"> "parameter" : tensor<4x8xf32>
      %out = openvino.MatMul(%in, %w) {transpose_a = false, transpose_b = true} : (…) -> …
      openvino.yield %out : tensor<1x4xf32>
    } : (tensor<1x8xf32>) -> tensor<1x4xf32>

`operators.txt` is the table of operators (`tools/openvino_operators.py`). `plugin_operators.txt`
has those that only the CPU plug-in creates, and earlier versions; they occur in programs that are
read from a file. An operation has the operator's name, its operands in order, and its attributes as
fields.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any, ClassVar, Self, cast

from xdsl.dialects.builtin import (
    BoolAttr,
    DenseArrayBase,
    DenseIntOrFPElementsAttr,
    DictionaryAttr,
    FloatAttr,
    IntegerAttr,
    IntegerType,
    StringAttr,
    TensorType,
    f64,
    i64,
)
from xdsl.ir import Attribute, Dialect, Operation, SSAValue
from xdsl.irdl import (
    IRDLOperation,
    irdl_op_definition,
    opt_prop_def,
    prop_def,
    result_def,
    traits_def,
    var_operand_def,
    var_result_def,
)
from xdsl.parser import Parser
from xdsl.printer import Printer
from xdsl.traits import HasParent, IsTerminator, Pure
from xdsl.utils.exceptions import VerifyException

from stepwell.dialects.aten.op import SchemaOp
from stepwell.dialects.delegate import NamedDelegateOp
from stepwell.dialects.tosa.constants import dense, tensor_of_dense
from stepwell.ir.compat.torch.lazy_imports import torch
from stepwell.ir.core import WeightOp
from stepwell.ir.dtypes import torch_dtype
from stepwell.ir.types import element

TABLES = ("operators.txt", "plugin_operators.txt")
_KINDS: dict[str, tuple[type[Attribute], ...]] = {
    "int": (IntegerAttr,),
    "float": (FloatAttr,),
    "bool": (IntegerAttr,),
    "str": (StringAttr,),
    "ints": (DenseArrayBase,),
}


@dataclass(frozen=True)
class Signature:
    """An operator's line of the table: its opset, operands (`x`, `x?`, `xs*`) and attributes."""

    opset: str
    operands: tuple[str, ...]
    attributes: Mapping[str, str]

    def operand_name(self, index: int) -> str:
        """Return the name of an operand; the last one of a list stands for all others."""
        return self.operands[min(index, len(self.operands) - 1)].rstrip("?*")


class OpenvinoOp(IRDLOperation):
    """An operator of OpenVINO. `TYPE` is its name there."""

    TYPE: ClassVar[str]
    SIGNATURE: ClassVar[Signature]
    inputs = var_operand_def(TensorType)
    fields = opt_prop_def(DictionaryAttr)
    outputs = var_result_def(TensorType)
    traits = traits_def(Pure())
    assembly_format: ClassVar[str | None] = (
        "`(` $inputs `)` ($fields^)? attr-dict `:` functional-type($inputs, $outputs)"
    )

    @classmethod
    def make(
        cls, operands: Sequence[SSAValue], results: Sequence[Attribute], **fields: Any
    ) -> Self:
        """Build an operation from values, result types, and the attributes as Python values."""
        held = {name: to_attribute(value) for name, value in sorted(fields.items())}
        properties: dict[str, Attribute] = {"fields": DictionaryAttr(held)} if held else {}
        return cls.create(operands=operands, result_types=results, properties=properties)

    def values(self) -> dict[str, Any]:
        """Return the attributes as Python values."""
        held = {} if self.fields is None else self.fields.data
        return {name: to_value(attribute) for name, attribute in held.items()}

    def verify_(self) -> None:
        names = self.SIGNATURE.operands
        least = sum(name[-1] not in "?*" for name in names)
        is_list = bool(names) and names[-1].endswith("*")
        if len(self.operands) < least or (not is_list and len(self.operands) > len(names)):
            raise VerifyException(f"{len(self.operands)} operands for {', '.join(names)}")
        for name, held in ({} if self.fields is None else self.fields.data).items():
            kind = self.SIGNATURE.attributes.get(name)
            if kind is None:
                raise VerifyException(f"{self.TYPE} has no attribute {name}")
            if not isinstance(held, _KINDS[kind]):
                raise VerifyException(f"the attribute {name} is no {kind}")


def to_attribute(value: Any) -> Attribute:
    """Convert an attribute's Python value."""
    if isinstance(value, bool):
        return BoolAttr.from_bool(value)
    if isinstance(value, int):
        return IntegerAttr(value, i64)
    if isinstance(value, float):
        return FloatAttr(value, f64)
    if isinstance(value, str):
        return StringAttr(value)
    return DenseArrayBase.from_list(i64, [int(each) for each in value])


def to_value(attribute: Attribute) -> Any:
    """Convert an attribute to its Python value."""
    if isinstance(attribute, DenseArrayBase):
        return list(cast("DenseArrayBase[IntegerType]", attribute).get_values())
    if isinstance(attribute, IntegerAttr):
        number = attribute.value.data
        return bool(number) if attribute.type == IntegerType(1) else number
    assert isinstance(attribute, FloatAttr | StringAttr)
    return attribute.value.data if isinstance(attribute, FloatAttr) else attribute.data


def _class(line: str) -> type[OpenvinoOp]:
    """Return the class of an operation from its line of a table."""
    name, opset, *rest = line.split()
    at = rest.index(":")
    attributes = dict(pair.split("=") for pair in rest[at + 1 :])
    signature = Signature(opset, tuple(rest[:at]), attributes)
    body = {
        "__doc__": f"{name} of {opset}.",
        "__module__": __name__,
        "__annotations__": {"TYPE": ClassVar[str], "SIGNATURE": ClassVar[Signature]},
        "name": f"openvino.{name}",
        "TYPE": name,
        "SIGNATURE": signature,
    }
    return irdl_op_definition(type(f"{name}Op", (OpenvinoOp,), body))


def _lines() -> list[str]:
    files = [Path(__file__).with_name(name) for name in TABLES]
    return [line for file in files for line in file.read_text(encoding="utf-8").splitlines()]


OPS: dict[str, type[OpenvinoOp]] = {cls.TYPE: cls for cls in map(_class, _lines())}
"""The operations by the names of the operators."""


@irdl_op_definition
class ConstantOp(IRDLOperation):
    """A small constant: axes, sizes, numbers. Large ones are weights."""

    name = "openvino.Constant"
    value = prop_def(DenseIntOrFPElementsAttr)
    result = result_def(TensorType)
    traits = traits_def(Pure())

    @classmethod
    def make(cls, values: torch.Tensor) -> Self:
        """Build a constant."""
        return cls.of(dense(values))

    @classmethod
    def of(cls, value: DenseIntOrFPElementsAttr) -> Self:
        """Build a constant of these elements."""
        return cls.create(properties={"value": value}, result_types=[value.type])

    def print(self, printer: Printer) -> None:
        """Print `dense<[0, 2]> : tensor<2xi64>`."""
        printer.print_string(" ")
        printer.print_attribute(self.value)

    @classmethod
    def parse(cls, parser: Parser) -> Self:
        """Parse the output of `print`."""
        value = parser.parse_attribute()
        if not isinstance(value, DenseIntOrFPElementsAttr):
            parser.raise_error("elements are needed here: dense<…> : tensor<…>")
        return cls.of(value)

    def verify_(self) -> None:
        if self.value.type != self.result.type:
            raise VerifyException(f"the value has the type {self.value.type}")

    def tensor(self) -> torch.Tensor:
        """Return the elements."""
        return tensor_of_dense(self.value, torch_dtype(element(self.result.type)))


@irdl_op_definition
class YieldOp(IRDLOperation):
    """The terminator of a delegate's region; its operands are the delegate's outputs."""

    name = "openvino.yield"
    outputs = var_operand_def()
    traits = traits_def(IsTerminator(), HasParent(NamedDelegateOp))
    assembly_format: ClassVar[str] = "($outputs^ `:` type($outputs))? attr-dict"


WRITES_OPERANDS = "writes_operands"
"""The attribute of delegates whose last operands are the tensors to which results are written."""


@irdl_op_definition
class DelegateOp(NamedDelegateOp):
    """A sub-graph that runs on a device of OpenVINO."""

    name = "openvino.delegate"
    DEVICE: ClassVar[str] = "device"
    END: ClassVar[type[Operation]] = YieldOp
    device = prop_def(StringAttr)

    @property
    def writes_operands(self) -> bool:
        """Whether the last operands are the tensors to which the results are written."""
        return WRITES_OPERANDS in self.attributes


def refuses(op: Operation) -> str | None:
    """Return why an operation is not allowed at the level, or None."""
    if isinstance(op.parent_op(), DelegateOp):
        if isinstance(op, OpenvinoOp | ConstantOp | WeightOp | YieldOp):
            return None
        return "a delegate contains only OpenVINO's operators and constants"
    if isinstance(op, DelegateOp | SchemaOp) or op.name.startswith(_BESIDE):
        return None
    if isinstance(op, OpenvinoOp | ConstantOp):
        return "an operator of OpenVINO is outside any delegate; partition the program"
    return "the runtime has neither a delegate nor a kernel for it"


_BESIDE = ("sym.", "control.", "executorch.")
"""Dialects whose operations may be outside delegates: scalars, control flow, other delegates."""


@cache
def dialect() -> Dialect:
    """Return the dialect."""
    return Dialect("openvino", [*OPS.values(), ConstantOp, DelegateOp, YieldOp])
