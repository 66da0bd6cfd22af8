"""Proof that no row of an attention mask is fully masked (all −inf, or all false).

The weights of a fully masked row are NaN, and attention defines them as zero. The guard that decides
this at run time may be removed only where no row is fully masked.
"""

from __future__ import annotations

from xdsl.ir import SSAValue

from stepwell.dialects import aten
from stepwell.dialects.aten.op import SchemaOp
from stepwell.ir.axes.maps import axis_map
from stepwell.ir.compat.torch.lazy_imports import torch
from stepwell.ir.core import WeightOp
from stepwell.ir.declared.families import is_of, moves_one
from stepwell.ir.declared.numerics import numerics_of
from stepwell.ir.dtypes import i1
from stepwell.ir.program import Program
from stepwell.ir.rewriting.rewrite import Refusal
from stepwell.ir.signature import least_of
from stepwell.ir.types import dims, element
from stepwell.translate.range_analysis import interval
from stepwell.translate.range_analysis.assumptions import ANY, trusts_finite
from stepwell.translate.range_analysis.evaluation import ABSORBED


def unopened_rows(mask: SSAValue, program: Program, trusts: bool = True) -> Refusal | None:
    """Return None if every row of `mask` (along its last axis) has an unmasked element.

    The proof covers constants (by inspection), whole rows of a proven tensor, beginnings of rows
    whose first element is unmasked, and values that are never −∞, such as positions relative to a
    query after a norm. For a sum with numbers that are too small to make a finite number infinite,
    the other operand decides. If `numerics` declares activations to be finite numbers, a mask that
    layers compute has no fully masked row, unless `trusts` is false; the caller declares the
    deviation (`arguments.overflows`).
    """
    if element(mask.type) != i1:
        if interval(mask, program).low > float("-inf"):
            return None
        trusts = trusts and numerics_of(program.context) == "finite"
        if trusts and trusts_finite([mask], program, "", inputs=ANY) is None:
            return None
    owner = mask.owner
    if isinstance(owner, aten.AddTensor) and owner.arg("alpha") == 1:
        for one, other in (owner.operands, tuple(reversed(owner.operands))):
            if interval(one, program).most < ABSORBED:
                return unopened_rows(other, program, trusts)
    begins = False
    while isinstance(owner := mask.owner, SchemaOp) and picks_elements(owner):
        if keeps_beginnings(owner):
            begins = True
        elif not keeps_rows(owner):
            return Refusal(f"{owner.name} may cut rows of the mask")
        mask = owner.operands[0]
    if not isinstance(mask.owner, WeightOp):
        return Refusal("the mask is known only at run time: a row may be all −inf")
    weight = program.weights.get(mask.owner.key.data)
    open_cells = weight if weight.dtype == torch.bool else weight > float("-inf")
    if begins:
        open_cells = open_cells[..., :1]
    if not bool(open_cells.any(dim=-1).all()):
        rows = "whose beginning" if begins else "that"
        return Refusal(f"row {rows} of the constant mask is all −inf")
    return None


def keeps_beginnings(op: SchemaOp) -> bool:
    """Whether an op cuts rows after their first element and keeps that element."""
    if op.name != "aten.slice.Tensor":
        return False
    rank = len(dims(op.operands[0].type))
    *rows, size = dims(op.results[0].type)
    if op.arg("dim") % rank != rank - 1 or op.arg("start") not in (0, None) or size == 0:
        return False
    # With as many columns as rows, there is no row if there is no column.
    return isinstance(size, int) or size in rows or least_of(size, op) >= 1


def keeps_rows(op: SchemaOp) -> bool:
    """Whether each row that an op takes from a tensor is a whole row of the tensor."""
    axes = axis_map(op)
    if axes is None or element(op.operands[0].type) != element(op.results[0].type):
        return False
    if axes.shapes[0][-1:] in ((), (1,)):
        return True  # In rows of one element, every element is a whole row.
    others = range(1, len(op.operands))
    last = len(axes.shape) - 1
    chosen = any(last in axes.seen(o, a) for o in others for a in range(len(axes.shapes[o])))
    return axes.after(0, len(axes.shapes[0]) - 1) == last and not chosen


def picks_elements(op: SchemaOp) -> bool:
    """Whether a result consists of some or all elements of the first operand."""
    return moves_one(op) or is_of(op, "lookup", "cast")


def picked_rows(mask: SSAValue) -> tuple[list[SchemaOp], SSAValue]:
    """Return the ops that select a mask's rows, last first, and the tensor that has the rows."""
    ops: list[SchemaOp] = []
    while isinstance(owner := mask.owner, SchemaOp) and picks_elements(owner):
        ops.append(owner)
        mask = owner.operands[0]
    return ops, mask
