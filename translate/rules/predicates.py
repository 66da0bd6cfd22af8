"""Conditions that several rules use. Each is named as a fact about its arguments."""

from __future__ import annotations

from collections.abc import Sequence
from math import frexp, isfinite

from xdsl.ir import Attribute, SSAValue

from stepwell.ir import dtypes
from stepwell.ir.dtypes import f32, f64, i1
from stepwell.ir.types import element, is_known


def is_float(of: Attribute) -> bool:
    """Whether an element type is a floating-point type."""
    return dtypes.is_float(of)


def is_single_or_double(of: Attribute) -> bool:
    """Whether PyTorch computes in an element type itself; halves are computed in f32."""
    return of in (f32, f64)


def is_single(of: Attribute) -> bool:
    """Whether an element type is f32."""
    return of == f32


def is_bool(value: SSAValue) -> bool:
    """Whether a value is a tensor of booleans."""
    return element(value.type) == i1


def is_one(value: object) -> bool:
    """Whether a number is 1, as an integer or a float."""
    return is_number(value) and value == 1


def is_zero(value: object) -> bool:
    """Whether a number is 0, as an integer or a float of either sign."""
    return is_number(value) and value == 0


def are_zeros(values: Sequence[object]) -> bool:
    """Whether all numbers are zero."""
    return all(is_zero(value) for value in values)


def are_ones(values: Sequence[object]) -> bool:
    """Whether all numbers are one."""
    return all(is_one(value) for value in values)


def is_true(value: object) -> bool:
    """Whether a flag is set."""
    return value is True


def is_negative(value: object) -> bool:
    """Whether a number is below 0."""
    return isinstance(value, int | float) and value < 0


def is_positive(value: object) -> bool:
    """Whether a number is above 0."""
    return isinstance(value, int | float) and value > 0


def is_number(value: object) -> bool:
    """Whether a value is a real number, neither bool nor complex."""
    return isinstance(value, int | float) and not isinstance(value, bool)


def is_finite(value: object) -> bool:
    """Whether a value is a real number that is neither infinite nor NaN."""
    return isinstance(value, int | float) and isfinite(value)


def is_power_of_two(value: object) -> bool:
    """Whether a number is ±2ᵏ."""
    return is_number(value) and isfinite(value) and abs(frexp(value)[0]) == 0.5  # pyright: ignore


def is_unread(*values: SSAValue) -> bool:
    """Whether the values are unused."""
    return all(value.first_use is None for value in values)


def reads_once(value: SSAValue) -> bool:
    """Whether a value has exactly one use."""
    return value.has_one_use()


def same_type(one: SSAValue, other: SSAValue) -> bool:
    """Whether two values provably have one shape and element type."""
    return one.type == other.type and is_known(one.type)


def same_element(*values: SSAValue) -> bool:
    """Whether all values have one element type."""
    return len({element(value.type) for value in values}) == 1


def are_of_one_type(*values: SSAValue) -> bool:
    """Whether the types of all values are the same; their sizes may be unknown."""
    return len({value.type for value in values}) == 1
