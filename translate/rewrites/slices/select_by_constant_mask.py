"""Constant folding: a selection by a uniform mask is one of its sides."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

from xdsl.ir import SSAValue

from stepwell.dialects.aten.op import SchemaOp
from stepwell.ir.core import weight_key
from stepwell.ir.program import Program
from stepwell.ir.rewriting.rewrite import Rewriter
from stepwell.translate.decompositions.values import Value
from stepwell.translate.lowerings.lowering import lowerings_of, lowers, refuse
from stepwell.translate.rewrites.building import same_type

SELECTIONS = (
    "aten.where.self",
    "aten.where.ScalarOther",
    "aten.where.ScalarSelf",
    "aten.masked_fill.Scalar",
    "aten.masked_fill.Tensor",
)
"""Ops that select between two sides by a mask."""


@dataclass(frozen=True)
class Selection:
    """The selection of `value` where `mask` equals `kept`, else `other` (values or numbers)."""

    mask: SSAValue
    kept: bool
    value: Any
    other: Any

    def turned(self) -> Selection:
        """Return the same selection with its sides exchanged."""
        return Selection(self.mask, not self.kept, self.other, self.value)


def selection(op: SchemaOp) -> Selection:
    """Return the mask and both sides of an op that selects, one of `SELECTIONS`."""
    if "condition" in op.SCHEMA.by_name:
        return Selection(op.arg("condition"), True, op.arg("self"), op.arg("other"))
    return Selection(op.arg("mask"), False, op.arg("self"), op.arg("value"))


def filled(op: SchemaOp, program: Program) -> Selection | None:
    """Return the selection between a value and a known number as `other`; None if there is none."""
    sides = selection(op)
    for side in (sides, sides.turned()) if sides.kept else (sides,):
        if (fill := number_of(side.other, program)) is not None:
            return replace(side, other=fill) if isinstance(side.value, SSAValue) else None
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


@lowers(
    *SELECTIONS,
    to="aten",
    sample="""
    %m = stepwell.weight <"m#ones"> "constant" : tensor<2x3xi1>
    %z = aten.neg.default(%x) : (tensor<2x3xf32>) -> tensor<2x3xf32>
    %y = aten.where.self(%m, %x, %z) : (tensor<2x3xi1>, tensor<2x3xf32>, tensor<2x3xf32>) -> tensor<2x3xf32>
    """,
)
def select_by_constant_mask(*, op: SchemaOp, b: Rewriter) -> Value | None:
    """Replace a selection by the side that its constant mask always selects."""
    sides = selection(op)
    if (key := weight_key(sides.mask)) is None:
        return None
    mask = b.weights.get(key)
    both = (sides, sides.turned())
    chosen = next((side.value for side in both if bool((mask == side.kept).all())), None)
    if chosen is None:
        refuse("arithmetic would propagate a NaN that the mask hides")
    if not isinstance(chosen, SSAValue) or not same_type(chosen, op.results[0]):
        refuse("the side that is always selected is a number, or is broadcast or cast")
    return Value(chosen, b)


RULES = lowerings_of(__name__)
