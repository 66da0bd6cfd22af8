"""The pattern of decomposed scaled dot product attention: one definition for all its users.

    softmax((q·s₁) (kᵀ·s₂) · s₃ + mask) v, with a guard that gives zeros for rows that are all −inf

Any number of layout ops may be between the parts: views, permutes, expands, copies. The scalar
lifting guard (`scales_attention`) and the recognizer (`trace_scores`) both use the sets and
functions below, so that the guard protects every scale that the recognizer matches.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass, field
from math import prod

from xdsl.ir import Operation, SSAValue

from stepwell.dialects.aten.op import SchemaOp
from stepwell.ir.compat.torch.lazy_imports import torch
from stepwell.ir.declared.families import is_of, lays_out
from stepwell.ir.declared.numerics import Deviation, Proof
from stepwell.ir.dtypes import torch_dtype
from stepwell.ir.program import Program
from stepwell.ir.types import dims, element
from stepwell.translate.range_analysis import most

SCORES = (
    "%s = aten.bmm.default(%a, %b) : (tensor<2x3x4xf32>, tensor<2x4x3xf32>) -> tensor<2x3x3xf32>"
)
WEIGHTS = "%w = aten._softmax.default(%s, 2, false) : (tensor<2x3x3xf32>) -> tensor<2x3x3xf32>"
"""Decomposed attention in examples of rewrites."""
SCALES = frozenset(f"aten.{name}" for name in "mul.Scalar div.Scalar mul.Tensor div.Tensor".split())
SUMS = frozenset(f"aten.{name}" for name in "neg.default add.Tensor sub.Tensor".split())
PRODUCTS = frozenset(
    f"aten.{name}" for name in "bmm.default matmul.default mm.default baddbmm.default".split()
)
MASKING = frozenset(
    f"aten.{name}"
    for name in (
        "add.Tensor add.Scalar sub.Tensor where.self masked_fill.Scalar masked_fill.Tensor "
        "where.ScalarOther where.ScalarSelf"
    ).split()
)
"""Ops that may be between the scores and the probabilities."""
OVERFLOWN = Deviation("NaN, not zeros, where all scores of a row overflow to −∞", accepted=True)
"""Products of finite numbers may overflow, to −∞ in a whole row."""


def hands_on(op: Operation) -> bool:
    """Whether an op passes a factor on: rotary embedding slices, negates, concatenates and adds.

    If so, a multiplication before the op may be the scale of an attention.
    """
    return op.name in SCALES | SUMS or is_of(op, "movement", "lookup", "padding", "cast")


def scales_attention(op: Operation) -> bool:
    """Whether a multiplication may be the scale of an attention: if in doubt, yes.

    It is one if its result reaches the product QKᵀ through layout ops, casts, further scales and
    other ops that pass a factor on, and that product reaches the probabilities. It is also one if it is
    between the product and the probabilities themselves.
    """
    after_product = any(_comes_from_product(operand) for operand in op.operands)
    return any(_reaches_probabilities(result, after_product) for result in op.results)


def _reaches_probabilities(value: SSAValue, after_product: bool) -> bool:
    seen: set[tuple[SSAValue, bool]] = set()
    stack = [(value, after_product)]
    while stack:
        current = stack.pop()
        if current in seen:
            continue
        seen.add(current)
        held, product_passed = current
        for use in held.uses:
            user = use.operation
            if product_passed and is_of(user, "probabilities"):
                return True
            if user.name in PRODUCTS and not product_passed:
                stack.extend((result, True) for result in user.results)
            elif hands_on(user) or (product_passed and user.name in MASKING):
                stack.extend((result, product_passed) for result in user.results)
    return False


def _comes_from_product(value: SSAValue) -> bool:
    seen: set[SSAValue] = set()
    stack = [value]
    while stack:
        current = stack.pop()
        owner = current.owner
        if current in seen or not isinstance(owner, Operation):
            continue
        seen.add(current)
        if owner.name in PRODUCTS:
            return True
        if hands_on(owner) or owner.name in MASKING:
            stack.extend(owner.operands)
    return False


@dataclass(frozen=True)
class Traced:
    """A tensor traced back over layout ops and constant scales.

    `value` is the end of the trace, `scale` the product of the factors met, `chain` the layout ops
    between the last factor and the tensor, outermost (nearest to `value`) first. Applying `chain`
    to `value` gives the tensor without its scale.
    """

    value: SSAValue
    scale: float
    chain: tuple[SchemaOp, ...] = field(default=())


def trace_scale(tensor: SSAValue) -> Traced:
    """Trace a query or key of an attention back through layout ops and multiplications by
    constants.
    """
    walked: list[SchemaOp] = []
    value, scale, chain = tensor, 1.0, ()
    current = tensor
    while isinstance(owner := current.owner, SchemaOp):
        factor = constant_factor(owner)
        if factor is not None:
            scale *= factor
            value, chain = owner.operands[0], tuple(reversed(walked))
        elif lays_out(owner) and len(owner.operands) == 1:
            walked.append(owner)
        else:
            break
        current = owner.operands[0]
    return Traced(value, scale, chain)


def constant_factor(op: SchemaOp) -> float | None:
    """Return the factor of a `mul.Scalar` or `div.Scalar` if it keeps the dtype, else None."""
    if op.name not in ("aten.mul.Scalar", "aten.div.Scalar"):
        return None
    if op.operands[0].type != op.results[0].type:
        return None
    number = op.arg("other")
    if not isinstance(number, int | float):
        return None
    if op.name == "aten.mul.Scalar":
        return float(number)
    return 1.0 / number if number else None


def layout_users(value: SSAValue) -> Iterator[Operation]:
    """Return the users of a value, through layout ops."""
    for use in value.uses:
        if lays_out(use.operation):
            for result in use.operation.results:
                yield from layout_users(result)
        else:
            yield use.operation


def scores_are_finite(q: SSAValue, k: SSAValue, scale: float, program: Program) -> Proof | None:
    """Prove that no product of a query with a key is infinite: both are bounded (or NaN)."""
    depth = dims(q.type)[-1]
    sizes = most((q, k), program)
    if not isinstance(depth, int) or math.inf in sizes:
        return None
    largest = torch.finfo(torch_dtype(element(q.type))).max
    bound = 2 * depth * prod(sizes)  # Twice: a sum of many products rounds.
    is_small = max(bound, bound * abs(scale), sizes[0] * abs(scale)) < largest
    return Proof("no score is infinite") if is_small else None
