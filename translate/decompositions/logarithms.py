"""Decompositions of logarithms, log-sum-exps and softmaxes that keep NaNs and infinities.

rule expand-log-softmax
    The logarithm of a softmax would lose what the softmax rounds to zero. torch subtracts the
    greatest of a row, and then the logarithm of the sum of the exponentials, of numbers.
Before:
    %y = aten._log_softmax.default(%x, $d, $?h) : (tensor<$*S x $E>) -> …
After:
    %m = aten.amax.default(%x, [from_front(%x, $d)], true)
    %b = aten.sub.Tensor(%x, %m)
    %e = aten.exp.default(%b)
    %t = aten.sum.dim_IntList(%e, [from_front(%x, $d)], true)
    %l = aten.log.default(%t)
    %y = aten.sub.Tensor(%b, %l)
where is_single($E) else "the error bound of this rewrite holds for float32 only"
proven keeps_nans(%x) else "a row with a NaN may not be NaN throughout"
proven log_keeps_classes(%x) else "the logarithm of NaN or infinity is a number on some CPUs"
not of empty tensors
bound of roundings: "exponentials summed in another order"
for $d = 1, $h = false

rule expand-log-softmax-of-any
    The sum of the exponentials is from 1 on, or NaN (of a row with an infinity), of which some CPUs'
    logarithm makes a number; divided by itself it is 1, or NaN.
Before:
    %y = aten._log_softmax.default(%x, $d, $?h) : (tensor<$*S x $E>) -> …
After:
    %m = aten.amax.default(%x, [from_front(%x, $d)], true)
    %b = aten.sub.Tensor(%x, %m)
    %e = aten.exp.default(%b)
    %t = aten.sum.dim_IntList(%e, [from_front(%x, $d)], true)
    %l = aten.log.default(%t)
    %o = aten.div.Tensor(%t, %t)
    %n = aten.mul.Tensor(%l, %o)
    %y = aten.sub.Tensor(%b, %n)
where is_single($E) else "the error bound of this rewrite holds for float32 only"
proven keeps_nans(%x) else "a row with a NaN may not be NaN throughout"
not of empty tensors
bound of roundings: "exponentials summed in another order"
for $d = 1, $h = false

rule expand-logsumexp
    torch takes 0 from a row in place of its greatest where that is infinite; the largest number does
    as well, and is a clamp: −∞ − m is −∞, whose exponential is 0, and the logarithm of 0 is −∞. An
    infinite sum stands beside its logarithm, of which some CPUs make a number.
Before:
    %y = aten.logsumexp.default(%x, $a, $?k) : (tensor<$*S x $E>) -> …
After:
    %g = aten.amax.default(%x, all_from_front(%x, $a), true)
    %m = aten.clamp.default(%g, -3.4028234663852886e+38, 3.4028234663852886e+38)
    %b = aten.sub.Tensor(%x, %m)
    %e = aten.exp.default(%b)
    %t = aten.sum.dim_IntList(%e, all_from_front(%x, $a), true)
    %l = aten.log.default(%t)
    %s = aten.add.Tensor(%l, %m)
    %c = aten.clamp.default(%t, none, 3.4028234663852886e+38)
    %r = aten.sub.Tensor(%t, %c)
    %z = aten.add.Tensor(%s, %r)
    %y = aten.squeeze.dims(%z, dropped(%x, $a, $k))
where is_single($E) else "the error bound of this rewrite holds for float32 only"
where names_axes($a) else "it names no axes"
proven keeps_nans(%x) else "the result of a row with a NaN may be a number"
not of empty tensors
bound of roundings: "exponentials summed in another order"
for $a = [1], $k = false

rule expand-log1p-of-power
    The logarithm of 1 + e where e is at most 1, as in a softplus. XNNPACK has no log1p, and its
    logarithm is off by 1e-7 of 1 near 1, so that a tail of e⁻²⁰ is lost.
Before:
    %a = aten.abs.default(%x)
    %n = aten.neg.default(%a)
    %e = aten.exp.default(%n)
    %y = aten.log1p.default(%e) : (tensor<$*S x $E>) -> …
After:
    %b = aten.abs.default(%x)
    %m = aten.neg.default(%b)
    %f = aten.exp.default(%m)
    %o = aten.add.Scalar(%f, 1)
    %y = aten.log.default(%o)
where is_single($E) else "the error bound of this rewrite holds for float32 only"
proven is_beside_its_nan(%y, %x) else "the logarithm of NaN is a number on some CPUs"
bound 1e-6 relative, 3e-7 absolute: "1 + e rounds, and is between 1 and 2"

rule expand-log1p-of-power-of-any
    The logarithm of NaN is a number on some CPUs; e − e is 0, or NaN.
Before:
    %a = aten.abs.default(%x)
    %n = aten.neg.default(%a)
    %e = aten.exp.default(%n)
    %y = aten.log1p.default(%e) : (tensor<$*S x $E>) -> …
After:
    %b = aten.abs.default(%x)
    %m = aten.neg.default(%b)
    %f = aten.exp.default(%m)
    %o = aten.add.Scalar(%f, 1)
    %l = aten.log.default(%o)
    %z = aten.sub.Tensor(%f, %f)
    %y = aten.add.Tensor(%l, %z)
where is_single($E) else "the error bound of this rewrite holds for float32 only"
bound 1e-6 relative, 5e-7 absolute: "1 + e rounds, and is between 1 and 2"

rule expand-logarithm
    Logarithms of base 2 and 10 as multiples of the natural one, of numbers.
Before:
    %y = aten.$log.default(%x) : (tensor<$*S x $E>) -> …
After:
    %n = aten.log.default(%x) : … -> tensor<$*S x $E>
    %y = aten.mul.Scalar(%n, $factor)
where is_single($E) else "the error bound of this rewrite holds for float32 only"
proven is_away_from_zero(%x)
    else "the logarithm of a denormal number becomes that of zero, an infinity"
proven log_keeps_classes(%x) else "the logarithm of NaN or infinity is a number on some CPUs"
bound 7e-7 relative: "the product rounds once more, and so does its factor"
for each $log, $factor of (log2, 1.4426950408889634), (log10, 0.43429448190325176)

rule expand-logarithm-of-any
    NaN and infinity stand beside the logarithm of what they are limited to: x − min(x, largest) is
    0 for a number, and NaN or infinity for these.
Before:
    %y = aten.$log.default(%x) : (tensor<$*S x $E>) -> …
After:
    %c = aten.clamp.default(%x, none, 3.4028234663852886e+38) : … -> tensor<$*S x $E>
    %n = aten.log.default(%c) : … -> tensor<$*S x $E>
    %m = aten.mul.Scalar(%n, $factor) : … -> tensor<$*S x $E>
    %r = aten.sub.Tensor(%x, %c) : … -> tensor<$*S x $E>
    %y = aten.add.Tensor(%m, %r)
where is_single($E) else "the error bound of this rewrite holds for float32 only"
proven is_away_from_zero(%x)
    else "the logarithm of a denormal number becomes that of zero, an infinity"
bound 7e-7 relative: "the product rounds once more, and so does its factor"
for each $log, $factor of (log2, 1.4426950408889634), (log10, 0.43429448190325176)
"""

from __future__ import annotations

from collections.abc import Sequence
from math import inf
from sys import float_info

from xdsl.ir import SSAValue

from stepwell.dialects import aten
from stepwell.ir.declared.numerics import Proof, all_of
from stepwell.ir.program import Program
from stepwell.translate import range_analysis
from stepwell.translate.rewrites.xnnpack.floats.nans import keeps_nans  # noqa: F401  # pyright: ignore[reportUnusedImport]
from stepwell.translate.rules import read_rules
from stepwell.translate.rules.functions import from_front


def log_keeps_classes(value: SSAValue, program: Program) -> Proof | None:
    """Prove that no NaN or infinity reaches XNNPACK's logarithm, which returns 88.8 for them."""
    is_below = range_analysis.is_within(value, -inf, float_info.max, program)
    return all_of(is_below, range_analysis.is_never_nan(value, program))


def is_beside_its_nan(value: SSAValue, source: SSAValue, program: Program) -> Proof | None:
    """Whether a value may lose NaNs of its source: each user adds a clamp of the source to it,
    which is NaN there, or the source is never NaN.
    """
    if all(
        isinstance(use.operation, aten.AddTensor | aten.SubTensor)
        and any(_unclamped(operand) is _unclamped(source) for operand in use.operation.operands)
        for use in value.uses
    ):
        return Proof("the other summand is NaN where the source is")
    return range_analysis.is_never_nan(source, program)


def _unclamped(value: SSAValue) -> SSAValue:
    """Return the operand of the clamp (or negated clamp) that computes a value."""
    while isinstance(value.owner, aten.ClampDefault | aten.ReluDefault | aten.NegDefault):
        value = value.owner.operands[0]
    return value


def all_from_front(value: SSAValue, axes: Sequence[int]) -> list[int]:
    """Return the axes, counted from the front."""
    return [from_front(value, axis) for axis in axes]


def dropped(value: SSAValue, axes: Sequence[int], keeps: bool) -> list[int]:
    """Return the axes that a reduction removes from its result."""
    return [] if keeps else all_from_front(value, axes)


def names_axes(axes: Sequence[int]) -> bool:
    """Whether a reduction states its axes; an empty list may mean all axes."""
    return bool(axes)


RULES = read_rules(__doc__, vars(range_analysis) | globals(), ("decompose",))
