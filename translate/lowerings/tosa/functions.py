"""Build functions that TOSA lacks from its operators, with PyTorch's results for inf and NaN."""

from __future__ import annotations

from collections.abc import Callable
from math import log as logarithm
from typing import Any

from stepwell.ir.compat.torch.lazy_imports import torch
from stepwell.ir.dtypes import torch_dtype
from stepwell.translate.lowerings.lowering import known, lowerings_of, lowers
from stepwell.translate.lowerings.tosa.values import (
    Value,
    ceil,
    cos,
    exp,
    floor,
    log,
    maximum,
    minimum,
    reciprocal,
    sin,
    where,
)
from stepwell.translate.rewrites.tosa.operators.building import FLOATS

INF = float("inf")
FAR_BELOW = -20.0
"""From here down e ** x - 1 is -1 in f32 and in halves."""


def sign(x: Value) -> Value:
    """Return -1, 0 or 1."""
    negative = where(x < 0.0, x.like(-1.0), 0.0)
    return where(x > 0.0, 1.0, negative)


def trunc(x: Value) -> Value:
    """Return x truncated to an integer."""
    return where(x < 0.0, ceil(x), floor(x))


def round_(x: Value) -> Value:
    """Round to even: adding 2 ** (digits - 1) drops all fraction bits; larger x are integers."""
    whole = 1 / torch.finfo(torch_dtype(x.dtype)).eps
    size = abs(x)
    rounded = size + whole - whole
    size = where(size < whole, rounded, size)
    return where(x < 0.0, -size, size)


def log1p(x: Value) -> Value:
    """Return log(u) · x / (u - 1) for the rounded u = 1 + x: exact even if x is lost in u."""
    u = x + 1.0
    y = log(u)
    share = x * reciprocal(u - 1.0)
    near = where(u.equals(1.0), x, y * share)
    return where(x > 1.0, y, near)


def kahan(x: Value) -> Value:
    """Return e ** x - 1 as (u - 1) · x / log(u) for the rounded u = e ** x; -20 <= x <= 1."""
    u = exp(x)
    y = u - 1.0
    share = x * reciprocal(log(u))
    return where(u.equals(1.0), x, y * share)


def expm1(x: Value) -> Value:
    """Return e ** x - 1, near zero by Kahan's form."""
    y = exp(x) - 1.0
    return where(abs(x) < 1.0, kahan(x), y)


def tan(x: Value) -> Value:
    """Return the tangent as sine over cosine."""
    cosine = reciprocal(cos(x))
    return sin(x) * cosine


FORMS: dict[str, Callable[[Value], Value]] = {
    "aten.sign.default": sign,
    "aten.trunc.default": trunc,
    "aten.frac.default": lambda x: x - trunc(x),
    "aten.round.default": round_,
    "aten.log2.default": lambda x: log(x) * (1 / logarithm(2)),
    "aten.log10.default": lambda x: log(x) * (1 / logarithm(10)),
    "aten.log1p.default": log1p,
    "aten.expm1.default": expm1,
    "aten.exp2.default": lambda x: exp(x.single() * logarithm(2)).cast(x.dtype),
    "aten.tan.default": tan,
    "aten.isnan.default": lambda x: ~x.equals(x),
    "aten.isinf.default": lambda x: abs(x).equals(INF),
    "aten.isfinite.default": lambda x: abs(x) < INF,
}


@lowers(FORMS, to="tosa", dtypes=FLOATS)
def function(x: Value, *, form: Any) -> Value:
    """Lower the functions of `FORMS`."""
    return form(x)


@lowers("aten.leaky_relu.default", to="tosa", dtypes=FLOATS, sample=("2x4xf32", 0.5))
def leaky_relu(x: Value, slope: Any) -> Value:
    """Return the maximum of x and slope · x, or the minimum for a slope above one."""
    slope = float(known(slope, "negative_slope"))
    scaled = x * slope
    if slope == 0:  # The maximum of inf and inf · 0 would be NaN.
        return where(x > 0.0, x, scaled)
    return (maximum if slope <= 1 else minimum)(x, scaled)


@lowers("aten.elu.default", to="tosa", dtypes=FLOATS, sample=("2x4xf32",))
def elu(x: Value, alpha: Any, scale: Any, input_scale: Any) -> Value:
    """Return `scale · alpha · (e ** (x · input_scale) - 1)` below zero."""
    alpha = float(known(alpha, "alpha")) * float(known(scale, "scale"))
    inner = float(known(input_scale, "input_scale"))
    curve = kahan(maximum(x if inner == 1 else x * inner, FAR_BELOW))
    curve = curve if alpha == 1 else curve * alpha
    return where(x > 0.0, x if scale == 1 else x * float(scale), curve)


@lowers("aten.threshold.default", to="tosa", dtypes=FLOATS, sample=("2x4xf32", 0.5, 0.0))
def threshold(x: Value, least: Any, value: Any) -> Value:
    """Replace numbers up to a threshold by a value; NaN is kept."""
    least, value = known(least, "threshold"), known(value, "value")
    return where(x <= float(least), float(value), x)


@lowers("aten.hardshrink.default", to="tosa", dtypes=FLOATS, sample=("2x4xf32",))
def hardshrink(x: Value, least: Any) -> Value:
    """Replace small numbers by zero."""
    return where(abs(x) <= float(known(least, "lambd")), 0.0, x)


@lowers("aten.nan_to_num.default", to="tosa", dtypes=FLOATS, sample=("2x4xf32",))
def nan_to_num(x: Value, nan: Any, most: Any, least: Any) -> Value:
    """Replace NaN and infinities by numbers, by default 0 and the type's limits."""
    info = torch.finfo(torch_dtype(x.dtype))
    y = where(x.equals(x), x, float(known(nan, "nan") or 0))
    for given, infinity, end in (
        (known(most, "posinf"), INF, info.max),
        (known(least, "neginf"), -INF, info.min),
    ):
        y = where(x.equals(infinity), end if given is None else float(given), y)
    return y


RULES = lowerings_of(__name__)
