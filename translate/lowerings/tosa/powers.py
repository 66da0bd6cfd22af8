"""Lower powers and roots to operators that are defined for every number.

POW is undefined for a negative base and for 0 ** 0: the reference model aborts. Integer exponents
become products. Other exponents of a base that may be negative become the exponential of a
logarithm, which is what the model's POW computes; it is NaN where PyTorch's power is. Halves are
widened where a product would round twice.
"""

from __future__ import annotations

from math import isfinite
from math import log as logarithm
from typing import Any

from stepwell.ir.compat.torch.lazy_imports import torch
from stepwell.ir.dtypes import i8, i16, i32, torch_dtype
from stepwell.translate.lowerings.lowering import Out, lowerings_of, lowers, refuse
from stepwell.translate.lowerings.tosa.values import (
    WHOLE,
    Value,
    exp,
    floor,
    log,
    needs_floats,
    reciprocal,
    rsqrt,
    where,
)
from stepwell.translate.rewrites.tosa.operators.sizes import is_known

LARGEST_EXPONENT = 64
"""Integer exponents up to this one are products; n roundings add up to n / 2 ulp."""


@lowers("aten.sqrt.default", to="tosa", sample=("2x4xf32",))
def root_(x: Value, *, op: Any, out: Out) -> Value:
    """Lower `sqrt`, which is NaN for negative numbers."""
    _fits(op, out, x)
    return root(x)


@lowers("aten.pow.Tensor_Scalar", to="tosa", sample=("2x4xf32", 4))
def power_(x: Value, exponent: Any, *, op: Any, out: Out) -> Value:
    """Lower `x ** n` to products, powers of a root, or an exponential."""
    _has_one_type(out, x)
    if not isinstance(exponent, int | float) or not isfinite(exponent):
        refuse("the exponent is not finite, or known only at run time")
    if exponent == 0 and not is_known(x.shape):
        refuse("the exponent is 0 and the shape is symbolic")
    if is_whole(exponent) and abs(exponent) > LARGEST_EXPONENT:
        refuse(f"the exponent {exponent} is larger than {LARGEST_EXPONENT}")
    if exponent == 0:
        return x.tensor(torch.ones(x.shape, dtype=torch_dtype(x.dtype)))
    if x.dtype in (*WHOLE, i8, i16):  # Products in 32 or more bits wrap around like narrow ones.
        wide = x if x.dtype in WHOLE else x.cast(i32)
        return whole(wide, int(exponent)).cast(x.dtype)
    _fits(op, out, x)
    if exponent in (-1, 1, 2):
        return whole(x, int(exponent))
    return power(x.single(), float(exponent)).cast(x.dtype)


@lowers("aten.pow.Scalar", to="tosa", sample=(2, "2x4xf32"))
def power_of_number(base: Any, x: Value, *, op: Any, out: Out) -> Value:
    """Lower `n ** x` to an exponential."""
    _has_one_type(out, x)
    if not isinstance(base, int | float) or not 0 < base < float("inf") or base == 1:
        refuse("the base is not a finite positive number, or is 1")
    _fits(op, out, x)
    return exp(x.single() * logarithm(float(base))).cast(x.dtype)


@lowers("aten.pow.Tensor_Tensor", to="tosa", sample=("2x4xf32", "2x4xf32"))
def power_of_values(x: Value, y: Value, *, op: Any, out: Out) -> Value:
    """Lower `x ** y` to e ** (y · log |x|); odd integer y keep a negative base's sign.

    The power of a finite negative base is NaN if y is not an integer; a power of -inf equals that
    of inf.
    """
    _fits(op, out, x, y)
    base, exponent = x.single(), y.single()
    size = abs(base)
    made = exp(exponent * log(size))
    one = made.like(1.0)
    half = exponent * 0.5
    is_even = floor(half).equals(half)
    is_integer = floor(exponent).equals(exponent)
    made = where(size.equals(1.0), one, made)
    signed = where(is_even, made, -made)
    defined = where(is_integer, signed, where(size.equals(float("inf")), made, float("nan")))
    made = where(base < 0.0, defined, made)
    return where(exponent.equals(0.0), one, made).cast(x.dtype)


def _has_one_type(out: Out, *values: Value) -> None:
    if len({out.dtype, *(value.dtype for value in values)}) > 1:
        refuse("operands and result have several dtypes")


def _fits(op: Any, out: Out, *values: Value) -> None:
    """Refuse operands and results that are not floats of one type."""
    _has_one_type(out, *values)
    needs_floats(op, values[0])


def is_whole(number: float) -> bool:
    """Whether a number is an integer."""
    return float(number).is_integer()


def root(x: Value) -> Value:
    """Return √x = 1 / (1 / √x): 0 for 0, inf for inf, NaN for negative numbers."""
    return reciprocal(rsqrt(x))


def power(x: Value, exponent: float) -> Value:
    """Return x ** exponent in f32: products, powers of a root, or e ** (exponent · log x)."""
    if is_whole(exponent) and abs(exponent) <= LARGEST_EXPONENT:
        return whole(x, int(exponent))
    if is_whole(2 * exponent) and abs(exponent) <= LARGEST_EXPONENT:
        return whole(root(x), int(2 * exponent))
    return exp(log(x) * exponent)


def whole(x: Value, exponent: int) -> Value:
    """Return x ** exponent by squaring; no square is larger than the result."""
    result: Value | None = None
    square, left = x, abs(exponent)
    while True:
        if left & 1:
            result = square if result is None else result * square
        left >>= 1
        if not left:
            break
        square = square * square
    assert result is not None
    return reciprocal(result) if exponent < 0 else result


RULES = lowerings_of(__name__)
