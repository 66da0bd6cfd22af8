"""The base class of all ops of the `cmsis` dialect: textual form, typed fields, and checks.

    %y = cmsis.quantized_linear(%x, %w, bias = %b) {input_offset = 3, …} : (…) -> …

Fields have the names of the operator's schema. Activations are int8 tensors, quantized
(`!quant.uniform`) if the parameters are known and plain if a program was read from bytes.
"""

from __future__ import annotations

import struct
from abc import ABC
from collections.abc import Iterator, Sequence
from typing import Any, ClassVar, Self, TypeVar, cast

from xdsl.dialects.builtin import (
    BoolAttr,
    BytesAttr,
    DenseArrayBase,
    FloatAttr,
    FunctionType,
    IntegerAttr,
    ModuleOp,
    StringAttr,
    TensorType,
    f64,
    i32,
    i64,
)
from xdsl.ir import Attribute, Operation, SSAValue
from xdsl.irdl import (
    IRDLOperation,
    OptOperandDef,
    VarOperandDef,
    irdl_op_definition,
    result_def,
    traits_def,
)
from xdsl.parser import Parser, UnresolvedOperand
from xdsl.printer import Printer
from xdsl.traits import Pure
from xdsl.utils.exceptions import VerifyException

from stepwell.dialects.cmsis.arithmetic import SHIFT_RANGE, Multiplier, quantize_multiplier
from stepwell.dialects.cmsis.target import Target, target
from stepwell.dialects.quant.types import Quantization, quantization, storage_element, type_problem
from stepwell.ir.axes.maps import HasAxes
from stepwell.ir.declared.families import HasFamilies
from stepwell.ir.dtypes import i8
from stepwell.ir.levels import CMSIS_TARGET as TARGET
from stepwell.ir.types import Dim, dims, element

_SEGMENTS = "operandSegmentSizes"
_Op = TypeVar("_Op", bound="CmsisOp")


class CmsisOp(HasAxes, HasFamilies, IRDLOperation, ABC):
    """An operator of the `cortex_m` library. `OPERATOR` is its name there, empty for an op that is
    only a view or a copy.
    """

    OPERATOR: ClassVar[str] = ""
    RESIZES: ClassVar[bool] = False
    """Whether the operator resizes its result to its operand at run time. Most do not (ExecuTorch's
    `backends/cortex_m/ops/*.cpp`): their results keep the planned size.
    """
    IGNORES_DIM_ORDER: ClassVar[bool] = False
    """Whether the kernel takes a tensor's sizes in their logical order and its bytes from first to
    last, so that the result for a channels-last tensor differs from what its sizes say.
    """
    MULTIPLIER_BITS: ClassVar[dict[str, int]] = {}
    """Integer list fields that are not 64 bits wide (multipliers and shifts are int32)."""
    out = result_def(TensorType)
    traits = traits_def(Pure())

    @classmethod
    def make(cls, *operands: SSAValue | None, result: Attribute, **fields: Any) -> Self:
        """Build an op from values (None for an absent optional operand) and Python numbers."""
        definitions = cls.get_irdl_definition()
        values: list[Sequence[SSAValue] | SSAValue] = []
        for (_, definition), value in zip(definitions.operands, operands, strict=True):
            if isinstance(definition, OptOperandDef):
                values.append([] if value is None else [value])
            else:
                assert value is not None
                values.append(value)
        properties = {
            name: cls.field_attribute(name, value)
            for name, value in fields.items()
            if value is not None
        }
        return cls(operands=values, result_types=[result], properties=properties)

    @classmethod
    def field_attribute(cls, name: str, value: Any) -> Attribute:
        """Convert a field's Python value to an attribute."""
        return to_attribute(value, cls.MULTIPLIER_BITS.get(name, 64))

    @property
    def named_operands(self) -> dict[str, SSAValue | None]:
        """Return operands by their schema name in order, absent ones as None."""
        return {name: getattr(self, name) for name, _ in self.get_irdl_definition().operands}

    def number(self, field: str) -> int:
        """Return the value of an integer field."""
        return cast("IntegerAttr[Any]", self.properties[field]).value.data

    def real(self, field: str) -> float:
        """Return the value of a float field."""
        return cast("FloatAttr[Any]", self.properties[field]).value.data

    def flag(self, field: str) -> bool:
        """Return the value of a bool field."""
        return bool(self.number(field))

    def numbers(self, field: str) -> tuple[int, ...]:
        """Return an integer list field."""
        values = cast("DenseArrayBase[Any]", self.properties[field]).get_values()
        return tuple(int(value) for value in values)

    @property
    def activation(self) -> tuple[int, int]:
        """Return the range to which results are clamped."""
        return self.number("activation_min"), self.number("activation_max")

    def multiplier(self, stem: str) -> Multiplier:
        """Return the fields `<stem>_multiplier` and `<stem>_shift` together."""
        return Multiplier(self.number(f"{stem}_multiplier"), self.number(f"{stem}_shift"))

    def problems(self) -> Iterator[str]:
        """Yield errors of the op beyond its structure; subclasses extend the list."""
        for value in (*self.operands, *self.results):
            if problem := type_problem(value.type):
                yield problem

    def needed_scratch(self, target: Target) -> dict[str, int]:
        """Return the scratch fields and the bytes that each needs on a target, if
        shapes are known.
        """
        return {}

    def scratch_problems(self) -> Iterator[str]:
        """Yield why a scratch size differs from what the kernel needs on the stated target."""
        target = target_of(self)
        for field, needed in (self.needed_scratch(target) if target else {}).items():
            if self.number(field) != needed:
                yield f"{field} is {self.number(field)} bytes, {target} needs {needed}"

    def verify_(self) -> None:
        if text := "; ".join(self.problems()):
            raise VerifyException(text)

    def print(self, printer: Printer) -> None:
        """Print `(%x, %w, bias = %b) {fields} : (types) -> type`."""
        printer.print_string("(")
        first = True
        for name, definition in self.get_irdl_definition().operands:
            held = getattr(self, name)
            for value in held if isinstance(held, tuple) else (held,):
                if value is None:
                    continue
                printer.print_string("" if first else ", ")
                if isinstance(definition, OptOperandDef):
                    printer.print_string(f"{name} = ")
                printer.print_ssa_value(value)
                first = False
        printer.print_string(")")
        held = {k: v for k, v in self.properties.items() if k != _SEGMENTS}
        held.update(self.attributes)
        if held:
            printer.print_string(" ")
            printer.print_attr_dict(held)
        printer.print_string(" : ")
        printer.print_attribute(
            FunctionType.from_lists(
                [value.type for value in self.operands], [r.type for r in self.results]
            )
        )

    @classmethod
    def parse(cls, parser: Parser) -> Self:
        """Parse the output of `print`."""
        named: dict[str, UnresolvedOperand] = {}
        plain: list[UnresolvedOperand] = []

        def operand() -> None:
            name = parser.parse_optional_identifier()
            if name is None:
                plain.append(parser.parse_unresolved_operand())
                return
            parser.parse_punctuation("=")
            named[name] = parser.parse_unresolved_operand()

        parser.parse_comma_separated_list(parser.Delimiter.PAREN, operand)
        fields = parser.parse_optional_attr_dict()
        parser.parse_punctuation(":")
        type_ = parser.parse_type()
        if not isinstance(type_, FunctionType):
            parser.raise_error("a function type is needed here")
        types = iter(type_.inputs.data)
        definitions = cls.get_irdl_definition()
        operands: list[Sequence[SSAValue]] = []
        for name, definition in definitions.operands:
            if isinstance(definition, OptOperandDef):
                found = [named.pop(name)] if name in named else []
            elif isinstance(definition, VarOperandDef):
                found, plain = plain, []
            else:
                found = [plain.pop(0)] if plain else []
            operands.append([parser.resolve_operand(v, next(types)) for v in found])
        if named or plain:
            parser.raise_error(f"{cls.name} does not have that many operands")
        known = set(definitions.properties)
        properties = {k: v for k, v in fields.items() if k in known}
        attributes = {k: v for k, v in fields.items() if k not in known}
        return cls(
            operands=operands,
            result_types=list(type_.outputs.data),
            properties=properties,
            attributes=attributes,
        )


OPERATORS: list[type[CmsisOp]] = []
"""Those of the library, one for each kernel."""


def operator(cls: type[_Op]) -> type[_Op]:
    """Decorate an op class: register it under the name of its library operator."""
    defined = irdl_op_definition(cls)
    defined.OPERATOR = cls.name.removeprefix("cmsis.")
    OPERATORS.append(defined)
    return defined


def to_attribute(value: Any, bits: int = 64) -> Attribute:
    """Convert a Python number, list of numbers, or string to an attribute."""
    if isinstance(value, Attribute):
        return value
    if isinstance(value, bool):
        return BoolAttr.from_bool(value)
    if isinstance(value, int):
        return IntegerAttr(value, i64)
    if isinstance(value, float):
        return FloatAttr(value, f64)
    if isinstance(value, str):
        return StringAttr(value)
    items = [int(item) for item in value]
    # Packed at once: the constructor normalizes one number at a time, and there are thousands.
    data = struct.pack(f"<{len(items)}{'q' if bits == 64 else 'i'}", *items)
    return DenseArrayBase(i64 if bits == 64 else i32, BytesAttr(data))


def target_of(op: Operation) -> Target | None:
    """Return the target that an op's module states, or None."""
    current: Operation | None = op
    while current is not None and not isinstance(current, ModuleOp):
        current = current.parent_op()
    if current is None:
        return None
    stated = current.attributes.get(TARGET)
    return target(stated.data) if isinstance(stated, StringAttr) else None


def int8_problems(op: CmsisOp, *names: str, also: Sequence[Attribute] = ()) -> Iterator[str]:
    """Yield why operands or the result are not int8, plain or quantized."""
    for name in names:
        value = cast("SSAValue | None", getattr(op, name))
        if value is None:
            continue
        value_quantization = quantization(value.type)
        stored = (
            element(value.type)
            if value_quantization is None
            else storage_element(value_quantization)
        )
        if stored != i8 and stored not in also:
            yield f"{name} is {value.type}; the kernel takes int8"


def per_tensor(value: SSAValue | None) -> Quantization | None:
    """Return a value's quantization if it is known and per tensor."""
    held = None if value is None else quantization(value.type)
    return held if held is not None and held.is_per_tensor else None


def product_multiplier(a: SSAValue, b: SSAValue, product: SSAValue) -> Multiplier | None:
    """Return the multiplier that rescales a product to its type; None if a scale is not known."""
    left, right, made = per_tensor(a), per_tensor(b), per_tensor(product)
    if left is None or right is None or made is None:
        return None
    return quantize_multiplier(left.scale * right.scale / made.scale)


def zero_point_problems(op: CmsisOp, **expected: tuple[SSAValue, int]) -> Iterator[str]:
    """Yield where a zero point field contradicts the type of its tensor.

    `expected` maps a field to its tensor and to the sign with which the operator expects it.
    """
    for field, (value, sign) in expected.items():
        tensor = per_tensor(value)
        if tensor is not None and op.number(field) != sign * tensor.zero_point:
            yield (
                f"{field} is {op.number(field)}, the type {value.type} implies "
                f"{sign * tensor.zero_point}"
            )


def multiplier_problems(stem: str, stated: Multiplier, wanted: Multiplier | None) -> Iterator[str]:
    """Yield why a multiplier and shift are out of range, or differ from those of the types."""
    low, high = SHIFT_RANGE
    if not low <= stated.shift <= high:
        yield f"{stem} shift {stated.shift} is outside {low}:{high}"
    if not -(1 << 31) < stated.multiplier < 1 << 31:
        yield f"{stem} multiplier {stated.multiplier} does not fit int32"
    if wanted is not None and wanted != stated:
        yield (
            f"{stem} multiplier and shift are {stated.multiplier}, {stated.shift}; the scales of "
            f"the types give {wanted.multiplier}, {wanted.shift}"
        )


def activation_problems(op: CmsisOp) -> Iterator[str]:
    """Yield why `activation_min` … `activation_max` is not a range within the result's."""
    low, high = op.activation
    tensor = per_tensor(op.out)
    least, most = (tensor.low, tensor.high) if tensor is not None else (-128, 127)
    if not least <= low <= high <= most:
        yield f"the activation range {low}:{high} is not within {least}:{most}"


def result_problems(op: CmsisOp, shape: Sequence[Dim]) -> Iterator[str]:
    """Yield why the result's shape does not follow from the operands and fields."""
    stated = dims(op.out.type)
    if tuple(shape) != stated:
        yield f"the result has shape {list(stated)}, the operands imply {list(shape)}"


def same_quantization_problems(op: CmsisOp, *names: str) -> Iterator[str]:
    """Yield why an op that only selects or moves values changes their quantization."""
    for name in names:
        value = cast(SSAValue, getattr(op, name))
        value_quantization, made = quantization(value.type), quantization(op.out.type)
        if (
            value_quantization is not None
            and made is not None
            and not same_meaning(value_quantization, made)
        ):
            yield f"{name} is {value.type} but the result {op.out.type}; the op does not rescale"


def same_meaning(a: Quantization, b: Quantization) -> bool:
    """Whether two quantizations map equal integers to equal reals; their ranges may differ."""
    return (a.scales, a.zero_points, a.blocks, a.bits, a.signed) == (
        b.scales,
        b.zero_points,
        b.blocks,
        b.bits,
        b.signed,
    )
