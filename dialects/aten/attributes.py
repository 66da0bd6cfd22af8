"""Attributes for schema arguments that are not tensors: the encoding of each Python value.

int → `i64`, bool → `i1`, float → `f64`, str / layout / device / memory format → string, a dtype →
the element type itself, None → `#aten.none`, a list of ints or floats → `array<…>`, any other list
→ an array attribute. A number that is computed at run time is `#aten.dyn`; the n-th such number in
schema order refers to the n-th operand of the op's `dynamic` group.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Iterator, Sequence
from functools import lru_cache
from typing import Any, cast

from xdsl.dialects.builtin import (
    ArrayAttr,
    BoolAttr,
    DenseArrayBase,
    FloatAttr,
    IntegerAttr,
    IntegerType,
    StringAttr,
    f64,
    i64,
)
from xdsl.ir import Attribute, ParametrizedAttribute, SSAValue, TypeAttribute
from xdsl.irdl import irdl_attr_definition, param_def

from stepwell.dialects.aten.schema import Argument
from stepwell.ir import dtypes
from stepwell.ir.diagnostics import StepwellError


@irdl_attr_definition
class NoneArg(ParametrizedAttribute):
    """`#aten.none`: the argument is None."""

    name = "aten.none"


@irdl_attr_definition
class Dynamic(ParametrizedAttribute):
    """`#aten.dyn`: the next operand of the `dynamic` group."""

    name = "aten.dyn"


@irdl_attr_definition
class ComplexArg(ParametrizedAttribute):
    """`#aten.complex<re, im>`: a complex Python number."""

    name = "aten.complex"
    real: FloatAttr = param_def()
    imaginary: FloatAttr = param_def()


NONE, DYNAMIC = NoneArg(), Dynamic()
_TRUE, _FALSE = BoolAttr.from_bool(True), BoolAttr.from_bool(False)


@lru_cache(maxsize=4096)
def _int(value: int) -> IntegerAttr:
    return IntegerAttr(value, i64)


@lru_cache(maxsize=4096)
def _ints(values: tuple[int, ...]) -> DenseArrayBase:
    return DenseArrayBase.from_list(i64, values)


def scalar_attribute(value: Any) -> Attribute:
    """Convert a Python scalar, string, element type or None to an attribute."""
    if value is None:
        return NONE
    if isinstance(value, bool):
        return _TRUE if value else _FALSE
    if isinstance(value, int):
        return _int(value)
    if isinstance(value, float):
        return FloatAttr(value, f64)
    if isinstance(value, str):
        return StringAttr(value)
    if isinstance(value, complex):
        return ComplexArg(FloatAttr(value.real, f64), FloatAttr(value.imag, f64))
    if isinstance(value, TypeAttribute):
        return cast(Attribute, value)
    if isinstance(value, SSAValue):
        return DYNAMIC
    raise StepwellError(f"{value!r} ({type(value).__name__}) is not an operator argument")


def attribute(value: Any, argument: Argument | None = None) -> Attribute:
    """Convert an argument's Python value to an attribute; SSA values become `#aten.dyn`."""
    if not isinstance(value, list | tuple):
        if argument is not None and argument.type.base == "float" and type(value) is int:
            return FloatAttr(float(value), f64)
        return scalar_attribute(value)
    items = cast(Sequence[Any], value)
    kinds = {type(item) for item in items}
    base = argument.type.base if argument is not None else None
    if kinds == {int} and base == "float":
        return DenseArrayBase.from_list(f64, [float(item) for item in items])
    if kinds == {int} or (not kinds and base != "float"):
        return _ints(tuple(items))
    if kinds <= {float}:
        return DenseArrayBase.from_list(f64, [float(item) for item in items])
    return ArrayAttr([scalar_attribute(item) for item in items])


def python_value(attr: Attribute, dynamic: Iterator[SSAValue]) -> Any:
    """Convert an argument's attribute to a Python value; each `#aten.dyn` takes the next of
    `dynamic`.
    """
    reader = in_place(attr)
    if reader is not None:
        return reader(attr)
    if isinstance(attr, Dynamic):
        return next(dynamic)
    if isinstance(attr, ArrayAttr):
        return [python_value(item, dynamic) for item in cast(ArrayAttr[Attribute], attr).data]
    if isinstance(attr, TypeAttribute):
        return attr
    raise StepwellError(f"{attr} is not an operator argument")


def in_place(attr: Attribute) -> Callable[[Any], Any] | None:
    """Return the function that converts an attribute of this class to a Python value; None if
    the attribute may contain `#aten.dyn`.
    """
    return _READERS.get(type(attr))


def _read_integer(attr: Any) -> int | bool:
    value: int = attr.value.data
    type_ = attr.type
    return bool(value) if isinstance(type_, IntegerType) and type_.width.data == 1 else value


def _read_array(attr: Any) -> list[int] | list[float]:
    if isinstance(attr.elt_type, IntegerType) and attr.elt_type.width.data == 64:
        data: bytes = attr.data.data
        return list(struct.unpack(f"<{len(data) // 8}q", data))
    return list(attr.get_values())


_READERS: dict[type[Attribute], Callable[[Any], Any]] = {
    IntegerAttr: _read_integer,
    FloatAttr: lambda attr: attr.value.data,
    StringAttr: lambda attr: attr.data,
    NoneArg: lambda attr: None,
    DenseArrayBase: _read_array,
    ComplexArg: lambda attr: complex(attr.real.value.data, attr.imaginary.value.data),
}


def count_dynamic(attr: Attribute) -> int:
    """Count the `dynamic` operands to which an argument's attribute refers."""
    if isinstance(attr, Dynamic):
        return 1
    if isinstance(attr, ArrayAttr):
        return sum(count_dynamic(item) for item in cast(ArrayAttr[Attribute], attr).data)
    return 0


_SCALAR_TYPES: dict[object, Attribute] = {
    0: dtypes.ui8,
    1: dtypes.i8,
    2: dtypes.i16,
    3: dtypes.i32,
    4: dtypes.i64,
    5: dtypes.f16,
    6: dtypes.f32,
    7: dtypes.f64,
    11: dtypes.i1,
    15: dtypes.bf16,
    23: dtypes.f8E5M2,
    24: dtypes.f8E4M3FN,
    27: dtypes.ui16,
    28: dtypes.ui32,
    29: dtypes.ui64,
    "long": dtypes.i64,
    "float": dtypes.f32,
}
"""Element types by the numbers and names of default dtypes in schemas (PyTorch,
c10/core/ScalarType.h).
"""


MEMORY_FORMATS = ("contiguous_format", "preserve_format", "channels_last", "channels_last_3d")
"""Memory formats by the number of a default in schemas (c10/core/MemoryFormat.h)."""


def scalar_type(default: object) -> Attribute | None:
    """Return the element type of a schema's default dtype; None for None."""
    return None if default is None else _SCALAR_TYPES[default]


def number_of_scalar_type(type_: Attribute) -> int | None:
    """Return PyTorch's number of an element type; None if it has none."""
    numbers = (key for key, held in _SCALAR_TYPES.items() if held == type_)
    return next((key for key in numbers if isinstance(key, int)), None)
