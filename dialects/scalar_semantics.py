"""Scalar semantics of the ops of all dialects: one expression for the ops that compute the same
function of reals.

Data movements are not listed, because their families define their semantics. For TOSA's and
XNNPACK's nodes, an expression applies to floats, or to the real values of quantized operands.
"""

# ruff: noqa: D103 (a function here is its own sentence)

from __future__ import annotations

from collections.abc import Callable
from math import pi
from math import sqrt as root

from stepwell.ir.declared.scalar_semantics import (
    Scalar,
    Term,
    absolute,
    acos,
    asin,
    atan,
    ceil,
    cos,
    cosh,
    equal,
    erf,
    exp,
    expm1,
    floor,
    greatest,
    invert,
    is_nan,
    least,
    log,
    log1p,
    maximum,
    means,
    minimum,
    modulo,
    negate,
    not_,
    power,
    quotient,
    reciprocal,
    round_,
    rsqrt,
    sign,
    sin,
    sinh,
    some,
    sqrt,
    tan,
    tanh,
    trunc,
    where,
    xor,
)

Limit = Scalar | None
_NAMES = {
    absolute: "aten.abs.default aten.absolute.default xnnpack.abs tosa.abs",
    exp: "aten.exp.default xnnpack.exp tosa.exp",
    expm1: "aten.expm1.default",
    log: "aten.log.default xnnpack.log tosa.log",
    log1p: "aten.log1p.default",
    sqrt: "aten.sqrt.default xnnpack.square_root",
    rsqrt: "aten.rsqrt.default xnnpack.reciprocal_square_root tosa.rsqrt",
    reciprocal: "aten.reciprocal.default tosa.reciprocal",
    sin: "aten.sin.default xnnpack.sine tosa.sin",
    cos: "aten.cos.default xnnpack.cosine tosa.cos",
    tan: "aten.tan.default",
    tanh: "aten.tanh.default xnnpack.tanh tosa.tanh",
    erf: "aten.erf.default tosa.erf",
    atan: "aten.atan.default",
    asin: "aten.asin.default",
    acos: "aten.acos.default",
    sinh: "aten.sinh.default",
    cosh: "aten.cosh.default",
    floor: "aten.floor.default xnnpack.floor tosa.floor",
    ceil: "aten.ceil.default xnnpack.ceiling tosa.ceil",
    round_: "aten.round.default",
    trunc: "aten.trunc.default",
    negate: "aten.neg.default xnnpack.negate",
    sign: "aten.sign.default",
    is_nan: "aten.isnan.default",
    not_: "aten.logical_not.default tosa.logical_not",
    maximum: "aten.maximum.default aten.max.other aten.clamp_min.Tensor",
    minimum: "aten.minimum.default aten.min.other aten.clamp_max.Tensor",
    equal: "aten.eq.Tensor aten.eq.Scalar tosa.equal",
    where: "aten.where.self aten.where.ScalarOther aten.where.ScalarSelf "
    "aten.where.Scalar tosa.select",
    power: "aten.pow.Tensor_Tensor aten.pow.Scalar",
    least: "aten.amin.default tosa.reduce_min",
    greatest: "aten.amax.default tosa.reduce_max",
}
for _function, _names in _NAMES.items():
    means(*_names.split())(_function)


def limited(x: Term, low: Limit, high: Limit) -> Term:
    """Clamp to at least `low`, then to at most `high`; None means no limit."""
    x = x if low is None else maximum(x, low)
    return x if high is None else minimum(x, high)


# -- arithmetic ----------------------------------------------------------------------------------


@means("aten.add.Tensor", "aten.add.Scalar", "xnnpack.add", "tosa.add")
def add(x: Term, y: Scalar, *, alpha: Scalar | None, output_min: Limit, output_max: Limit) -> Term:
    return limited(x + times(y, alpha), output_min, output_max)


@means("aten.sub.Tensor", "aten.sub.Scalar", "xnnpack.subtract", "tosa.sub")
def sub(x: Term, y: Scalar, *, alpha: Scalar | None, output_min: Limit, output_max: Limit) -> Term:
    return limited(x - times(y, alpha), output_min, output_max)


@means("aten.rsub.Scalar", "aten.rsub.Tensor")
def rsub(x: Term, y: Scalar, *, alpha: Scalar | None) -> Term:
    return Term("subtract", (y, times(x, alpha)))


def times(x: Scalar, alpha: Scalar | None) -> Scalar:
    if alpha in (None, 1):
        return x
    return Term("multiply", (x, alpha))


@means("aten.mul.Tensor", "aten.mul.Scalar", "xnnpack.multiply")
def mul(x: Term, y: Scalar, *, output_min: Limit, output_max: Limit) -> Term:
    return limited(x * y, output_min, output_max)


@means("tosa.mul")
def mul_of_tosa(x: Term, y: Term) -> Term:
    return x * y


@means("aten.div.Tensor", "aten.div.Scalar", "aten.true_divide.Tensor", "xnnpack.divide")
def div(x: Term, y: Scalar, *, output_min: Limit, output_max: Limit) -> Term:
    return limited(x / y, output_min, output_max)


@means("aten.div.Tensor_mode", "aten.div.Scalar_mode")
def div_rounded(x: Term, y: Scalar, *, rounding_mode: str | None) -> Term:
    if rounding_mode == "floor":
        return quotient(x, y)
    return x / y if rounding_mode is None else trunc(x / y)


@means("tosa.intdiv")
def intdiv(x: Term, y: Term) -> Term:
    return trunc(x / y)


@means("aten.floor_divide.default", "aten.floor_divide.Scalar")
def floor_divide(x: Term, y: Scalar) -> Term:
    return quotient(x, y)


@means("aten.remainder.Scalar", "aten.remainder.Tensor")
def remainder(x: Term, y: Scalar) -> Term:
    return modulo(x, y)


@means("aten.square.default", "xnnpack.square")
def square(x: Term) -> Term:
    return x * x


@means("aten.pow.Tensor_Scalar")
def pow_of_number(x: Term, exponent: Scalar) -> Term:
    function = None if isinstance(exponent, Term) else _POWERS.get(exponent)
    return power(x, exponent) if function is None else function(x)


_POWERS: dict[float, Callable[[Term], Term]] = {
    1: lambda x: x,
    2: lambda x: x * x,
    3: lambda x: x * x * x,
    0.5: sqrt,
    -0.5: rsqrt,
    -1: reciprocal,
    -2: lambda x: reciprocal(x * x),
}
"""Exponents for which torch's kernel uses other functions (ATen/native/cpu/PowKernel.cpp)."""


@means("aten.addcmul.default")
def addcmul(x: Term, y: Term, z: Term, *, value: Scalar) -> Term:
    return x + times(y, value) * z


@means("aten.addcdiv.default")
def addcdiv(x: Term, y: Term, z: Term, *, value: Scalar) -> Term:
    return x + times(y, value) / z


@means("aten.lerp.Scalar")
def lerp(x: Term, y: Term, weight: Scalar) -> Term:
    near = Term("less", (absolute(weight), 0.5))
    return where(near, x + (y - x) * weight, y - (y - x) * Term("subtract", (1.0, weight)))


@means("aten.frac.default")
def frac(x: Term) -> Term:
    return x - trunc(x)


@means("aten.exp2.default")
def exp2(x: Term) -> Term:
    return power(2.0, x)


@means("aten.log2.default")
def log2(x: Term) -> Term:
    return log(x) * 1.4426950408889634


@means("aten.log10.default")
def log10(x: Term) -> Term:
    return log(x) * 0.4342944819032518


@means("tosa.negate")
def negate_of_tosa(x: Term) -> Term:
    return -x


@means("aten.bitwise_not.default", "tosa.bitwise_not")
def bitwise_not(x: Term) -> Term:
    return invert(x)


# -- comparisons and choices ---------------------------------------------------------------------


@means("aten.ne.Tensor", "aten.ne.Scalar")
def ne(x: Term, y: Scalar) -> Term:
    return not_(equal(x, y))


@means("aten.lt.Tensor", "aten.lt.Scalar")
def lt(x: Term, y: Scalar) -> Term:
    return x < y


@means("aten.le.Tensor", "aten.le.Scalar")
def le(x: Term, y: Scalar) -> Term:
    return x <= y


@means("aten.gt.Tensor", "aten.gt.Scalar", "tosa.greater")
def gt(x: Term, y: Scalar) -> Term:
    return x > y


@means("aten.ge.Tensor", "aten.ge.Scalar", "tosa.greater_equal")
def ge(x: Term, y: Scalar) -> Term:
    return x >= y


def truth(x: Term) -> Term:
    """Return whether a number is not 0; of a bool, the bool itself."""
    return not_(not_(x))


@means("aten.logical_and.default", "tosa.logical_and")
def logical_and(x: Term, y: Term) -> Term:
    return truth(x) & truth(y)


@means("aten.logical_or.default", "tosa.logical_or")
def logical_or(x: Term, y: Term) -> Term:
    return truth(x) | truth(y)


@means("aten.logical_xor.default", "tosa.logical_xor")
def logical_xor(x: Term, y: Term) -> Term:
    return xor(truth(x), truth(y))


@means("aten.masked_fill.Scalar", "aten.masked_fill.Tensor")
def masked_fill(x: Term, mask: Term, value: Scalar) -> Term:
    return where(mask, value, x)


@means("xnnpack.maximum")
def maximum_of_xnnpack(x: Term, y: Term) -> Term:
    return where(x > y, x, y)


@means("xnnpack.minimum")
def minimum_of_xnnpack(x: Term, y: Term) -> Term:
    return where(x < y, x, y)


@means("tosa.maximum")
def maximum_of_tosa(x: Term, y: Term, *, nan_mode: object) -> Term:
    found = maximum(x, y)
    return found if nan_mode is None or "IGNORE" not in str(nan_mode) else _of_numbers(found, x, y)


@means("tosa.minimum")
def minimum_of_tosa(x: Term, y: Term, *, nan_mode: object) -> Term:
    found = minimum(x, y)
    return found if nan_mode is None or "IGNORE" not in str(nan_mode) else _of_numbers(found, x, y)


def _of_numbers(found: Term, x: Term, y: Term) -> Term:
    return where(is_nan(x), y, where(is_nan(y), x, found))


# -- activations ---------------------------------------------------------------------------------


@means("aten.clamp.default", "aten.clamp.Tensor", "aten.clip.default", "aten.hardtanh.default")
def clamp(x: Term, low: Limit, high: Limit) -> Term:
    return limited(x, low, high)


@means("tosa.clamp")
def clamp_of_tosa(x: Term, *, min_val: Scalar, max_val: Scalar) -> Term:
    return limited(x, min_val, max_val)


@means("xnnpack.clamp")
def clamp_of_xnnpack(x: Term, *, output_min: Limit, output_max: Limit) -> Term:
    return limited(x, output_min, output_max)


@means("aten.clamp_min.default")
def clamp_min(x: Term, low: Scalar) -> Term:
    return maximum(x, low)


@means("aten.clamp_max.default")
def clamp_max(x: Term, high: Scalar) -> Term:
    return minimum(x, high)


@means("aten.relu.default")
def relu(x: Term) -> Term:
    return maximum(x, 0.0)


@means("aten.relu6.default")
def relu6(x: Term) -> Term:
    return limited(x, 0.0, 6.0)


@means("aten.sigmoid.default", "xnnpack.sigmoid", "tosa.sigmoid")
def sigmoid(x: Term) -> Term:
    return reciprocal(exp(-x) + 1.0)


@means("aten.silu.default")
def silu(x: Term) -> Term:
    return x / (exp(-x) + 1.0)


@means("aten.gelu.default")
def gelu(x: Term, *, approximate: str) -> Term:
    if approximate == "tanh":
        return x * 0.5 * (tanh((x + x * x * x * 0.044715) * root(2 / pi)) + 1.0)
    return x * 0.5 * (erf(x * root(0.5)) + 1.0)


@means("xnnpack.gelu")
def gelu_of_xnnpack(x: Term) -> Term:
    return gelu(x, approximate="none")


@means("aten.hardsigmoid.default")
def hardsigmoid(x: Term) -> Term:
    return limited(x + 3.0, 0.0, 6.0) / 6.0


@means("aten.hardswish.default", "xnnpack.hardswish")
def hardswish(x: Term) -> Term:
    return x * limited(x + 3.0, 0.0, 6.0) / 6.0


@means("aten.leaky_relu.default", "xnnpack.leaky_relu")
def leaky_relu(x: Term, *, negative_slope: Scalar | None) -> Term:
    return where(x > 0.0, x, x * (0.0 if negative_slope is None else negative_slope))


@means("aten.mish.default")
def mish(x: Term) -> Term:
    return x * tanh(log1p(exp(x)))


@means("aten.threshold.default")
def threshold(x: Term, limit: Scalar, value: Scalar) -> Term:
    return where(x <= limit, value, x)


@means("aten.elu.default", "xnnpack.elu")
def elu(x: Term, *, alpha: Scalar, scale: Scalar | None, input_scale: Scalar | None) -> Term:
    below = expm1(times(x, input_scale)) * times(alpha, scale)
    return where(x > 0.0, times(x, scale), below)


@means("aten.selu.default")
def selu(x: Term) -> Term:
    return elu(x, alpha=1.6732632423543772, scale=1.0507009873554805, input_scale=1.0)


@means("aten.celu.default")
def celu(x: Term, *, alpha: Scalar) -> Term:
    return elu(x, alpha=alpha, scale=1.0, input_scale=reciprocal(alpha))


@means("aten.softplus.default")
def softplus(x: Term, *, beta: Scalar, threshold: Scalar) -> Term:
    scaled = x * beta
    return where(scaled > threshold, x, log1p(exp(scaled)) / beta)


@means("aten.log_sigmoid.default")
def log_sigmoid(x: Term) -> Term:
    return minimum(x, 0.0) - log1p(exp(-absolute(x)))


@means("aten.softshrink.default")
def softshrink(x: Term, lambd: Scalar) -> Term:
    below = where(x < negate(lambd), x + lambd, 0.0)
    return where(is_nan(x), x, where(x > lambd, x - lambd, below))


@means("aten._prelu_kernel.default", "aten.prelu.default", "xnnpack.prelu")
def prelu(x: Term, slope: Term) -> Term:
    return where(x > 0.0, x, slope * x)


@means("aten.dropout.default", "aten.feature_dropout.default", "aten.alpha_dropout.default",
       "aten.feature_alpha_dropout.default", "aten.native_dropout.default")  # fmt: skip
def dropout(x: Term, p: Scalar, train: bool | None) -> Term:
    return x if train is False else where(equal(p, 0.0), x, some(x))
