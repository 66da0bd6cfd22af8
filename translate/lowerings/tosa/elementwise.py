"""Lowerings of elementwise ops: one TOSA operator where it exists, else a decomposition."""

from __future__ import annotations

import operator
from typing import Any

from stepwell.dialects.tosa import generated as t
from stepwell.dialects.tosa.attributes import NanModeAttr
from stepwell.ir.dtypes import i1, i32
from stepwell.ir.rewriting.rewrite import EXACT
from stepwell.translate.lowerings.lowering import Out, known, lowerings_of, lowers, refuse
from stepwell.translate.lowerings.tosa.values import (
    WHOLE,
    Value,
    clamp,
    erf,
    maximum,
    minimum,
    no_operator,
    tanh,
    where,
)
from stepwell.translate.rewrites.tosa.operators.building import FLOATS

UNARY = {
    **{
        f"aten.{name}.default": getattr(t, f"{name.title()}Op")
        for name in "abs ceil cos erf exp floor log reciprocal rsqrt sigmoid sin tanh".split()
    },
    "aten.logical_not.default": t.LogicalNotOp,
    "aten.bitwise_not.default": t.LogicalNotOp,
}
LOGICAL = {
    f"aten.{name}": cls
    for word, cls in (("and", t.LogicalAndOp), ("or", t.LogicalOrOp), ("xor", t.LogicalXorOp))
    for name in (f"logical_{word}.default", f"bitwise_{word}.Tensor", f"__{word}__.Tensor")
}
BINARY: dict[str, Any] = {
    "aten.add.Tensor": operator.add,
    "aten.sub.Tensor": operator.sub,
    "aten.mul.Tensor": operator.mul,
    "aten.maximum.default": maximum,
    "aten.minimum.default": minimum,
    "aten.eq.Tensor": Value.equals,
    "aten.ne.Tensor": Value.differs,
    "aten.gt.Tensor": operator.gt,
    "aten.ge.Tensor": operator.ge,
    "aten.lt.Tensor": operator.lt,
    "aten.le.Tensor": operator.le,
}


def _less(x: Value, number: float) -> Value:
    return number - x


SCALAR: dict[str, Any] = {
    "aten.add.Scalar": operator.add,
    "aten.sub.Scalar": operator.sub,
    "aten.rsub.Scalar": _less,
    "aten.mul.Scalar": operator.mul,
    "aten.eq.Scalar": Value.equals,
    "aten.ne.Scalar": Value.differs,
    "aten.gt.Scalar": operator.gt,
    "aten.ge.Scalar": operator.ge,
    "aten.lt.Scalar": operator.lt,
    "aten.le.Scalar": operator.le,
}


@lowers(UNARY, to="tosa", sample=("2x4xf32",))
def elementwise(x: Value, *, form: Any) -> Value:
    """Lower `abs`, `exp`, `tanh`, … to the operator of that name."""
    return x.unary(form)


@lowers(LOGICAL, to="tosa", sample=("4xi1", "4xi1"))
def logic(x: Value, other: Value, *, form: Any) -> Value:
    """Lower `logical_and`, `&` and similar ops of booleans."""
    return x.binary(form, other)


@lowers(BINARY, to="tosa")
def binary(x: Value, other: Value, *, form: Any, alpha: float = 1) -> Value:
    """Lower arithmetic and comparisons of two tensors."""
    if alpha != 1:
        refuse(f"alpha is {alpha}, not 1")
    return form(x, other)


@lowers(SCALAR, to="tosa")
def with_number(x: Value, other: float, *, form: Any, out: Out, alpha: float = 1) -> Value:
    """Lower arithmetic and comparisons of a tensor and a number."""
    if alpha != 1:
        refuse(f"alpha is {alpha}, not 1")
    number = float(known(other, "other"))
    if x.dtype in WHOLE:
        reach = 31 if x.dtype == i32 else 53
        if out.dtype not in (x.dtype, i1):
            refuse("the operands are integers, but the result is not")
        if not number.is_integer():
            refuse("integers are compared with a fraction")
        if not -(1 << reach) <= number < 1 << reach:
            refuse(f"{other} does not fit {reach + 1} bits")
    return form(x, number)


@lowers("aten.neg.default", to="tosa", dtypes=(*FLOATS, *WHOLE))
def neg(x: Value) -> Value:
    """Lower to NEGATE for floats, and to 0 - x for integers."""
    return -x


@lowers("aten.hardswish.default", to="tosa", dtypes=FLOATS)
def hardswish(x: Value) -> Value:
    """Lower to `x / 6 · clamp(x + 3, 0, 6)`."""
    gate = clamp(x + 3.0, 0.0, 6.0)
    return x * (1 / 6) * gate


@lowers("aten.gelu.default", to="tosa", dtypes=FLOATS)
def gelu(x: Value, *, approximate: str) -> Value:
    """Lower to x/2 · (1 + erf(x/√2)), or the tanh form; halves are computed in f32."""
    dtype, x = x.dtype, x.single()
    half = x * 0.5
    if approximate == "tanh":
        curve = tanh((x * x * (0.044715 * 0.7978845608028654) + 0.7978845608028654) * x)
    else:
        curve = erf(x * 0.7071067811865476)
    return (half * curve + half).cast(dtype)


@lowers("aten.div.Tensor", "aten.div.Scalar", to="tosa")
def division(x: Value, other: Value | float) -> Value:
    """Lower `a / b` to a · (1/b); a constant divisor is inverted at compile time."""
    divisor = other if isinstance(other, Value) else known(other, "the divisor")
    if not x.is_float or (isinstance(divisor, Value) and not divisor.is_float):
        refuse("integer division has no lowering")
    return x / divisor


@lowers("aten.clamp.default", to="tosa", sample=("2x4xf32", -1.0, 1.0))
def clamp_(x: Value, least: float | None, most: float | None, *, op: Any) -> Value:
    """Lower to CLAMP of floats between numbers, or to MAXIMUM and MINIMUM of integers."""
    low, high = (known(side, "a bound") for side in (least, most))
    if x.is_float:
        highest = float("inf") if high is None else float(high)
        lowest = -float("inf") if low is None else float(low)
        return clamp(x, min(lowest, highest), highest)  # In PyTorch the upper bound wins.
    is_whole = all(side is None or isinstance(side, int) for side in (low, high))
    if x.dtype not in WHOLE or not is_whole:
        no_operator(op, x)
    x = x if low is None else maximum(x, low)
    return x if high is None else minimum(x, high)


@lowers("aten.where.self", to="tosa", sample=("4xi1", "2x4xf32", "4xf32"))
def where_(condition: Value, a: Value, other: Value) -> Value:
    """Lower to SELECT on operands of one rank."""
    if a.dtype != other.dtype:
        refuse("the operands have several dtypes")
    return where(condition, a, other)


@lowers("aten.masked_fill.Scalar", to="tosa", bound=EXACT, sample=("2x4xf32", "4xi1", 0.0))
def masked_fill(x: Value, mask: Value, value: float) -> Value:
    """Lower to a SELECT between a number and the tensor."""
    return where(mask, known(value, "the value"), x)


NUMBERS = {"aten.fmax.default": t.MaximumOp, "aten.fmin.default": t.MinimumOp}


@lowers(NUMBERS, to="tosa", dtypes=FLOATS)
def of_numbers(x: Value, other: Value, *, form: Any, out: Out) -> Value:
    """Lower `fmax` and `fmin`: of a number and NaN, the number is returned."""
    if x.dtype != other.dtype:
        refuse("the operands have several dtypes")
    one, another = (side.of_rank(len(out.shape)) for side in (x, other))
    return one.made(form, out.shape, another, nan_mode=NanModeAttr("IGNORE"))


RULES = lowerings_of(__name__)
