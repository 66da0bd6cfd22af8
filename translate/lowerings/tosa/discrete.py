"""Lowerings of boolean, bitwise and shift operators, integer quotients and remainders."""

from __future__ import annotations

import operator
from math import frexp
from typing import Any

from xdsl.ir import Attribute, SSAValue

from stepwell.ir.compat.torch.lazy_imports import torch
from stepwell.ir.dtypes import dtype_name, i1, i8, i16, i32, torch_dtype
from stepwell.ir.rewriting.rewrite import EXACT, Bound
from stepwell.ir.types import IntType
from stepwell.translate.lowerings.lowering import Out, lowerings_of, lowers, refuse
from stepwell.translate.lowerings.tosa.casts import compares
from stepwell.translate.lowerings.tosa.values import (
    WHOLE,
    Value,
    ceil,
    floor,
    maximum,
    minimum,
    no_operator,
    where,
)

NARROW = (i8, i16, i32)
"""Element types of TOSA's bitwise operators without the extension for i64."""


def _same(x: Value, other: Value) -> Value:
    return ~(x ^ other)


ARITHMETIC: dict[str, Any] = {
    "aten.mul.Tensor": operator.and_,
    "aten.minimum.default": operator.and_,
    "aten.maximum.default": operator.or_,
    "aten.ne.Tensor": operator.xor,
    "aten.eq.Tensor": _same,
}
LOGICAL: dict[str, Any] = {
    "aten.logical_not.default": operator.invert,
    "aten.logical_and.default": operator.and_,
    "aten.logical_or.default": operator.or_,
    "aten.logical_xor.default": operator.xor,
}
BITWISE: dict[str, Any] = {
    **{
        f"aten.{spelled.format(word)}.{kind}": form
        for word, form in (("and", operator.and_), ("or", operator.or_), ("xor", operator.xor))
        for spelled in ("bitwise_{}", "__{}__")
        for kind in ("Scalar", "Tensor")
    },
    "aten.bitwise_not.default": operator.invert,
}


@lowers(ARITHMETIC, to="tosa", bound=EXACT, if_dtype=[i1], sample=("4xi1", "4xi1"))
def truth_arithmetic(x: Value, other: Value, *, form: Any) -> Value | None:
    """Lower products, extrema and equality of booleans."""
    return form(x, other) if other.dtype == i1 else None


@lowers(
    {"aten.eq.Scalar": 1, "aten.ne.Scalar": 0},
    to="tosa",
    bound=EXACT,
    if_dtype=[i1],
    sample=("4xi1", 0),
)
def truth_as_number(x: Value, other: float, *, form: int) -> Value:
    """Lower an operation of a boolean and the number 0 or 1."""
    if other not in (0, 1):
        refuse("a truth value is compared with a number that is neither 0 nor 1")
    return x if other == form else ~x


@lowers(LOGICAL, to="tosa", bound=EXACT, sample=("4xf32",))
def truth(x: Value, other: Value | None = None, *, form: Any) -> Value | None:
    """Lower logical operators on numbers, in which nonzero is true."""
    values = [x] if other is None else [x, other]
    if all(value.dtype == i1 for value in values):
        return None
    for value in values:
        if not compares(value.dtype):
            refuse(f"TOSA cannot compare {dtype_name(value.dtype)}")
    return form(*(value.to(i1) for value in values))


@lowers(BITWISE, to="tosa", bound=EXACT, if_dtype=NARROW, sample=("4xi32", 6))
def bits(x: Value, other: Value | int | None = None, *, form: Any, out: Out) -> Value | None:
    """Lower `bitwise_and`, `or`, `xor`, `not` of integers, and Python's operators for them."""
    if out.dtype not in NARROW:
        return None
    if isinstance(other, SSAValue):
        refuse("the number is known only at run time")
    if isinstance(other, int) and not -(1 << 31) <= other < 1 << 31:
        refuse(f"{other} does not fit int32")
    return form(x) if other is None else form(x, other)


SHIFTS = {
    f"aten.{name}": side
    for side, word in (("left", "l"), ("right", "r"))
    for name in (
        f"bitwise_{side}_shift.Tensor_Scalar",
        f"bitwise_{side}_shift.Tensor",
        f"__{word}shift__.Tensor",
        f"__{word}shift__.Scalar",
    )
}
MOST = 31
"""The largest shift of TOSA."""


@lowers(SHIFTS, to="tosa", bound=EXACT, sample=("4xi8", 3))
def shift(x: Value, other: Any, *, form: str, out: Out) -> Value:
    """Lower `<<` and `>>` of integers of up to 32 bits, by any count.

    TOSA shifts by 0 to 31 bits. PyTorch accepts any count: a left shift by a negative count, or by
    at least the bit width, gives 0, and a right shift gives the sign. Counts known only at run time
    are therefore clamped to TOSA's range in int32, whose lowest bits the narrower types keep.
    """
    if len({x.dtype, out.dtype, other.dtype if isinstance(other, Value) else x.dtype}) > 1:
        refuse("the operands have several dtypes")
    if x.dtype not in NARROW:
        refuse(f"TOSA shifts integers of 8, 16 and 32 bits, not {dtype_name(x.dtype)}")
    if not isinstance(other, Value | int):
        refuse("the shift count is not an integer, or known only at run time")
    if isinstance(other, int) and not -(1 << 31) <= other < 1 << 31:
        refuse(f"the op shifts by {other} bits, which exceeds the 32 bits of the type")
    width = torch.iinfo(torch_dtype(x.dtype)).bits
    shifted = operator.lshift if form == "left" else operator.rshift
    places = _places(other, width)
    if places is not None:
        if 0 <= places < width:
            return shifted(x, places)
        return x & 0 if form == "left" else x >> width - 1
    assert isinstance(other, Value)
    wide, count = (value.cast(i32).of_rank(len(out.shape)) for value in (x, other))
    within = minimum(maximum(count, 0), MOST)
    if form == "right":
        return (wide >> where(count < 0, MOST, within)).cast(x.dtype)
    made = wide << within
    return where((count >= 0) & (count <= MOST), made, 0).cast(x.dtype)


def _places(other: Value | int, bits: int) -> int | None:
    """Return the shift count if it is the same constant for all elements.

    PyTorch first converts a number to the tensor's type, which keeps its lowest bits.
    """
    if isinstance(other, int):
        half = 1 << (bits - 1)
        return (other + half) % (2 * half) - half
    constant = other.constant
    return int(constant.reshape(())) if constant is not None and constant.numel() == 1 else None


# -- quotients -------------------------------------------------------------------------------

LARGEST_EXPONENT = 60
"""Divisors are within 2 ** -60 to 2 ** 60, so that nothing near them overflows."""
REMAINDERS = {
    "aten.fmod.Scalar": "trunc",
    "aten.fmod.Tensor": "trunc",
    "aten.remainder.Scalar": "floor",
    "aten.remainder.Tensor": "floor",
}


def is_power_of_two(number: float) -> bool:
    """Whether division by a number is exact: a power of two, neither too large nor too small."""
    share, exponent = frexp(float(number))
    return abs(share) == 0.5 and abs(exponent - 1) <= LARGEST_EXPONENT


@lowers(
    {
        "aten.div.Scalar_mode": None,
        "aten.div.Tensor_mode": None,
        "aten.floor_divide.default": "floor",
        "aten.floor_divide.Scalar": "floor",
        **REMAINDERS,
    },
    to="tosa",
    bound=EXACT,
    check="first",
    sample=("4xi32", 3, {"rounding_mode": "trunc"}),
)
def whole_division(
    x: Value, other: Any, *, form: str | None, op: Any, out: Out, rounding_mode: str | None = None
) -> Value | None:
    """Lower `div` with a rounding mode, `floor_divide`; `remainder` and `fmod` of integers.

    INTDIV of integers truncates: floor division subtracts one if the remainder has the other sign.
    Floats are divided only by powers of two, which is exact.
    """
    is_rest, mode = op.name in REMAINDERS, form or rounding_mode
    if is_rest and x.is_float:
        return None
    divisor = _divisor(other)
    if isinstance(divisor, SSAValue):
        refuse("the divisor is known only at run time")
    if mode is None:
        refuse("the op is a division without a rounding mode")
    if x.is_float:
        return _rounded_quotient(x, divisor, mode)
    if x.dtype not in WHOLE:
        refuse(f"TOSA cannot divide {dtype_name(x.dtype)}")
    if out.dtype != x.dtype:
        refuse("the operands are integers, but the result is not")
    if not isinstance(divisor, Value) and not fits(divisor, x.dtype):
        refuse(f"{divisor} does not fit {dtype_name(x.dtype)}")
    y = divisor if isinstance(divisor, Value) else x.like(int(divisor))
    quotient = x // y
    if mode == "trunc" and not is_rest:
        return quotient
    left = x - quotient * y
    if mode == "trunc":
        return left
    signs = (left < 0) ^ (y < 0)
    differs = left.differs(0) & signs
    return where(differs, left + y, left) if is_rest else where(differs, quotient - 1, quotient)


def _rounded_quotient(x: Value, divisor: Value | float, mode: str) -> Value:
    """Return the rounded quotient of floats by a power of two."""
    if isinstance(divisor, Value):
        refuse("the divisor is known only at run time, so the quotient may be rounded")
    if not is_power_of_two(divisor):
        refuse(f"the divisor {divisor} is not a power of two, so the quotient is rounded")
    given = x.single()
    quotient = given * (1 / divisor)
    down = floor(quotient)
    if mode == "trunc":
        up = ceil(quotient)
        return where(quotient < 0.0, up, down).cast(x.dtype)
    nothing = given - given  # PyTorch's floor of inf is NaN, as is inf - inf.
    return where(nothing.equals(0.0), down, nothing).cast(x.dtype)


def fits(number: float, dtype: Attribute) -> bool:
    """Whether an integer type can represent a number."""
    info = torch.iinfo(torch_dtype(dtype))
    return info.min <= number <= info.max


def _divisor(other: Any) -> Any:
    """Return the divisor; as a number, if it has one element or is an expanded number."""
    if isinstance(other, SSAValue):
        spelled = other.type.data if isinstance(other.type, IntType) else ""
        return int(spelled) if spelled.lstrip("-").isdigit() else other
    if not isinstance(other, Value) or other.rank > 1 or (constant := other.constant) is None:
        return other
    return constant.item() if constant.numel() == 1 else other


@lowers(
    REMAINDERS,
    to="tosa",
    bound=Bound(0.0, 5e-324, "which zero a multiple leaves hangs on the kernel"),
    sample=("2x4xf32", 2.0),
)
def remainder(x: Value, other: Any, *, form: str, op: Any) -> Value:
    """Lower `fmod` and `remainder` of floats by a power of two, which is exact.

    For another divisor the quotient is rounded, and near an integer the remainder would be off by a
    whole divisor.
    """
    if not isinstance(other, int | float):
        refuse("the divisor is known only at run time, so the quotient may be rounded")
    if not is_power_of_two(other):
        refuse(f"the divisor {other} is not a power of two, so the quotient is rounded")
    if not x.is_float:
        no_operator(op, x)
    given, divisor = x.single(), float(other)
    size = abs(divisor)
    quotient = given * (1 / size)
    whole = where(given < 0.0, ceil(quotient), floor(quotient))
    left = given - whole * size
    # A larger number is a multiple; its quotient may be inf. inf - inf gives the NaN of inf.
    nothing = given - given
    left = where(abs(given) < 2.0**24 * size, left, nothing)
    if form == "trunc":
        zero = given * 0.0
        left = where(left.equals(0.0), zero, left)
    else:
        left = where(left < 0.0 if divisor > 0 else left > 0.0, left + divisor, left)
    return left.cast(x.dtype)


RULES = lowerings_of(__name__)
