"""Decompositions into the arithmetic that every target has."""

from __future__ import annotations

from typing import Any

from stepwell.dialects import aten
from stepwell.dialects.aten.op import SchemaOp
from stepwell.ir.declared.bounds import roundings
from stepwell.ir.declared.numerics import Deviation
from stepwell.ir.dtypes import f32, is_float, torch_dtype
from stepwell.ir.program import Program
from stepwell.ir.rewriting.rewrite import Rewriter
from stepwell.translate.decompositions.values import Value
from stepwell.translate.lowerings.lowering import Out, known, lowerings_of, lowers, refuse
from stepwell.translate.range_analysis import keeps_denormals

PRODUCTS: dict[str, type[SchemaOp]] = {
    "aten.addmm.default": aten.MmDefault,
    "aten.baddbmm.default": aten.BmmDefault,
}


REGROUPED = roundings("torch rounds the parts of the sum otherwise")


@lowers(
    PRODUCTS,
    to="aten",
    phases=("tosa/decompose",),
    bound=REGROUPED,
    sample=("5xf32", "3x4xf32", "4x5xf32", {"beta": 0.5, "alpha": 2}),
)
def scaled_sum_to_products(
    added: Value, x: Value, other: Value, *, form: Any, alpha: Any, beta: Any, out: Out
) -> Value:
    """Decompose a scaled sum to `beta · a + alpha · (x @ y)`."""
    for factor in (alpha, beta):
        known(factor, "alpha or beta")
    if not is_float(out.dtype):
        refuse("the op multiplies integers")
    product = x.call(form, other, shape=out.shape)
    product = product if alpha == 1 else product * alpha
    if beta == 0:  # PyTorch ignores the summand then, even a NaN.
        return product
    return product + (added if beta == 1 else added * beta)


def _loses_denormals(op: Any, program: Program) -> Deviation | None:
    """Return the deviation of a reciprocal on engines that flush denormals to zero: infinity."""
    lost = Deviation("the reciprocal of a denormal number becomes that of zero, an infinity")
    return lost.unless(keeps_denormals(op.operands[0], program))


@lowers("aten.reciprocal.default", to="aten", deviation=_loses_denormals, sample=("2x4xf32",))
def reciprocal_to_division(x: Value, *, out: Out, b: Rewriter) -> Value:
    """Rewrite a reciprocal as the division of a constant one."""
    if x.dtype != out.dtype:
        refuse(f"the reciprocal of {x.dtype} is {out.dtype}")
    if not torch_dtype(x.dtype).is_floating_point:
        refuse("the reciprocal is complex")
    one = Value(b.weight(b.weights.number(1.0, torch_dtype(x.dtype), 1 if x.rank else 0)), b)
    return one.call(aten.DivTensor, x, shape=out.shape)


LARGEST_EXPONENT = 64
"""The roundings of n products add up to n / 2 ulp of the result."""


@lowers(
    "aten.pow.Tensor_Scalar",
    to="aten",
    phases=("decompose",),
    bound=roundings(
        "up to 64 products round in turn; what a negative power makes of a product that overflows "
        "or is subnormal is below the smallest normal number, or lost beyond the largest"
    ),
    sample=("2x3xf32", -5),
)
def expand_power(x: Value, exponent: Any) -> Value:
    """Decompose integer powers into products by squaring: XNNPACK has no power.

    `canonicalize/powers.py` rewrites x², x³ and x^−2 as PyTorch's kernel computes them; PyTorch
    uses the C library for other exponents. No square is larger than the result, so infinities are
    at the same elements. A fractional power stays a kernel, because a square root differs from
    `pow` at −0 (sign) and at −inf (NaN).
    """
    if not isinstance(exponent, int | float):
        refuse("the exponent is known only at run time")
    if x.dtype != f32:
        refuse("XNNPACK computes products in float32")
    if not float(exponent).is_integer():
        refuse(f"x ** {exponent} is not a product: roots lose the sign of powers of -0")
    if not 1 < abs(exponent) <= LARGEST_EXPONENT:
        refuse(
            f"the magnitude of the exponent {exponent} is not in the range 2 to {LARGEST_EXPONENT}"
        )
    square, value, left = x, None, abs(int(exponent))
    while True:
        if left & 1:
            value = square if value is None else value * square
        left >>= 1
        if not left:
            break
        square = square * square
    assert value is not None
    return value.call(aten.ReciprocalDefault) if exponent < 0 else value


RULES = lowerings_of(__name__)
