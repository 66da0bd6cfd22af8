"""Parameters and construction of ops, uniform for every dialect that a rule may name.

Ops of PyTorch's schemas take arguments in the schema's order. Ops of the other dialects take values
first, in the order of their declaration, and then fields, by name:

    %y = xnnpack.convolution_2d(%x, %w, %b, stride=[2, 2])

A field is a number, a list of numbers, a word or a type; an absent field is none. An operand of a
TOSA operator that is a list of sizes is written in place: `tosa.reshape(%x, [2, 3])`.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from typing import Any, cast

from xdsl.dialects.builtin import (
    DenseArrayBase,
    DenseIntOrFPElementsAttr,
    FloatAttr,
    IntegerAttr,
    IntegerType,
    TensorType,
    UnitAttr,
)
from xdsl.ir import Attribute, Data, Operation, SSAValue
from xdsl.irdl import (
    AttrSizedOperandSegments,
    IRDLOperation,
    OptOperandDef,
    OptPropertyDef,
    VarOperandDef,
    VarResultDef,
)

from stepwell.dialects.aten.call import SEGMENTS
from stepwell.dialects.aten.op import SchemaOp, segments, stated_default
from stepwell.dialects.aten.registry import find
from stepwell.ir.compat.xdsl.xdsl_private import create
from stepwell.ir.declared.inference import infer, inference_rule
from stepwell.ir.diagnostics import StepwellError
from stepwell.ir.sizes.size import GUESS
from stepwell.ir.syntax.text import dialect_named
from stepwell.ir.types import dims, element, tensor


@dataclass(frozen=True)
class Parameter:
    """An operand (`is_value`), a list of them, or a field of an op."""

    name: str
    is_value: bool = False
    is_list: bool = False
    may_be_absent: bool = False
    by_name: bool = False
    default: Any = None


class OperatorReader(ABC):
    """An op class: its parameters in order, and code that reads them.

    Attributes:
        results: the number of results; None if it depends on the op.
    """

    results: int | None

    def __init__(self, cls: type[Operation], parameters: Sequence[Parameter]) -> None:
        self.cls = cls
        self.parameters = tuple(parameters)
        self.by_name = {parameter.name: parameter for parameter in parameters}
        self.values = tuple(p for p in parameters if p.is_value)

    def operand(self, op: str, parameter: Parameter) -> str:
        """Return code that reads an operand, or a list of operands, of the op in the variable
        `op`.
        """
        before = self.values[: self.values.index(parameter) + 1]
        if any(p.is_list or p.may_be_absent for p in before):
            return self.named_operand(op, parameter.name)
        return f"at(operands_of({op}), {len(before) - 1})"

    @abstractmethod
    def named_operand(self, op: str, name: str) -> str:
        """Return code that reads an operand whose position depends on which others are present."""

    @abstractmethod
    def field(self, op: str, name: str) -> str:
        """Return code that reads a field as a Python value."""

    def is_written(self, op: str, name: str) -> str:
        """Return code that is true if a field is present."""
        return f"{name!r} in {op}.properties"

    @abstractmethod
    def make(self, given: Mapping[str, Any], types: Sequence[Attribute] | None) -> Operation:
        """Return a new op; its result types are inferred if none are given."""

    @abstractmethod
    def present(self, op: Operation) -> dict[str, Any]:
        """Return an op's arguments by name."""


class SchemaOperator(OperatorReader):
    """An op of a PyTorch schema."""

    def __init__(self, cls: type[SchemaOp]) -> None:
        super().__init__(
            cls,
            [
                Parameter(
                    a.name,
                    a.type.is_tensor,
                    a.type.is_tensor and a.type.is_list,
                    a.type.nullable and a.type.is_tensor,
                    a.keyword_only,
                    None if a.type.is_tensor else stated_default(a),
                )
                for a in cls.SCHEMA.arguments
            ],
        )
        returns = cls.SCHEMA.returns
        self.results = None if any(r.type.is_list for r in returns) else len(returns)
        self.schema_op = cls

    def named_operand(self, op: str, name: str) -> str:
        return f"{op}.arg({name!r})"

    def field(self, op: str, name: str) -> str:
        return f"{op}.arg({name!r})"

    def make(self, given: Mapping[str, Any], types: Sequence[Attribute] | None) -> Operation:
        return self.schema_op.from_arguments(dict(given), types)

    def present(self, op: Operation) -> dict[str, Any]:
        assert isinstance(op, SchemaOp)
        return op.present()


class DeclaredOperator(OperatorReader):
    """An op whose operands and fields are declared individually."""

    def __init__(self, cls: type[IRDLOperation]) -> None:
        known = cls.get_irdl_definition()
        self.fields = [name for name in known.properties if name != SEGMENTS]
        values = [
            Parameter(
                name,
                is_value=True,
                is_list=isinstance(held, VarOperandDef) and not isinstance(held, OptOperandDef),
                may_be_absent=isinstance(held, OptOperandDef),
            )
            for name, held in known.operands
        ]
        fields = [
            Parameter(
                name, may_be_absent=isinstance(known.properties[name], OptPropertyDef), by_name=True
            )
            for name in self.fields
        ]
        super().__init__(cls, [*values, *fields])
        varies = any(isinstance(held, VarResultDef) for _, held in known.results)
        self.results = None if varies else len(known.results)
        self.has_segments = any(isinstance(o, AttrSizedOperandSegments) for o in known.options)
        self.field_attribute: Callable[[str, Any], Attribute] | None = getattr(
            cls, "field_attribute", None
        )

    def named_operand(self, op: str, name: str) -> str:
        return f"{op}.{name}"

    def field(self, op: str, name: str) -> str:
        return f"plain({op}.properties.get({name!r}))"

    def present(self, op: Operation) -> dict[str, Any]:
        values = {p.name: getattr(op, p.name) for p in self.values}
        return values | {name: op.properties.get(name) for name in self.fields}

    def make(self, given: Mapping[str, Any], types: Sequence[Attribute] | None) -> Operation:
        operands: list[SSAValue] = []
        sizes: list[int] = []
        for parameter in self.values:
            listed = given.get(parameter.name)
            if not parameter.is_list:
                listed = [] if listed is None else [listed]
            operands += cast("list[SSAValue]", listed)
            sizes.append(len(cast("list[SSAValue]", listed)))
        properties = {
            name: value if isinstance(value, Attribute) else self._attribute(name, value)
            for name in self.fields
            if (value := given.get(name)) is not None
        }
        if self.has_segments:
            properties[SEGMENTS] = segments(tuple(sizes))
        if types is None:
            types = self._inferred(operands, properties)
        return create(self.cls, operands, types, properties)

    def _attribute(self, name: str, value: Any) -> Attribute:
        if self.field_attribute is None:
            raise StepwellError(f"{self.cls.name}: a rule cannot state {name}")
        return self.field_attribute(name, value)

    def _inferred(
        self, operands: list[SSAValue], properties: dict[str, Attribute]
    ) -> Sequence[Attribute]:
        """Return the inferred types; unknown parts are copied from the operand's type."""
        if inference_rule(self.cls) is None or not operands or self.results is None:
            raise StepwellError(f"{self.cls.name}: result types cannot be inferred; state them")
        types: Sequence[Attribute] = []
        for guess in (_unsized(operands[0].type), operands[0].type):
            guesses = [guess] * self.results
            draft = self.cls.create(operands=operands, result_types=guesses, properties=properties)
            types = infer(draft) or []
            draft.erase()
            if not any(GUESS in dims(type_) for type_ in types if isinstance(type_, TensorType)):
                break
        return types


def _unsized(type_: Attribute) -> Attribute:
    """Return a tensor's type with symbolic sizes, which inference then replaces."""
    if not isinstance(type_, TensorType):
        return type_
    return tensor([GUESS] * len(dims(type_)), element(type_))


@cache
def operator_of(cls: type[Operation]) -> OperatorReader:
    """Return the parameters of an op class.

    Raises:
        StepwellError: the class does not declare its parameters.
    """
    if SchemaOp in cls.__mro__:  # `issubclass` of an ABC would query every class.
        return SchemaOperator(cast("type[SchemaOp]", cls))
    if issubclass(cls, IRDLOperation):
        return DeclaredOperator(cls)
    raise StepwellError(f"{cls.name} does not declare its operands")


def op_named(name: str) -> type[Operation] | None:
    """Return an op class of any dialect by its name in the IR; None if there is none."""
    if name.count(".") == 2:
        return find(name)
    return _ops_of(name.partition(".")[0]).get(name)


@cache
def _ops_of(dialect: str) -> dict[str, type[Operation]]:
    known = dialect_named(dialect)
    return {} if known is None else {op.name: op for op in known.operations}


def plain(attribute: Attribute | None) -> Any:
    """Return a field as a Python value: true for a set flag, other attributes as they are."""
    match attribute:
        case None:
            return None
        case UnitAttr():
            return True
        case IntegerAttr():
            value = attribute.value.data
            return bool(value) if attribute.type == _I1 else value
        case FloatAttr():
            return attribute.value.data
        case DenseArrayBase():
            return list(cast("DenseArrayBase[IntegerType]", attribute).get_values())
        case Data():
            return cast(Any, attribute).data
        case _:
            return attribute


_I1 = IntegerType(1)


def sizes_in_place(value: SSAValue) -> list[int] | None:
    """Return the list of sizes that a value contains, if it is constant."""
    owner = value.owner
    if not isinstance(owner, Operation) or owner.name != _SIZES:
        return None
    elements_attr = cast("DenseIntOrFPElementsAttr[Any]", owner.properties["values"])
    values, (count,) = [int(item) for item in elements_attr.get_values()], elements_attr.get_shape()
    return values * count if len(values) == 1 else values


_SIZES = "tosa.const_shape"
