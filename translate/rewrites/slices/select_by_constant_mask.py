"""Constant folding: resolve a selection whose mask is a constant.

A mask that is true everywhere, or false everywhere, selects one side. A mixed mask that puts −∞ (or
+∞) elsewhere is the minimum with a constant of +∞ and −∞ (the maximum): equal in every bit for
every number. NaNs are the exception. A NaN that the mask would hide becomes visible, so this is
done only on request (`hides_no_nan`), and never by adding, where ∞ − ∞ would be a NaN.

Before:
    func.func @forward(%x: tensor<2x3xf32>) -> tensor<2x3xf32> {
      %m = stepwell.weight <"#ones"> "constant" : tensor<2x3xi1>
      %z = aten.neg.default(%x) : (tensor<2x3xf32>) -> tensor<2x3xf32>
      %y = aten.where.self(%m, %x, %z) : (tensor<2x3xi1>, tensor<2x3xf32>, tensor<2x3xf32>) -> tensor<2x3xf32>
      func.return %y : tensor<2x3xf32>
    }
After:
    func.func @forward(%x: tensor<2x3xf32>) -> tensor<2x3xf32> {
      func.return %x : tensor<2x3xf32>
    }
"""

from __future__ import annotations

from dataclasses import dataclass
from math import inf
from typing import ClassVar

import torch
from xdsl.ir import Operation, SSAValue

from stepwell.dialects import aten
from stepwell.dialects.aten.op import SchemaOp
from stepwell.ir.core import weight_key
from stepwell.ir.dtypes import dtype_name, is_float
from stepwell.ir.program import Program
from stepwell.ir.rewriting.rewrite import Refusal, Rewrite, Rewriter
from stepwell.ir.types import element
from stepwell.ir.weights import recipe
from stepwell.translate.rewrites.building import become, same_type
from stepwell.translate.rewrites.constants.recipes import derive


@recipe("limit-by-mask")
def limit_by_mask(mask: torch.Tensor, keep: bool, limit: float, dtype: str) -> torch.Tensor:
    """Return −`limit` where the mask equals `keep`, `limit` elsewhere."""
    free = torch.full(mask.shape, -limit, dtype=getattr(torch, dtype), device=mask.device)
    return torch.where(mask == keep, free, limit)


@dataclass(frozen=True)
class Chosen:
    """`value`; or `form(value, limits)` with the limits derived from the mask."""

    op: SchemaOp
    value: SSAValue
    form: type[SchemaOp] | None
    mask: str
    keep: bool


@dataclass(frozen=True)
class SelectByConstantMask(Rewrite[Chosen]):
    """`where` and `masked_fill` with a constant mask to one side, or a minimum or maximum."""

    hides_no_nan: bool = False
    name: ClassVar[str] = "select-by-constant-mask"
    anchors: ClassVar[tuple[type[Operation], ...]] = (
        aten.WhereSelf,
        aten.WhereScalarOther,
        aten.WhereScalarSelf,
        aten.MaskedFillScalar,
        aten.MaskedFillTensor,
    )

    def match(self, op: SchemaOp, program: Program) -> Chosen | Refusal | None:
        """Guards: the mask is a weight; uniform, or the other side is an infinity."""
        names = op.SCHEMA.by_name
        mask = op.arg("condition" if "condition" in names else "mask")
        key = weight_key(mask)
        if key is None:
            return None
        weight = program.weights.get(key)
        if "condition" in names:
            sides = {True: op.arg("self"), False: op.arg("other")}
        else:
            sides = {True: op.arg("value"), False: op.arg("self")}
        for keep, value in sides.items():
            if bool((weight == keep).all()):
                if isinstance(value, SSAValue) and same_type(value, op.results[0]):
                    return Chosen(op, value, None, key, keep)
                return Refusal(
                    "the side that is always chosen is a number, or is broadcast or cast"
                )
        if not self.hides_no_nan:
            return Refusal("a NaN that the mask hides would be seen in arithmetic")
        for keep, value in sides.items():
            fill = number_of(sides[not keep], program)
            if fill in (inf, -inf) and isinstance(value, SSAValue):
                if not same_type(value, op.results[0]) or not is_float(element(value.type)):
                    return Refusal("the kept side is broadcast or cast")
                form = aten.MinimumDefault if fill == -inf else aten.MaximumDefault
                return Chosen(op, value, form, key, keep)
        return Refusal("neither side is an infinity, so that no arithmetic is exact")

    def build(self, match: Chosen, rw: Rewriter) -> None:
        """Build nothing, or the minimum or maximum with the derived limits."""
        result = match.op.results[0]
        if match.form is None:
            rw.replace(match.op, [match.value])
            return
        limit = -inf if match.form is aten.MinimumDefault else inf
        dtype = dtype_name(element(result.type))
        limits = derive(
            rw, "limit-by-mask", [match.mask], keep=match.keep, limit=limit, dtype=dtype
        )
        become(rw, match.op, match.form, match.value, limits)


@dataclass(frozen=True)
class Filled:
    """A selection of `value` where `mask` equals `kept`, and of one number elsewhere."""

    mask: SSAValue
    kept: bool
    value: SSAValue
    fill: float


def filled(op: SchemaOp, program: Program) -> Filled | None:
    """Return the sides of `where` or `masked_fill`, if one side is a known number."""
    is_where = "condition" in op.SCHEMA.by_name
    mask, one = op.arg("condition" if is_where else "mask"), op.arg("self")
    other = op.arg("other" if is_where else "value")
    sides = [(True, one, other), (False, other, one)] if is_where else [(False, one, other)]
    for kept, value, number in sides:
        if (fill := number_of(number, program)) is not None:
            return Filled(mask, kept, value, fill) if isinstance(value, SSAValue) else None
    return None


def number_of(value: object, program: Program) -> float | None:
    """Return the number that every element of an argument has, if it is known."""
    if isinstance(value, int | float):
        return float(value)
    if isinstance(value, SSAValue) and (key := weight_key(value)) is not None:
        weight = program.weights.get(key)
        if weight.numel() and bool((weight == weight.reshape(-1)[0]).all()):
            return float(weight.reshape(-1)[0])
    return None
