"""Inverse trigonometric and hyperbolic functions and erfc, in f32, within a few ulp everywhere.

Each is a polynomial near zero, where its result would cancel otherwise, and a closed form of
EXP, LOG and roots beyond. The coefficients are our own: interpolation at Chebyshev nodes in double
precision, which `tests/tosa/test_curves.py` repeats. Halves are computed in f32 between casts.

Before:
    %y = aten.cosh.default(%x) : (tensor<2x4xf32>) -> tensor<2x4xf32>
After:
    %0 = tosa.abs %x : (tensor<2x4xf32>) -> tensor<2x4xf32>
    %1 = tosa.mul %0, dense<0.5>, dense<0> : (tensor<2x4xf32>, tensor<1x1xf32>, tensor<1xi8>) -> tensor<2x4xf32>
    %2 = tosa.exp %1 : (tensor<2x4xf32>) -> tensor<2x4xf32>
    %3 = tosa.reciprocal %2 : (tensor<2x4xf32>) -> tensor<2x4xf32>
    %4 = tosa.mul %2, dense<0.5>, dense<0> : (tensor<2x4xf32>, tensor<1x1xf32>, tensor<1xi8>) -> tensor<2x4xf32>
    %5 = tosa.mul %4, %2, dense<0> : (tensor<2x4xf32>, tensor<2x4xf32>, tensor<1xi8>) -> tensor<2x4xf32>
    %6 = tosa.mul %3, dense<0.5>, dense<0> : (tensor<2x4xf32>, tensor<1x1xf32>, tensor<1xi8>) -> tensor<2x4xf32>
    %7 = tosa.mul %6, %3, dense<0> : (tensor<2x4xf32>, tensor<2x4xf32>, tensor<1xi8>) -> tensor<2x4xf32>
    %y = tosa.add %5, %7 : (tensor<2x4xf32>, tensor<2x4xf32>) -> tensor<2x4xf32>
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from math import log, pi
from typing import ClassVar

from xdsl.ir import Operation, SSAValue

from stepwell.dialects import aten
from stepwell.dialects.aten.op import SchemaOp
from stepwell.dialects.tosa import generated as t
from stepwell.ir.bounds import roundings
from stepwell.ir.rewriting import Bound, Refusal
from stepwell.ir.types import element
from stepwell.translate.rewrites.tosa.operators.building import (
    Builder,
    broadcast,
    narrowed,
    root,
    shape_of,
)
from stepwell.translate.rewrites.tosa.operators.choices import equal, greater, select
from stepwell.translate.rewrites.tosa.operators.lowering import LowerToTosa, needs_floats

INF, NAN = float("inf"), float("nan")

# f(x) = x + x z h(z) with z = x², on |x| <= 1, for asin and atanh on |x| <= 1/2.
ATAN = (
    *(-0.333333333, 0.199999903, -0.14285318, 0.111047068, -0.0903674232, 0.0741749689),
    *(-0.0576071593, 0.0383274439, -0.0192610796, 0.00620725376, -0.000936299322),
)
ASIN = (
    *(0.166666667, 0.074999924, 0.0446476638, 0.0302691393),
    *(0.0236118137, 0.0105744256, 0.0309745284),
)
ASINH = (
    *(-0.166666666, 0.0749999028, -0.0446395814, 0.0303382816, -0.0220692439),
    *(0.0161022092, -0.0106408076, 0.00553051403, -0.00188384545, 0.000302824276),
)
ATANH = (
    *(0.333333333, 0.200000034, 0.142854311, 0.111200122),
    *(0.0895509841, 0.087966107, 0.0186787083, 0.157995321),
)
SINH = (0.166666666, 0.00833333968, 0.00019838102, 2.80628025e-06)
# acosh(1 + t) = √(2t) h(t) on 0 <= t <= 1.
ACOSH = (
    *(1.0, -0.083333292, 0.0187491175, -0.00557306958),
    *(0.00186866506, -0.000628628778, 0.000173390448, -2.63231041e-05),
)
# erfc(x) = e ** -x² h(1 / (1 + x/2)) on 1/2 <= x <= 10.4.
ERFC = (
    *(2.05657396e-07, 0.282089833, 0.282133428, 0.246871598, 0.173455006, 0.107632348),
    *(-0.113177614, 0.255663495, -0.63155432, 0.648378246, -0.31074277, 0.0592544844),
)

LARGE = 2.0**13
"""From here on x² + 1 and x² - 1 are x² in f32, and log(2x) is asinh and acosh."""


def _polynomial(x: SSAValue, coefficients: Sequence[float], b: Builder) -> SSAValue:
    *lower, last = coefficients
    y = b.scalar(t.MulOp, x, last)
    for number in reversed(lower[1:]):
        y = b.binary(t.MulOp, b.scalar(t.AddOp, y, number), x)
    return b.scalar(t.AddOp, y, lower[0])


def _odd(w: SSAValue, z: SSAValue, coefficients: Sequence[float], b: Builder) -> SSAValue:
    """`w + w z h(z)`: w alone where it is tiny, -0 of -0."""
    tail = b.binary(t.MulOp, b.binary(t.MulOp, w, z), _polynomial(z, coefficients, b))
    y = b.binary(t.AddOp, w, tail)
    # A negative tail of -0 is +0, and their sum as well.
    return select(equal(w, 0.0, b), w, y, w, b) if coefficients[0] < 0 else y


def _square(x: SSAValue, b: Builder) -> SSAValue:
    return b.binary(t.MulOp, x, x)


def _signed(size: SSAValue, like: SSAValue, b: Builder) -> SSAValue:
    """`size` with the sign of `like`, which is not zero where it matters."""
    return select(greater(0.0, like, b), b.negate(size), size, size, b)


def _halves(x: SSAValue, b: Builder) -> tuple[SSAValue, SSAValue]:
    """`e ** |x| / 2` and `e ** -|x| / 2`, as products of e ** |x/2|, which does not overflow."""
    power = b.unary(t.ExpOp, b.scalar(t.MulOp, b.unary(t.AbsOp, x), 0.5))
    share = b.unary(t.ReciprocalOp, power)
    grown = b.binary(t.MulOp, b.scalar(t.MulOp, power, 0.5), power)
    return grown, b.binary(t.MulOp, b.scalar(t.MulOp, share, 0.5), share)


def _cosh(x: SSAValue, b: Builder) -> SSAValue:
    return b.binary(t.AddOp, *_halves(x, b))


def _sinh(x: SSAValue, b: Builder) -> SSAValue:
    far = _signed(b.binary(t.SubOp, *_halves(x, b)), x, b)
    near = _odd(x, _square(x, b), SINH, b)
    return select(greater(b.unary(t.AbsOp, x), 1.0, b), far, near, x, b)


def _atan(x: SSAValue, b: Builder) -> SSAValue:
    """The quarter turn less the angle of 1/x, where |x| is above one."""
    is_far = greater(b.unary(t.AbsOp, x), 1.0, b)
    w = select(is_far, b.unary(t.ReciprocalOp, x), x, x, b)
    angle = _odd(w, _square(w, b), ATAN, b)
    quarter = select(greater(x, 0.0, b), pi / 2, -pi / 2, x, b)
    return select(is_far, b.binary(t.SubOp, quarter, angle), angle, x, b)


def _arc(x: SSAValue, b: Builder) -> tuple[SSAValue, SSAValue]:
    """Whether |x| is above 1/2, and asin of √((1 - |x|) / 2) there, of x itself elsewhere."""
    size = b.unary(t.AbsOp, x)
    is_far = greater(size, 0.5, b)
    rest = b.scalar(t.MulOp, b.binary(t.SubOp, b.splat(1.0, x), size), 0.5)
    z = select(is_far, rest, _square(x, b), x, b)
    w = select(is_far, root(rest, b), x, x, b)
    return is_far, _odd(w, z, ASIN, b)


def _asin(x: SSAValue, b: Builder) -> SSAValue:
    is_far, arc = _arc(x, b)
    far = b.binary(t.SubOp, b.splat(pi / 2, x), b.scalar(t.MulOp, arc, 2.0))
    return select(is_far, _signed(far, x, b), arc, x, b)


def _acos(x: SSAValue, b: Builder) -> SSAValue:
    is_far, arc = _arc(x, b)
    twice = b.scalar(t.MulOp, arc, 2.0)
    left = b.binary(t.SubOp, b.splat(pi, x), twice)
    far = select(greater(0.0, x, b), left, twice, x, b)
    return select(is_far, far, b.binary(t.SubOp, b.splat(pi / 2, x), arc), x, b)


def _log_of_sum(size: SSAValue, square: SSAValue, b: Builder) -> SSAValue:
    """`log(size + √square)`, and `log(2 size)` from `LARGE` on."""
    whole = b.unary(t.LogOp, b.binary(t.AddOp, size, root(square, b)))
    twice = b.scalar(t.AddOp, b.unary(t.LogOp, size), log(2))
    return select(greater(size, LARGE, b), twice, whole, size, b)


def _asinh(x: SSAValue, b: Builder) -> SSAValue:
    size, square = b.unary(t.AbsOp, x), _square(x, b)
    far = _signed(_log_of_sum(size, b.scalar(t.AddOp, square, 1.0), b), x, b)
    return select(greater(size, 1.0, b), far, _odd(x, square, ASINH, b), x, b)


def _acosh(x: SSAValue, b: Builder) -> SSAValue:
    far = _log_of_sum(x, b.scalar(t.SubOp, _square(x, b), 1.0), b)
    rest = b.scalar(t.SubOp, x, 1.0)
    height = root(b.scalar(t.MulOp, rest, 2.0), b)
    near = b.binary(t.MulOp, height, _polynomial(rest, ACOSH, b))
    y = select(greater(x, 2.0, b), far, near, x, b)
    return select(greater(1.0, x, b), NAN, y, x, b)


def _atanh(x: SSAValue, b: Builder) -> SSAValue:
    size = b.unary(t.AbsOp, x)
    below = b.unary(t.ReciprocalOp, b.binary(t.SubOp, b.splat(1.0, x), size))
    share = b.binary(t.MulOp, b.scalar(t.AddOp, size, 1.0), below)
    far = _signed(b.scalar(t.MulOp, b.unary(t.LogOp, share), 0.5), x, b)
    far = select(greater(size, 1.0, b), NAN, far, x, b)
    return select(greater(size, 0.5, b), far, _odd(x, _square(x, b), ATANH, b), x, b)


def _erfc(x: SSAValue, b: Builder) -> SSAValue:
    """`1 - erf` below 1/2; beyond, `e ** -x²` of x as a multiple of 1/16 and the rest."""
    near = b.binary(t.SubOp, b.splat(1.0, x), b.unary(t.ErfOp, x))
    kept = b.scalar(t.MinimumOp, b.scalar(t.MaximumOp, x, 0.0), 11.0)
    shift = 1.5 * 2.0**19
    coarse = b.scalar(t.SubOp, b.scalar(t.AddOp, kept, shift), shift)
    rest = b.binary(t.SubOp, coarse, kept)
    fine = b.unary(t.ExpOp, b.binary(t.MulOp, rest, b.binary(t.AddOp, kept, coarse)))
    power = b.unary(t.ExpOp, b.negate(_square(coarse, b)))
    share = b.unary(t.ReciprocalOp, b.scalar(t.AddOp, b.scalar(t.MulOp, kept, 0.5), 1.0))
    far = b.binary(t.MulOp, b.binary(t.MulOp, fine, _polynomial(share, ERFC, b)), power)
    return select(greater(x, 0.5, b), far, near, x, b)


def _is_below_zero(x: SSAValue, b: Builder) -> SSAValue:
    """Whether the sign is set, that of -0 included: its reciprocal is -inf."""
    return b.binary(t.LogicalOrOp, greater(0.0, x, b), greater(0.0, b.unary(t.ReciprocalOp, x), b))


def _atan2(y: SSAValue, x: SSAValue, b: Builder) -> SSAValue:
    """The angle of the shorter side over the longer one, turned to its octant."""
    rank = max(len(shape_of(x)), len(shape_of(y)))
    x, y = b.of_rank(x, rank), b.of_rank(y, rank)
    shape = broadcast(shape_of(y), shape_of(x))
    wide, high = b.unary(t.AbsOp, x), b.unary(t.AbsOp, y)
    most, least = b.binary(t.MaximumOp, wide, high), b.binary(t.MinimumOp, wide, high)
    # The reciprocal of a side beyond 2 ** 126, or of a subnormal one, would lose bits.
    scale = select(greater(2.0**-64, most, b), 2.0**64, 1.0, most, b)
    scale = select(greater(most, 2.0**64, b), 2.0**-64, scale, most, b)
    most, least = (b.binary(t.MulOp, side, scale) for side in (most, least))
    share = b.binary(t.MulOp, least, b.unary(t.ReciprocalOp, most))
    is_one = b.scalar(t.MinimumOp, most, 1.0)  # 0 / 0 is 0 and inf / inf is 1 here
    is_one = select(greater(is_one, 0.0, b), 1.0, is_one, is_one, b)
    share = select(equal(most, least, b), is_one, share, share, b)
    angle = _odd(share, _square(share, b), ATAN, b)
    steep = b.binary(t.SubOp, b.splat(pi / 2, angle), angle)
    angle = select(greater(high, wide, b), steep, angle, angle, b)
    turned = b.binary(t.SubOp, b.splat(pi, angle), angle)
    angle = select(_is_below_zero(x, b), turned, angle, angle, b)
    assert shape_of(angle) == shape
    return select(_is_below_zero(y, b), b.negate(angle), angle, angle, b)


CURVES: dict[type[Operation], Callable[[SSAValue, Builder], SSAValue]] = {
    aten.AcosDefault: _acos,
    aten.AcoshDefault: _acosh,
    aten.AsinDefault: _asin,
    aten.AsinhDefault: _asinh,
    aten.AtanDefault: _atan,
    aten.AtanhDefault: _atanh,
    aten.CoshDefault: _cosh,
    aten.ErfcDefault: _erfc,
    aten.SinhDefault: _sinh,
}


@dataclass(frozen=True)
class LowerCurve(LowerToTosa):
    """The functions of `CURVES`, and `atan2`."""

    name: ClassVar[str] = "lower-curve-to-tosa"
    anchors: ClassVar[tuple[type[Operation], ...]] = (*CURVES, aten.Atan2Default)
    bound: ClassVar[Bound] = roundings("polynomials and closed forms, within a few ulp")

    def refuses(self, op: SchemaOp) -> Refusal | None:
        """Floats of one type."""
        if len({element(value.type) for value in (*op.operands, *op.results)}) > 1:
            return Refusal("operands and result have several dtypes")
        return needs_floats(op)

    def lower(self, op: SchemaOp, b: Builder) -> SSAValue:
        """The operators of the curve, in f32."""
        wide = [b.single(value) for value in op.operands]
        y = _atan2(wide[0], wide[1], b) if len(wide) == 2 else CURVES[type(op)](wide[0], b)
        return narrowed(y, op.operands[0], b)
