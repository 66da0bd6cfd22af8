"""Functions of one tensor that TOSA has no operator for, in operators, inf and NaN included.

Before:
    %y = aten.leaky_relu.default(%x, 0.5) : (tensor<2x4xf32>) -> tensor<2x4xf32>
After:
    %0 = tosa.mul %x, dense<0.5>, dense<0> : (tensor<2x4xf32>, tensor<1x1xf32>, tensor<1xi8>) -> tensor<2x4xf32>
    %y = tosa.maximum %x, %0 : (tensor<2x4xf32>, tensor<2x4xf32>) -> tensor<2x4xf32>
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from math import log
from typing import ClassVar

import torch
from xdsl.ir import Operation, SSAValue

from stepwell.dialects import aten
from stepwell.dialects.aten.op import SchemaOp
from stepwell.dialects.tosa import generated as t
from stepwell.ir.dtypes import torch_dtype
from stepwell.ir.rewriting import Refusal
from stepwell.ir.types import element
from stepwell.translate.rewrites.tosa.operators.building import Builder, narrowed
from stepwell.translate.rewrites.tosa.operators.choices import at_least, equal, greater, select
from stepwell.translate.rewrites.tosa.operators.lowering import LowerToTosa, is_number, needs_floats

Form = Callable[[SchemaOp, SSAValue, Builder], SSAValue]


def _leaky_relu(op: SchemaOp, x: SSAValue, b: Builder) -> SSAValue:
    slope = float(op.arg("negative_slope"))
    scaled = b.scalar(t.MulOp, x, slope)
    if slope == 0:  # the maximum of inf and inf · 0 would be NaN
        return select(greater(x, 0.0, b), x, scaled, x, b)
    return b.binary(t.MaximumOp if slope <= 1 else t.MinimumOp, x, scaled)


FAR_BELOW = -20.0
"""From here down e ** x - 1 is -1 in f32, and in halves."""


def _elu(op: SchemaOp, x: SSAValue, b: Builder) -> SSAValue:
    alpha = float(op.arg("alpha"))
    curve = _kahan(b.scalar(t.MaximumOp, x, FAR_BELOW), b)
    curve = curve if alpha == 1 else b.scalar(t.MulOp, curve, alpha)
    return select(greater(x, 0.0, b), x, curve, x, b)


def _threshold(op: SchemaOp, x: SSAValue, b: Builder) -> SSAValue:
    below = at_least(float(op.arg("threshold")), x, b)
    return select(below, float(op.arg("value")), x, x, b)


def _hardshrink(op: SchemaOp, x: SSAValue, b: Builder) -> SSAValue:
    small = at_least(float(op.arg("lambd")), b.unary(t.AbsOp, x), b)
    return select(small, 0.0, x, x, b)


def _sign(op: SchemaOp, x: SSAValue, b: Builder) -> SSAValue:
    negative = select(greater(0.0, x, b), -1.0, 0.0, x, b)
    return select(greater(x, 0.0, b), 1.0, negative, x, b)


def _trunc(op: SchemaOp, x: SSAValue, b: Builder) -> SSAValue:
    return select(greater(0.0, x, b), b.unary(t.CeilOp, x), b.unary(t.FloorOp, x), x, b)


def _frac(op: SchemaOp, x: SSAValue, b: Builder) -> SSAValue:
    return b.binary(t.SubOp, x, _trunc(op, x, b))


def _round(op: SchemaOp, x: SSAValue, b: Builder) -> SSAValue:
    """To even: adding 2 ** (digits - 1) leaves no bit below one; larger numbers are whole."""
    whole = 1 / torch.finfo(torch_dtype(element(x.type))).eps
    size = b.unary(t.AbsOp, x)
    rounded = b.scalar(t.SubOp, b.scalar(t.AddOp, size, whole), whole)
    size = select(greater(whole, size, b), rounded, size, x, b)
    return select(greater(0.0, x, b), b.negate(size), size, x, b)


def _logarithm(base: float) -> Form:
    return lambda op, x, b: b.scalar(t.MulOp, b.unary(t.LogOp, x), 1 / log(base))


def _log1p(op: SchemaOp, x: SSAValue, b: Builder) -> SSAValue:
    """log(u) · x / (u - 1) for u = 1 + x, as rounded: exact where x is lost in u."""
    u = b.scalar(t.AddOp, x, 1.0)
    y = b.unary(t.LogOp, u)
    share = b.binary(t.MulOp, x, b.unary(t.ReciprocalOp, b.scalar(t.SubOp, u, 1.0)))
    near = select(equal(u, 1.0, b), x, b.binary(t.MulOp, y, share), x, b)
    return select(greater(x, 1.0, b), y, near, x, b)


def _kahan(x: SSAValue, b: Builder) -> SSAValue:
    """E ** x - 1 as (u - 1) · x / log(u) for u = e ** x, as rounded; -20 <= x <= 1."""
    u = b.unary(t.ExpOp, x)
    y = b.scalar(t.SubOp, u, 1.0)
    share = b.binary(t.MulOp, x, b.unary(t.ReciprocalOp, b.unary(t.LogOp, u)))
    return select(equal(u, 1.0, b), x, b.binary(t.MulOp, y, share), x, b)


def _expm1(op: SchemaOp, x: SSAValue, b: Builder) -> SSAValue:
    """Kahan's form near zero, e ** x - 1 elsewhere."""
    y = b.scalar(t.SubOp, b.unary(t.ExpOp, x), 1.0)
    return select(greater(1.0, b.unary(t.AbsOp, x), b), _kahan(x, b), y, x, b)


def _exp2(op: SchemaOp, x: SSAValue, b: Builder) -> SSAValue:
    return narrowed(b.unary(t.ExpOp, b.scalar(t.MulOp, b.single(x), log(2))), x, b)


def _tan(op: SchemaOp, x: SSAValue, b: Builder) -> SSAValue:
    cosine = b.unary(t.ReciprocalOp, b.unary(t.CosOp, x))
    return b.binary(t.MulOp, b.unary(t.SinOp, x), cosine)


def _isnan(op: SchemaOp, x: SSAValue, b: Builder) -> SSAValue:
    return b.unary(t.LogicalNotOp, equal(x, x, b))


def _isinf(op: SchemaOp, x: SSAValue, b: Builder) -> SSAValue:
    return equal(b.unary(t.AbsOp, x), float("inf"), b)


def _isfinite(op: SchemaOp, x: SSAValue, b: Builder) -> SSAValue:
    return greater(float("inf"), b.unary(t.AbsOp, x), b)


def _nan_to_num(op: SchemaOp, x: SSAValue, b: Builder) -> SSAValue:
    info = torch.finfo(torch_dtype(element(x.type)))
    ends = (("posinf", float("inf"), info.max), ("neginf", float("-inf"), info.min))
    y = select(equal(x, x, b), x, float(op.arg("nan") or 0), x, b)
    for name, infinity, most in ends:
        given = op.arg(name)
        y = select(equal(x, infinity, b), most if given is None else float(given), y, x, b)
    return y


FORMS: dict[type[Operation], Form] = {
    aten.LeakyReluDefault: _leaky_relu,
    aten.EluDefault: _elu,
    aten.ThresholdDefault: _threshold,
    aten.HardshrinkDefault: _hardshrink,
    aten.SignDefault: _sign,
    aten.TruncDefault: _trunc,
    aten.FracDefault: _frac,
    aten.RoundDefault: _round,
    aten.Log2Default: _logarithm(2),
    aten.Log10Default: _logarithm(10),
    aten.Log1pDefault: _log1p,
    aten.Expm1Default: _expm1,
    aten.Exp2Default: _exp2,
    aten.TanDefault: _tan,
    aten.IsnanDefault: _isnan,
    aten.IsinfDefault: _isinf,
    aten.IsfiniteDefault: _isfinite,
    aten.NanToNumDefault: _nan_to_num,
}


@dataclass(frozen=True)
class LowerFunction(LowerToTosa):
    """The functions of `FORMS`."""

    name: ClassVar[str] = "lower-function-to-tosa"
    anchors: ClassVar[tuple[type[Operation], ...]] = tuple(FORMS)

    def refuses(self, op: SchemaOp) -> Refusal | None:
        """Floats; numbers that are known."""
        for argument in op.SCHEMA.arguments[1:]:
            given = op.arg(argument.name)
            if given is not None and not is_number(given):
                return Refusal(f"{argument.name} is known only at run time")
        return needs_floats(op)

    def lower(self, op: SchemaOp, b: Builder) -> SSAValue:
        """The operators of the form."""
        return FORMS[type(op)](op, op.operands[0], b)
