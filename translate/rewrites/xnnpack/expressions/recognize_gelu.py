"""Recognize a GELU that is written with erf: XNNPACK has gelu and no erf.

BERT, Megatron and ESM write it as `x * 0.5 * (1 + erf(x / sqrt(2)))`, in various orders. The factor
may be at any place and may be any number: the rule matches `x * (1 + erf(x / sqrt(2)))`, which is
twice a GELU, and products with numbers merge.
"""

from __future__ import annotations

from collections.abc import Iterator
from math import sqrt

from xdsl.ir import SSAValue

from stepwell.dialects import aten
from stepwell.ir.dtypes import f32
from stepwell.ir.rewriting.rewrite import Bound
from stepwell.translate.decompositions.values import Value
from stepwell.translate.lowerings.lowering import lowerings_of, lowers, refuse

NEAR = 1e-5
"""The relative tolerance for the root of two, which models write with as few digits as 1.4142."""


@lowers(
    "aten.mul.Tensor",
    to="aten",
    bound=Bound(
        1e-6,
        4e-6,
        "1 + erf cancels where x is below -2, and a root of two may be written with four digits",
    ),
    sample="""
    %a = aten.mul.Scalar(%x, 0.5) : (tensor<2x3xf32>) -> tensor<2x3xf32>
    %b = aten.div.Scalar(%x, 1.4142135623730951) : (tensor<2x3xf32>) -> tensor<2x3xf32>
    %c = aten.erf.default(%b) : (tensor<2x3xf32>) -> tensor<2x3xf32>
    %d = aten.add.Scalar(%c, 1.0) : (tensor<2x3xf32>) -> tensor<2x3xf32>
    %y = aten.mul.Tensor(%a, %d) : (tensor<2x3xf32>, tensor<2x3xf32>) -> tensor<2x3xf32>
    """,
)
def recognize_gelu(one: Value, other: Value) -> Value | None:
    """Write `x * (1 + erf(x / sqrt(2)))`, with constant factors, as a number times `gelu(x)`."""
    for value, gate in ((one, other), (other, one)):
        for outer, sum_ in _scaled(gate.ssa):
            if (inside := _in_erf(sum_)) is not None:
                if value.dtype != f32:
                    refuse("the error bound of this rewrite holds for float32 only")
                found = _same(value.ssa, inside)
                if found is None:
                    refuse("the op is not a product of x and 1 + erf(x / sqrt(2))")
                factor, x = 2 * found[0] * outer, Value(found[1], value.b)
                gelu = x.call(aten.GeluDefault)
                return gelu if factor == 1 else gelu * factor
    return None


def _same(value: SSAValue, inside: SSAValue) -> tuple[float, SSAValue] | None:
    """Return `factor, x` if `value` is `factor * x` and `inside` is `x / sqrt(2)`."""
    for factor, x in _scaled(value):
        for scale, same in _scaled(inside):
            if same is x and x.type == value.type and abs(scale * sqrt(2) - 1) <= NEAR:
                return factor, x
    return None


def _in_erf(gate: SSAValue) -> SSAValue | None:
    """Return `u` of `1 + erf(u)`."""
    owner = gate.owner
    if not isinstance(owner, aten.AddScalar) or (owner.arg("other"), owner.arg("alpha")) != (1, 1):
        return None
    erf = owner.operands[0].owner
    return erf.operands[0] if isinstance(erf, aten.ErfDefault) else None


def _scaled(value: SSAValue) -> Iterator[tuple[float, SSAValue]]:
    """Yield every decomposition of a value into a number times another value."""
    factor = 1.0
    yield factor, value
    while isinstance(value.owner, aten.MulScalar | aten.DivScalar):
        number = value.owner.arg("other")
        if not isinstance(number, int | float) or not number:
            return
        factor = factor * number if isinstance(value.owner, aten.MulScalar) else factor / number
        value = value.owner.operands[0]
        yield factor, value


RULES = lowerings_of(__name__)
