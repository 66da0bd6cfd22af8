"""Canonicalize powers, quotients and factors to products and roots, as torch's kernels do.

rule square-to-product
    x² by its own name.
Before:
    %y = aten.square.default(%x) : (tensor<$*S x $E>) -> …
After:
    %y = aten.mul.Tensor(%x, %x)
where is_single_or_double($E) else "torch rounds a power of this dtype once, products would twice"

rule power-to-square
    x².
Before:
    %y = aten.pow.Tensor_Scalar(%x, 2) : (tensor<$*S x $E>) -> …
After:
    %y = aten.mul.Tensor(%x, %x)
where is_single_or_double($E) else "torch rounds a power of this dtype once, products would twice"

rule power-to-cube
    x³ = x²·x.
Before:
    %y = aten.pow.Tensor_Scalar(%x, 3) : (tensor<$*S x $E>) -> …
After:
    %s = aten.mul.Tensor(%x, %x) : … -> tensor<$*S x $E>
    %y = aten.mul.Tensor(%s, %x)
where is_single_or_double($E) else "torch rounds a power of this dtype once, products would twice"

rule power-to-root
    x^½.
Before:
    %y = aten.pow.Tensor_Scalar(%x, 0.5) : (tensor<$*S x $E>) -> …
After:
    %y = aten.sqrt.default(%x)
where is_single_or_double($E) else "torch rounds a power of this dtype once, products would twice"

rule power-to-inverse-root
    x^−½.
Before:
    %y = aten.pow.Tensor_Scalar(%x, -0.5) : (tensor<$*S x $E>) -> …
After:
    %y = aten.rsqrt.default(%x)
where is_single_or_double($E) else "torch rounds a power of this dtype once, products would twice"
proven keeps_denormals(%x)
    else "the reciprocal root of zero or of a denormal number may be NaN"
proven has_right_inverse_root(%x)
    else "beyond 2^126 XNNPACK's reciprocal root may be 50 % too large"

rule power-to-inverse-of-root
    x^−½ where numbers may be so large that XNNPACK's reciprocal root is not right.
Before:
    %y = aten.pow.Tensor_Scalar(%x, -0.5) : (tensor<$*S x $E>) -> …
After:
    %r = aten.sqrt.default(%x) : … -> tensor<$*S x $E>
    %y = aten.reciprocal.default(%r)
where is_single_or_double($E) else "torch rounds a power of this dtype once, a quotient would twice"
proven keeps_denormals(%x) else "the root of a denormal number may be zero"
bound 4e-7 relative: "a root and a quotient round"

rule power-to-reciprocal
    x^−1.
Before:
    %y = aten.pow.Tensor_Scalar(%x, -1) : (tensor<$*S x $E>) -> …
After:
    %y = aten.reciprocal.default(%x)
where is_single_or_double($E) else "torch rounds a power of this dtype once, products would twice"

rule power-to-inverse-square
    x^−2 is the reciprocal of x².
Before:
    %y = aten.pow.Tensor_Scalar(%x, -2) : (tensor<$*S x $E>) -> …
After:
    %s = aten.mul.Tensor(%x, %x) : … -> tensor<$*S x $E>
    %y = aten.reciprocal.default(%s)
where is_single_or_double($E) else "torch rounds a power of this dtype once, products would twice"

rule division-to-multiplication
    By a power of two: the quotient and the product with the reciprocal round the same real number.
    Any other divisor stays: 1/3 is rounded once before the product is.
Before:
    %y = aten.div.Scalar(%x, $c) : (tensor<$*S x $E>) -> …
After:
    %y = aten.mul.Scalar(%x, reciprocal($c))
where is_float($E)
where has_normal_reciprocal($c, $E)
    else "1/{c} is not exact: multiplying by it would round twice"
for $c = 8.0

rule merge-scalar-products
    (x·a)·b is x·(a·b).
Before:
    %p = aten.mul.Scalar(%x, $?a) : (tensor<$*S x $E>) -> …
    %y = aten.mul.Scalar(%p, $?b)
After:
    %y = aten.mul.Scalar(%x, product($a, $b))
where reads_once(%p) for cost
where is_single_or_double($E)
where is_number($a)
where is_number($b)
where stays_in_range($a, $b, $E) for overflow
    else "{a}·{b} may overflow or underflow where the steps do not"
where are_to_one_side($a, $b) for overflow
    else "one of {a} and {b} shrinks and one grows: a step may overflow or underflow where {a}·{b} does not"
bound 4e-7 relative: "one rounding for two"
for $a = 1.7, $b = 1.3
"""

from __future__ import annotations

from math import inf

from xdsl.ir import Attribute, SSAValue

from stepwell.ir.compat.torch.lazy_imports import torch
from stepwell.ir.declared.numerics import Proof, flushes
from stepwell.ir.dtypes import torch_dtype
from stepwell.ir.program import Program
from stepwell.translate.range_analysis import is_within, keeps_denormals  # noqa: F401  # pyright: ignore[reportUnusedImport]
from stepwell.translate.rules import read_rules
from stepwell.translate.rules.predicates import is_power_of_two


def has_right_inverse_root(value: SSAValue, program: Program) -> Proof | None:
    """Prove that no number is so large that XNNPACK's reciprocal root is inaccurate."""
    if flushes(program.context):
        return is_within(value, -inf, 2.0**126, program)
    return Proof("the target's reciprocal root is right for every number")


def has_normal_reciprocal(number: float, of: Attribute) -> bool:
    """Whether a number is a power of two whose reciprocal is a normal number of a float type."""
    smallest = torch.finfo(torch_dtype(of)).tiny
    return is_power_of_two(number) and smallest <= abs(1 / number) <= 1 / smallest


def stays_in_range(first: float, second: float, of: Attribute) -> bool:
    """Whether the first factor and the product of both are far from the limits of a float type."""
    limits = torch.finfo(torch_dtype(of))
    low, high = limits.tiny**0.5, limits.max**0.5
    return low <= abs(float(first) * float(second)) <= high and low <= abs(first) <= high


def are_to_one_side(first: float, second: float) -> bool:
    """Whether both factors increase a number or both decrease it, so that an overflow remains."""
    return (abs(first) <= 1) == (abs(second) <= 1) or 1 in (abs(first), abs(second))


RULES = read_rules(__doc__, globals())
