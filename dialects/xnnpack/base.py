"""The base class of all ops of the `xnnpack` dialect: textual form, typed fields, and checks.

    %y = xnnpack.convolution_2d(%x, %w, %b, stride=[2, 2], output_min=0.0) : (…) -> …

Fields are properties: `ints` are `array<i64: …>`, numbers `i64` or `f32`, and a flag is a unit
attribute, printed as a bare word if set. Absent fields have XNNPACK's default.
"""

from __future__ import annotations

import math
import struct
from abc import ABC
from collections.abc import Iterable, Sequence
from functools import lru_cache
from typing import Any, ClassVar, Self, TypeVar, cast

import numpy as np
from xdsl.dialects.builtin import (
    DenseArrayBase,
    FloatAttr,
    FunctionType,
    IntegerAttr,
    IntegerType,
    TensorType,
    UnitAttr,
    f32,
    i64,
)
from xdsl.ir import Attribute, SSAValue
from xdsl.irdl import IRDLOperation, irdl_op_definition, result_def, traits_def
from xdsl.parser import Parser, UnresolvedOperand
from xdsl.printer import Printer
from xdsl.traits import Pure
from xdsl.utils.exceptions import VerifyException

from stepwell.dialects.quant.ops import StorageCast
from stepwell.dialects.quant.types import UniformQuantizedType, quantization, type_problem
from stepwell.dialects.xnnpack.datatypes import (
    INT4,
    MAX_RANK,
    datatype,
    quantization_problem,
)
from stepwell.ir.axes.maps import HasAxes
from stepwell.ir.compat.xdsl.xdsl_private import create, operands_of, set_type
from stepwell.ir.core import WeightOp
from stepwell.ir.declared.engine_behavior import EngineBehavior, engine_behavior
from stepwell.ir.declared.families import HasFamilies
from stepwell.ir.declared.inference import infer
from stepwell.ir.types import AnyTensor, Dim, dims, element, element_name, tensor
from stepwell.ir.verification_cache import Verifies
from stepwell.ir.weight_bytes import dense_size

_UNIT = UnitAttr()


class XnnpackOp(Verifies, HasAxes, HasFamilies, IRDLOperation, ABC):
    """A node of XNNPACK's sub-graph.

    Attributes:
        NODE: the node's name in ExecuTorch's schema; the default is `XNN` and the class's name.
        PACKED: operands whose constants XNNPACK copies when the delegate is loaded. It keeps a
            pointer to every other constant (see the facts in `backends.xnnpack.emit`).
    """

    NODE: ClassVar[str]
    PACKED: ClassVar[frozenset[int]] = frozenset()
    result = result_def(TensorType)
    traits = traits_def(Pure())

    @classmethod
    def make(
        cls,
        *operands: SSAValue,
        result: Attribute | None = None,
        element: Attribute | None = None,
        **fields: Any,
    ) -> Self:
        """Build an op from values and Python numbers.

        Args:
            operands: the operands in the node's order, without an absent bias.
            result: the result's tensor type; inferred by default.
            element: the result's element type if it is not that of the first operand.
            fields: properties; None and False leave a field out.
        """
        properties = {
            name: to_attribute(value)
            for name, value in fields.items()
            if value is not None and value is not False
        }
        if result is None:
            guess = tensor(dims(operands[0].type), element or _element(operands[0]))
            count = len(cls.get_irdl_definition().results)
            op = create(cls, operands, [guess] * count, properties)
            inferred = infer(op)
            assert inferred is not None, f"{cls.name} has no inference rule"
            for made, type_ in zip(op.results, inferred, strict=True):
                set_type(made, type_)
            return op
        return create(cls, operands, [result], properties)

    @classmethod
    def field_attribute(cls, name: str, value: Any) -> Attribute:
        """Convert a field's Python value to an attribute."""
        return to_attribute(value)

    def packs(self, index: int) -> bool:
        """Whether XNNPACK copies a constant at this operand position."""
        return index in self.PACKED

    @property
    def output(self) -> SSAValue:
        """Return the op's first result."""
        return self.results[0]

    def ints(self, name: str) -> tuple[int, ...]:
        """Return the numbers of a list field."""
        held = self.properties[name]
        assert isinstance(held, DenseArrayBase)
        return tuple(held.get_values())

    def integer(self, name: str, default: int) -> int:
        """Return the value of an integer field."""
        held = self.properties.get(name)
        return held.value.data if isinstance(held, IntegerAttr) else default

    def number(self, name: str, default: float) -> float:
        """Return the value of a float field."""
        held = self.properties.get(name)
        return held.value.data if isinstance(held, FloatAttr) else default

    def flag(self, name: str) -> bool:
        """Whether a flag is set."""
        return name in self.properties

    @property
    def output_range(self) -> tuple[float, float] | None:
        """Return `output_min` and `output_max`, an absent one as infinite; None if both are
        absent.
        """
        if "output_min" not in self.properties and "output_max" not in self.properties:
            return None
        return self.number("output_min", -np.inf), self.number("output_max", np.inf)

    def measured_as(self) -> tuple[str, str]:
        """Return the node's name and dtype in the table of measured behavior."""
        held = quantization(self.operands[0].type)
        dtype = element_name(self.operands[0].type) if held is None else "quantized"
        return self.name + (" clamped" if self.output_range is not None else ""), dtype

    def behavior(self, engine: str) -> EngineBehavior:
        """Return how the node treats special values on an engine such as `xnnpack/avx2`."""
        return engine_behavior(*self.measured_as(), engine)

    # -- verification --------------------------------------------------------------------------

    def verify_(self) -> None:
        for value in (*self.operands, *self.results):
            check_tensor(value.type)
        if (limits := self.output_range) is not None and not limits[0] < limits[1]:
            raise VerifyException(f"output_min {limits[0]} is not below output_max {limits[1]}")
        self.check_datatypes(
            tuple(cast(str, datatype(v.type)) for v in self.operands),
            tuple(cast(str, datatype(r.type)) for r in self.results),
        )
        self.check()

    def verdict_needs(self) -> tuple[bool, ...]:
        """Return which operands are constants, the only fact outside the node that `check`
        reads.
        """
        return tuple([constant_of(value) is not None for value in operands_of(self)])

    def check_datatypes(self, given: tuple[str, ...], made: tuple[str, ...]) -> None:
        """Raise `VerifyException` if XNNPACK has no kernel for these datatypes."""

    def check(self) -> None:
        """Raise `VerifyException` if the node breaks a rule that its types do not express."""

    # -- text ----------------------------------------------------------------------------------

    def print(self, printer: Printer) -> None:
        """Print `(%x, %w, stride=[2, 2], transpose_b) : (types) -> type`."""
        printer.print_string("(")
        for index, value in enumerate(self.operands):
            printer.print_string(", " if index else "")
            printer.print_ssa_value(value)
        for name in self.get_irdl_definition().properties:
            if (held := self.properties.get(name)) is not None:
                printer.print_string(f", {name}{_text(held)}")
        printer.print_string(")")
        printer.print_op_attributes(self.attributes)
        printer.print_string(" : ")
        printer.print_attribute(
            FunctionType.from_lists(
                [value.type for value in self.operands], [r.type for r in self.results]
            )
        )

    @classmethod
    def parse(cls, parser: Parser) -> Self:
        """Parse the output of `print`."""
        values: list[UnresolvedOperand] = []
        properties: dict[str, Attribute] = {}
        known = cls.get_irdl_definition().properties

        def item() -> None:
            if (value := parser.parse_optional_unresolved_operand()) is not None:
                values.append(value)
                return
            name = parser.parse_identifier(context_msg="a value or a field's name")
            if name not in known:
                parser.raise_error(f"{cls.name} has no field {name}; it has {', '.join(known)}")
            properties[name] = _parse_field(parser)

        parser.parse_comma_separated_list(parser.Delimiter.PAREN, item)
        attributes = parser.parse_optional_attr_dict()
        parser.parse_punctuation(":")
        type_ = parser.parse_type()
        if not isinstance(type_, FunctionType):
            parser.raise_error("a function type is needed here")
        inputs = type_.inputs.data
        if len(inputs) != len(values):
            parser.raise_error(f"{len(values)} operands have {len(inputs)} types")
        operands = [parser.resolve_operand(v, t) for v, t in zip(values, inputs, strict=True)]
        return cls.create(
            operands=operands,
            result_types=list(type_.outputs.data),
            properties=properties,
            attributes=attributes,
        )


_N = TypeVar("_N", bound=XnnpackOp)
NODES: dict[str, type[XnnpackOp]] = {}
"""The op of each node of the schema, by the node's name."""


def node(cls: type[_N]) -> type[_N]:
    """Decorate an op class: finish its definition, and register it under its node's name."""
    defined = irdl_op_definition(cls)
    if "NODE" not in cls.__dict__:
        defined.NODE = f"XNN{cls.__name__}"
    NODES[defined.NODE] = defined
    return defined


def constant_of(value: SSAValue) -> WeightOp | None:
    """Return the weight op that defines a value, also through a storage cast; else None."""
    owner = value.owner
    if type(owner) is StorageCast:
        owner = owner.input.owner
    return owner if type(owner) is WeightOp else None


def constant_size(weight: WeightOp) -> int:
    """Return the bytes of a weight; packed if only casts to four-bit types use it."""
    uses = [use.operation for use in weight.result.uses]
    if uses and all(type(op) is StorageCast and datatype(op.result.type) in INT4 for op in uses):
        return int4_size(weight.result.type)
    return dense_size(weight.result.type)


def int4_size(type_: AnyTensor) -> int:
    """Return the bytes of a weight of this type whose rows have two numbers in each byte."""
    *outer, inputs = (d for d in dims(type_) if isinstance(d, int))
    return math.prod(outer) * -(-inputs // 2)


def check_tensor(type_: Attribute) -> None:
    """Raise `VerifyException` if XNNPACK does not support a tensor of this type at all."""
    if not isinstance(type_, TensorType):
        raise VerifyException(f"{type_} is not a tensor")
    attribute = cast(Attribute, type_)
    shape = dims(attribute)
    if len(shape) > MAX_RANK:
        raise VerifyException(f"{type_} has rank {len(shape)}; XNNPACK's limit is {MAX_RANK}")
    if 0 in shape:
        raise VerifyException(f"{type_} has a dimension of size 0, which XNNPACK cannot run")
    what = datatype(attribute)
    if what is None:
        raise VerifyException(f"XNNPACK has no datatype for the elements of {type_}")
    if (params := quantization(attribute)) is not None:
        problem = quantization_problem(params, what) or type_problem(attribute)
        if problem is not None:
            raise VerifyException(f"{type_}: {problem}")


def same_everywhere(
    given: Iterable[str], made: Iterable[str], allowed: Sequence[str], name: str
) -> None:
    """Raise unless all datatypes are equal and one of `allowed`."""
    found = sorted({*given, *made})
    if len(found) != 1 or found[0] not in allowed:
        raise VerifyException(
            f"datatypes are {', '.join(found)}; {name} takes one of {', '.join(allowed)}"
        )


def same_parameters(op: XnnpackOp) -> None:
    """Raise unless all operands and results have equal quantization (the op moves
    stored integers).
    """
    elements = {element(v.type) for v in (*op.operands, *op.results)}
    if len(elements) > 1 and any(isinstance(e, UniformQuantizedType) for e in elements):
        raise VerifyException("quantized operands and results must have the same parameters")


def full_range(type_: Attribute) -> None:
    """Raise if a computed value's type is restricted to a part of int8: kernels use all of it."""
    type_quantization = quantization(type_)
    if (
        type_quantization is not None
        and (type_quantization.low, type_quantization.high) != type_quantization.default_range
    ):
        raise VerifyException(
            f"{type_}: a computed value takes every value of its storage, "
            f"not {type_quantization.low} to {type_quantization.high}"
        )


def rank(op: XnnpackOp, index: int, *allowed: int) -> tuple[Dim, ...]:
    """Return the shape of an operand that must have one of these ranks."""
    shape = dims(op.operands[index].type)
    if len(shape) not in allowed:
        wanted = " or ".join(str(r) for r in allowed)
        raise VerifyException(f"operand {index} has rank {len(shape)}, must have {wanted}")
    return shape


def to_attribute(value: Any) -> Attribute:
    """Convert a field's Python value to an attribute."""
    if isinstance(value, Attribute):
        return value
    if value is True:
        return _UNIT
    if isinstance(value, int):
        return _integer(value)
    if isinstance(value, float):
        return _float(struct.pack("<f", value))
    return _ints(tuple(int(item) for item in value))


@lru_cache(maxsize=4096)
def _ints(values: tuple[int, ...]) -> DenseArrayBase:
    return DenseArrayBase.from_list(i64, values)


@lru_cache(maxsize=4096)
def _integer(value: int) -> IntegerAttr:
    return IntegerAttr(value, i64)


@lru_cache(maxsize=4096)
def _float(packed: bytes) -> FloatAttr:
    return FloatAttr(struct.unpack("<f", packed)[0], f32)


def _element(value: SSAValue) -> Attribute:
    return element(value.type)


def _text(attribute: Attribute) -> str:
    match attribute:
        case UnitAttr():
            return ""
        case DenseArrayBase():
            values = cast("DenseArrayBase[IntegerType]", attribute).get_values()
            return "=[" + ", ".join(str(item) for item in values) + "]"
        case IntegerAttr():
            return f"={attribute.value.data}"
        case FloatAttr():
            return "=" + _float_text(attribute.value.data)
        case _:
            raise AssertionError(f"a field holds {attribute}")


def _float_text(value: float) -> str:
    """Format a float32 as the shortest decimal that parses back; it always has a point
    or a word.
    """
    if not np.isfinite(value):
        return str(value)
    text = np.format_float_positional(np.float32(value), trim="0")
    scientific = np.format_float_scientific(np.float32(value), trim="0")
    return text if len(text) <= 12 else scientific


def _parse_field(parser: Parser) -> Attribute:
    if parser.parse_optional_punctuation("=") is None:
        return _UNIT
    listed = parser.parse_optional_comma_separated_list(
        parser.Delimiter.SQUARE, lambda: parser.parse_integer(allow_boolean=False)
    )
    if listed is not None:
        return to_attribute(listed)
    negative = parser.parse_optional_punctuation("-") is not None
    if (number := parser.parse_optional_number()) is not None:
        return to_attribute(-number if negative else number)
    word = parser.parse_identifier(context_msg="a number")
    if word not in ("inf", "nan"):
        parser.raise_error(f"{word} is not a number")
    return to_attribute(-float(word) if negative else float(word))
