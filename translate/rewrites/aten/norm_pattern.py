"""What norms look like: `x · rsqrt(mean(x²) + ε)`, and `x / (sum(x) + ε)`."""

from __future__ import annotations

from math import prod

import torch
from xdsl.ir import SSAValue

from stepwell.dialects.aten.op import SchemaOp
from stepwell.ir.dtypes import torch_dtype
from stepwell.ir.types import dims, element

LEAST_EPSILON = 1e-30
"""A number that no engine reads as zero, and beside which the squares that one does are nothing."""


def elements_of_norm(op: SchemaOp) -> int | None:
    """How many elements the mean of `x · rsqrt(mean(x²) + ε)` is taken of; None if it is another."""
    if len(op.operands) != 2:
        return None
    for one, other in (op.operands, tuple(reversed(op.operands))):
        root = made_by(other, "rsqrt")
        total = root and made_by(root.operands[0], "add")
        mean = total and made_by(total.operands[0], "mean")
        if total is None or mean is None or not _is_square_of(mean.operands[0], one):
            continue
        epsilon, held = total.arg("other"), torch_dtype(element(one.type))
        least = max(LEAST_EPSILON, torch.finfo(held).smallest_normal)
        if not isinstance(epsilon, int | float) or epsilon < least or not is_plain(total):
            continue
        if mean.name != "aten.mean.dim" or not mean.arg("keepdim"):
            continue
        shape = dims(one.type)
        over = [shape[axis] for axis in mean.arg("dim") or range(len(shape))]
        sizes = [size for size in over if isinstance(size, int)]
        return prod(sizes) if len(sizes) == len(over) else None
    return None


def made_by(value: SSAValue, name: str) -> SchemaOp | None:
    """The op of this name, whatever its overload, that makes a value."""
    op = value.owner
    return op if isinstance(op, SchemaOp) and op.name.split(".")[1] == name else None


def _is_square_of(square: SSAValue, value: SSAValue) -> bool:
    power = made_by(square, "pow")
    if power is not None:
        return power.operands[0] is value and power.arg("exponent") in (2, 2.0)
    op = made_by(square, "square") or made_by(square, "mul")
    return op is not None and all(given is value for given in op.operands) and _is_whole(op)


def _is_whole(op: SchemaOp) -> bool:
    """Whether all factors are operands: `mul.Scalar` has one that is none."""
    return "Scalar" not in op.name


def is_plain(op: SchemaOp) -> bool:
    """Whether a sum's second operand has no factor."""
    return "alpha" not in op.SCHEMA.by_name or op.arg("alpha") == 1


def is_part_of_sum(op: SchemaOp) -> bool:
    """Whether numbers are divided by their sum, or by that and a number that is not negative."""
    if op.name != "aten.div.Tensor":
        return False
    total = op.operands[1]
    more = made_by(total, "add")
    given = more and more.arg("other")
    if more is not None and is_plain(more) and isinstance(given, int | float) and given >= 0:
        total = more.operands[0]
    found = made_by(total, "sum")
    return found is not None and found.operands[0] is op.operands[0]
