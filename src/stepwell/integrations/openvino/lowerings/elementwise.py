"""Lowerings of elementwise operators, each to the operator of OpenVINO of the same meaning."""

from __future__ import annotations

from typing import Any

import torch
from xdsl.ir import Attribute

from stepwell.integrations.openvino.lowerings.values import APPROXIMATE, Value, loses_nan
from stepwell.ir.dtypes import element_type, f32, i1, torch_dtype
from stepwell.ir.rewriting.rewrite import EXACT
from stepwell.ir.sizes.size import Size
from stepwell.translate.decompositions.values import broadcast
from stepwell.translate.lowerings.lowering import Out, known, lowerings_of, lowers, refuse

UNARY = {
    "neg": "Negative",
    "ceil": "Ceiling",
    "isnan": "IsNaN",
    "isinf": "IsInf",
    "silu": "Swish",
    **{
        name: name.title()
        for name in "abs acos acosh asin asinh atan atanh cos cosh erf floor log sigmoid sin sinh "
        "sqrt tan tanh".split()
    },
}
LOSING = {
    "relu": "Relu",
    "exp": "Exp",
    "sign": "Sign",
    "hardswish": "HSwish",
    "hardsigmoid": "HSigmoid",
}
"""Functions whose kernels return another number for NaN."""
ARITHMETIC = {"add": "Add", "sub": "Subtract", "mul": "Multiply", "div": "Divide"}
COMPARISONS = {
    "eq": ("Equal", False),
    "ne": ("NotEqual", False),
    "lt": ("Less", False),
    "le": ("LessEqual", False),
    "gt": ("Less", True),  # `Greater` of a NaN is true.
    "ge": ("LessEqual", True),
}
LOGIC = {
    f"aten.{name}": operator
    for word, operator in (("and", "LogicalAnd"), ("or", "LogicalOr"), ("xor", "LogicalXor"))
    for name in (f"logical_{word}.default", f"bitwise_{word}.Tensor", f"__{word}__.Tensor")
}


def _overloads(table: dict[str, Any], *overloads: str) -> dict[str, Any]:
    return {f"aten.{name}.{o}": form for name, form in table.items() for o in overloads}


@lowers(_overloads(UNARY, "default"), to="openvino")
def unary(x: Value, *, form: str, out: Out) -> Value:
    """Lower a function of one tensor."""
    x = x.cast(f32) if out.dtype == f32 else x
    return x.op(form, dtype=out.dtype)


@lowers(_overloads(LOSING, "default"), to="openvino", deviation=loses_nan)
def unary_of_numbers(x: Value, *, form: str) -> Value:
    """Lower a function of one tensor whose kernel returns a number for NaN."""
    return x.op(form)


@lowers(
    {"aten.softplus.default": "SoftPlus", "aten.mish.default": "Mish"},
    to="openvino",
    bound=APPROXIMATE,
)
def approximated(x: Value, *, form: str, op: Any) -> Value:
    """Lower a function that OpenVINO approximates."""
    if form == "SoftPlus" and (op.arg("beta") != 1 or op.arg("threshold") != 20):
        refuse("OpenVINO's softplus has neither a factor nor a threshold")
    return x.op(form)


@lowers("aten.round.default", to="openvino", bound=EXACT)
def round_(x: Value) -> Value:
    """Lower to the rounding of halves to even numbers."""
    return x.op("Round", mode="half_to_even")


@lowers("aten.trunc.default", to="openvino", bound=EXACT)
def trunc(x: Value) -> Value:
    """Lower to the rounding toward zero: up below zero, else down."""
    return x.binary("Less", 0.0, i1).op(
        "Select", x.op("Ceiling"), x.op("Floor"), shape=x.shape, dtype=x.dtype
    )


@lowers("aten.rsqrt.default", to="openvino")
def rsqrt(x: Value) -> Value:
    """Lower to a division by the root."""
    return x.like(1.0).binary("Divide", x.op("Sqrt"))


@lowers("aten.gelu.default", to="openvino")
def gelu(x: Value, *, approximate: str) -> Value:
    """Lower both forms."""
    return x.op("Gelu", approximation_mode="TANH" if approximate == "tanh" else "ERF")


@lowers("aten.elu.default", to="openvino")
def elu(x: Value, alpha: float, scale: float, input_scale: float) -> Value:
    """Lower an elu without scales."""
    if known(scale, "scale") != 1 or known(input_scale, "input_scale") != 1:
        refuse("OpenVINO's elu scales neither input nor output")
    return x.op("Elu", alpha=float(known(alpha, "alpha")))


@lowers("aten.leaky_relu.default", to="openvino")
def leaky_relu(x: Value, negative_slope: float) -> Value:
    """Lower to a PRelu of one slope."""
    return x.op("PRelu", torch.tensor([float(known(negative_slope, "the slope"))]))


@lowers("aten.prelu.default", "aten._prelu_kernel.default", to="openvino")
def prelu(x: Value, slope: Value) -> Value:
    """Lower slopes on the second axis, or one."""
    return x.op("PRelu", slope if slope.rank else slope.reshape(1))


@lowers("aten.clamp.default", to="openvino", deviation=loses_nan, sample=("2x4xf32", -1.0, 1.0))
def clamp(x: Value, least: float | None, most: float | None) -> Value:
    """Lower to Relu, to Clamp of floats between two numbers, or to Maximum and Minimum."""
    low, high = known(least, "a bound"), known(most, "a bound")
    if x.dtype == f32 and high is None and low == 0:
        return x.op("Relu")
    if x.dtype == f32 and low is not None and high is not None:
        return x.op("Clamp", min=float(min(low, high)), max=float(high))
    if x.dtype != f32 and not all(isinstance(side, int | None) for side in (low, high)):
        refuse("integers are clamped between floats")
    x = x if low is None else x.like(low).binary("Maximum", x)
    return x if high is None else x.like(high).binary("Minimum", x)


EXTREMES = {
    "aten.maximum.default": "Maximum",
    "aten.max.other": "Maximum",
    "aten.minimum.default": "Minimum",
    "aten.min.other": "Minimum",
}


@lowers(EXTREMES, to="openvino", deviation=loses_nan, sample=("2x4xf32", "2x4xf32"))
def extreme(x: Value, other: Value, *, form: str, out: Out) -> Value:
    """Lower the greater or the less of two numbers; of NaN and a number, the second is returned."""
    return x.cast(out.dtype).binary(form, other.cast(out.dtype))


@lowers(
    {**_overloads(ARITHMETIC, "Tensor", "Scalar"), "aten.pow.Tensor_Tensor": "Power"},
    {"aten.pow.Tensor_Scalar": "Power"},
    to="openvino",
)
def arithmetic(x: Value, other: Value | float, *, form: str, op: Any, out: Out) -> Value:
    """Lower to the operator on operands of the result's element type."""
    alpha = op.arg("alpha") if "alpha" in op.SCHEMA.by_name else 1
    if out.dtype == i1:
        refuse("OpenVINO computes with no truth values")
    x = x.cast(out.dtype)
    held = other.cast(out.dtype) if isinstance(other, Value) else known(other, "the number")
    if known(alpha, "alpha") != 1:
        held = held * alpha
    return x.binary(form, held)


@lowers("aten.rsub.Scalar", to="openvino")
def rsub(x: Value, other: float, *, out: Out, alpha: float = 1) -> Value:
    """Lower a number minus a tensor."""
    x = x.cast(out.dtype) if known(alpha, "alpha") == 1 else x.cast(out.dtype) * alpha
    return x.binary("Subtract", known(other, "the number"), swapped=True)


@lowers("aten.pow.Scalar", to="openvino")
def power_of_number(base: float, x: Value, *, out: Out) -> Value:
    """Lower a number to the power of a tensor."""
    return x.cast(out.dtype).binary("Power", known(base, "the number"), swapped=True)


@lowers(_overloads(COMPARISONS, "Tensor", "Scalar"), to="openvino", bound=EXACT)
def comparison(x: Value, other: Value | float, *, form: tuple[str, bool], out: Out) -> Value:
    """Lower a comparison of operands of the promoted element type."""
    held = other if isinstance(other, Value) else known(other, "the number")
    common = _promoted(x, held)
    held = held.cast(common) if isinstance(held, Value) else held
    return x.cast(common).binary(form[0], held, i1, swapped=form[1])


def _promoted(x: Value, other: Value | float) -> Attribute:
    """Return the element type in which PyTorch compares."""

    def sample(value: Value | float) -> Any:
        if not isinstance(value, Value):
            return value
        shape = [2 if isinstance(size, Size) else size for size in value.shape]
        return torch.empty(shape, dtype=torch_dtype(value.dtype), device="meta")

    return element_type(torch.result_type(sample(x), sample(other)))


@lowers(LOGIC, to="openvino", bound=EXACT, sample=("4xi1", "4xi1"))
def logic(x: Value, other: Value, *, form: str) -> Value:
    """Lower operators of truth values."""
    if {x.dtype, other.dtype} != {i1}:
        refuse("the operands are no truth values")
    return x.binary(form, other)


@lowers(
    "aten.logical_not.default", "aten.bitwise_not.default", to="openvino", bound=EXACT,
    sample=("4xi1",),
)  # fmt: skip
def logical_not(x: Value) -> Value:
    """Lower the negation of truth values."""
    if x.dtype != i1:
        refuse("the operand is no truth value")
    return x.op("LogicalNot")


@lowers("aten.to.dtype", "aten._to_copy.default", to="openvino", sample=("2x4xf32", torch.bool))
def cast(x: Value, *, op: Any, out: Out) -> Value:
    """Lower to a conversion; a number is true if it is not 0."""
    if out.dtype == i1:
        return x.binary("NotEqual", 0, i1)
    return x.cast(out.dtype)


@lowers("aten.where.self", to="openvino", bound=EXACT, sample=("4xi1", "2x4xf32", "4xf32"))
def where(condition: Value, a: Value, other: Value, *, out: Out) -> Value:
    """Lower to Select."""
    a, other = a.cast(out.dtype), other.cast(out.dtype)
    return condition.op("Select", a, other, shape=out.shape, dtype=out.dtype)


@lowers("aten.masked_fill.Scalar", to="openvino", bound=EXACT, sample=("2x4xf32", "4xi1", 0.0))
def masked_fill(x: Value, mask: Value, value: float, *, out: Out) -> Value:
    """Lower to Select between a number and the tensor."""
    held = x.like(known(value, "the number"))
    return mask.op("Select", held, x, shape=broadcast(mask.shape, x.shape), dtype=out.dtype)


RULES = lowerings_of(__name__)
