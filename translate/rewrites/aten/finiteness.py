"""Proof that a value is finite as long as the activations it is computed from are.

Products, sums, choices and layouts of finite values are; that a product might overflow is left out of
account, as it is for attention's scores themselves. An input of the program proves nothing.
"""

from __future__ import annotations

from math import isfinite

from xdsl.dialects.builtin import TensorType
from xdsl.ir import SSAValue

from stepwell.dialects.aten.op import SchemaOp
from stepwell.ir.core import WeightOp
from stepwell.ir.dtypes import is_float
from stepwell.ir.families import is_of
from stepwell.ir.program import Program
from stepwell.ir.types import element
from stepwell.translate.rewrites.aten.attention_pattern import PRODUCTS

LAYERS = PRODUCTS | {
    "aten.linear.default",
    "aten.addmm.default",
    "aten.einsum.default",
    "aten.convolution.default",
}
"""Ops that sum products of activations: what a model computes, not what masks it."""
OF_FINITE = frozenset(
    f"aten.{name}"
    for name in "add.Tensor add.Scalar sub.Tensor sub.Scalar mul.Tensor mul.Scalar neg.default".split()
)
"""Ops, beside those that move, choose and cast, whose results are finite if their operands and numbers are."""


def is_finite(value: SSAValue, program: Program) -> bool:
    """Whether no element is infinite or NaN, activations being finite."""
    pending, met = [value], {value}
    while pending:
        given = pending.pop()
        owner = given.owner
        if isinstance(given.type, TensorType) and not is_float(element(given.type)):
            continue  # Integers and truth values are numbers.
        if isinstance(owner, WeightOp):
            held = program.weights.get(owner.key.data)
            if not bool(held.isfinite().all()):
                return False
            continue
        if not isinstance(owner, SchemaOp):
            return False
        if owner.name in LAYERS:
            continue
        passes = owner.name in OF_FINITE or is_of(owner, "movement", "lookup", "choice", "cast")
        if not passes or not _has_finite_numbers(owner):
            return False
        fresh = [operand for operand in owner.operands if operand not in met]
        met.update(fresh)
        pending += fresh
    return True


def _has_finite_numbers(op: SchemaOp) -> bool:
    names = ("self", "other", "alpha", "value")
    numbers = [op.arg(name) for name in names if name in op.SCHEMA.by_name]
    return all(isfinite(n) for n in numbers if isinstance(n, int | float))
