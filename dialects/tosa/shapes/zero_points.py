"""Checks of zero points and other parameters of one element."""

from __future__ import annotations

from xdsl.ir import Attribute, SSAValue

from stepwell.dialects.tosa.constants import tensor_of_dense
from stepwell.dialects.tosa.meaning.values import element_of, run_dtype
from stepwell.dialects.tosa.shapes.rules import need, ranked
from stepwell.dialects.tosa.structural import ConstOp
from stepwell.ir.core import weight_key
from stepwell.ir.declared.inference import stored
from stepwell.ir.dtypes import i8, i16
from stepwell.ir.sizes.size import Size
from stepwell.ir.types import WeightAttr


def constant_numbers(value: SSAValue) -> list[float]:
    """Return the numbers of an inline CONST; an empty list if unknown."""
    owner = value.owner
    if not isinstance(owner, ConstOp) or isinstance(owner.values, WeightAttr):
        return []
    return [float(n) for n in tensor_of_dense(owner.values, run_dtype(element_of(value))).flatten()]


def constant_number(value: SSAValue) -> float | None:
    """Return the number of an inline CONST of one element; None if unknown."""
    numbers = constant_numbers(value)
    return numbers[0] if len(numbers) == 1 else None


def zero_point(value: SSAValue) -> float | None:
    """Return the number of a constant of one element, inline or in the store; None if unknown."""
    key = weight_key(value)
    held = None if key is None else stored(key)
    return constant_number(value) if held is None else float(held)


def need_zero_point(
    value: SSAValue, attribute: Attribute, what: str, *, unsigned: bool = False
) -> None:
    """Check a zero point: one element of its operand's type, zero unless that is i8 or an unsigned
    i16.
    """
    (size,) = ranked(value, 1, f"the {what} zero point")
    need(isinstance(size, Size) or size == 1, f"there are {size} {what} zero points, not one")
    element = element_of(value)
    need(element == attribute, "the {0} zero point is {1}, the {0} {2}", what, element, attribute)
    number = zero_point(value)
    if number is None:
        return
    if attribute != i8 and not (unsigned and attribute == i16):
        fact = "the {} zero point of {} must be 0, it is {:g}"
        need(number == 0, fact, what, attribute, number)
    elif attribute == i16:
        fits = number in (0, 32768, -32768)
        need(fits, f"the {what} zero point of an unsigned i16 is {number:g}")
