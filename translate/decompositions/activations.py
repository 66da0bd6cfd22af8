"""Decompositions of activations into arithmetic and the curves that targets have.

rule silu-to-sigmoid
    `silu` is x·sigmoid(x); XNNPACK and TOSA have a sigmoid.
Before:
    %y = aten.silu.default(%x) : (tensor<$*S x $E>) -> tensor<$*S x $E>
After:
    %s = aten.sigmoid.default(%x) : (tensor<$*S x $E>) -> tensor<$*S x $E>
    %y = aten.mul.Tensor(%x, %s)
bound 1e-6 relative, 1.2e-38 of |%x|: "x·(1/(1+e⁻ˣ)) rounds once more than x/(1+e⁻ˣ)"

rule glu-to-sigmoid
    `glu` is the product of the halves of an axis, the second one through a sigmoid.
Before:
    %y = aten.glu.default(%x, $d)
After:
    %g = aten.slice.Tensor(%x, from_front(%x, $d), half(%x, $d), whole(%x, $d), 1)
    %v = aten.slice.Tensor(%x, from_front(%x, $d), 0, half(%x, $d), 1)
    %s = aten.sigmoid.default(%g)
    %y = aten.mul.Tensor(%v, %s)
where is_axis_of_known_size(%x, $d) else "the halved axis is symbolic"
bound of roundings: "x·(1/(1+e⁻ˣ)) rounds once more than x/(1+e⁻ˣ)"
for $d = -1, $x = [2, 6]

rule softplus-to-log
    softplus(x) = max(x, 0) + log1p(exp(−|x|)): the exponent is never positive, so nothing
    overflows and torch's threshold is not needed, beyond which the logarithm is below half an ulp.
Before:
    %y = aten.softplus.default(%x, $b, $t) : (tensor<$*S x $E>) -> tensor<$*S x $E>
After:
    %a = aten.abs.default(%x)
    %n = aten.neg.default(%a)
    %e = aten.exp.default(%n)
    %l = aten.log1p.default(%e)
    %m = aten.clamp.default(%x, 0)
    %y = aten.add.Tensor(%m, %l)
where is_single($E) else "the error bound of this rewrite holds for float32 only"
where is_one($b) else "beta is {b}, not 1"
where is_beyond_half_an_ulp($t) else "threshold {t} is low enough to be seen"
bound 1.2e-6 relative, 5e-38 absolute: "each step rounds; a denormal exponential may be read as zero"
for $b = 1, $t = 20

rule mish-to-quotient
    mish(x) = x·tanh(softplus(x)), and tanh(log(1 + e)) = n/(n + 2) with n = e·(e + 2): no logarithm
    loses what a large negative x leaves. Beyond 20 the quotient is 1.
Before:
    %y = aten.mish.default(%x) : (tensor<$*S x $E>) -> tensor<$*S x $E>
After:
    %c = aten.clamp.default(%x, none, 20)
    %e = aten.exp.default(%c)
    %u = aten.add.Scalar(%e, 2)
    %n = aten.mul.Tensor(%e, %u)
    %d = aten.add.Scalar(%n, 2)
    %q = aten.div.Tensor(%n, %d)
    %y = aten.mul.Tensor(%x, %q)
where is_single($E) else "the error bound of this rewrite holds for float32 only"
bound 4e-6 relative, 5e-38 of |%x|: "seven roundings; a denormal exponential may be read as zero"

rule log-sigmoid-to-log
    log_sigmoid(x) = −softplus(−x).
Before:
    %y = aten.log_sigmoid.default(%x) : (tensor<$*S x $E>) -> tensor<$*S x $E>
After:
    %i = aten.neg.default(%x)
    %a = aten.abs.default(%i)
    %n = aten.neg.default(%a)
    %e = aten.exp.default(%n)
    %l = aten.log1p.default(%e)
    %m = aten.clamp.default(%i, 0)
    %p = aten.add.Tensor(%m, %l)
    %y = aten.neg.default(%p)
where is_single($E) else "the error bound of this rewrite holds for float32 only"
bound 1.2e-6 relative, 5e-38 absolute: "each step rounds; a denormal exponential may be read as zero"

rule softshrink-to-clamp
    What is left of x when its part within ±lambd is taken away.
Before:
    %y = aten.softshrink.default(%x, $w)
After:
    %m = aten.clamp.default(%x, negated($w), $w)
    %y = aten.sub.Tensor(%x, %m)
bound 1.401298464324817e-45 absolute: "a zero may lose its sign"
for $w = 0.5

rule hardsigmoid-to-clamp
    hardsigmoid(x) = clamp(x + 3, 0, 6) / 6, as torch computes it. `hardswish` stays whole, because
    targets have it.
Before:
    %y = aten.hardsigmoid.default(%x) : (tensor<$*S x $E>) -> tensor<$*S x $E>
After:
    %a = aten.add.Scalar(%x, 3)
    %m = aten.clamp.default(%a, 0, 6)
    %y = aten.div.Scalar(%m, 6)
where is_single_or_double($E) else "torch computes the hardsigmoid of this dtype in float32"
where not is_gate_of_hardswish(%y) for cost
not for %r = aten.mul.Tensor(%y, %x)

rule selu-to-elu
    `selu` is a scaled `elu`; XNNPACK has a plain one.
Before:
    %y = aten.selu.default(%x) : (tensor<$*S x $E>) -> tensor<$*S x $E>
After:
    %e = aten.elu.default(%x, 1.6732632423543772)
    %y = aten.mul.Scalar(%e, 1.0507009873554805)
where is_single($E) else "the error bound of this rewrite holds for float32 only"
bound 1e-6 relative: "two factors rounded one after the other"

rule split-celu-scale
    celu(x) = alpha·elu(x/alpha).
Before:
    %y = aten.celu.default(%x, $a) : (tensor<$*S x $E>) -> tensor<$*S x $E>
After:
    %s = aten.mul.Scalar(%x, reciprocal($a))
    %e = aten.elu.default(%s)
    %y = aten.mul.Scalar(%e, $a)
where not is_one($a) for termination
where is_single($E) else "the error bound of this rewrite holds for float32 only"
where is_positive($a) else "alpha is {a}: the curve bends the other way"
bound 1e-6 relative: "two factors rounded one after the other"
for $a = 1.7

rule split-elu-scale
    An `elu` with a factor behind it is a plain one and a product.
Before:
    %y = aten.elu.default(%x, $a, $s, $i) : (tensor<$*S x $E>) -> tensor<$*S x $E>
After:
    %e = aten.elu.default(%x, $a)
    %y = aten.mul.Scalar(%e, $s)
where is_one($i) else "input_scale is {i}: only the exponent is scaled, not the line"
where not is_one($s) for termination
where is_single($E) else "the error bound of this rewrite holds for float32 only"
bound 1e-6 relative: "two factors rounded one after the other"
for $a = 0.6, $s = 1.7, $i = 1.0
"""

from __future__ import annotations

from xdsl.ir import SSAValue

from stepwell.dialects import aten
from stepwell.ir.types import dims
from stepwell.translate.rules import read_rules


def is_axis_of_known_size(value: SSAValue, at: int) -> bool:
    """Whether the size of an axis is static."""
    return isinstance(dims(value.type)[at], int)


def whole(value: SSAValue, at: int) -> int:
    """Return the size of an axis."""
    size = dims(value.type)[at]
    assert isinstance(size, int)
    return size


def half(value: SSAValue, at: int) -> int:
    """Return half the size of an axis."""
    return whole(value, at) // 2


def is_beyond_half_an_ulp(threshold: float) -> bool:
    """Whether log(1 + e⁻ˣ) is below half an ulp of x in float32: e⁻¹⁶ < 16·2⁻²⁴/2."""
    return threshold >= 16


def is_gate_of_hardswish(gate: SSAValue) -> bool:
    """Whether each user of a gate `f(x)` computes `x · f(x)`: hardswish, which has its own node."""
    x = gate.owner.operands[0]  # pyright: ignore
    users = [use.operation for use in gate.uses]
    return bool(users) and all(isinstance(u, aten.MulTensor) and x in u.operands for u in users)


RULES = read_rules(__doc__, globals())
