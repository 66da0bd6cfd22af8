"""Spell reductions over listed axes, in rising order, keeping them; a view drops them.

`mean`, `sum`, `amax`, `amin` and the values of `max` and `min` along an axis. A `dtype` argument
casts the operand first, as torch does.

Before:
    %a = aten.mean.dim(%x, [-1, 1]) : (tensor<2x3x4xf32>) -> tensor<2xf32>
    %b = aten.sum.default(%x) : (tensor<2x3x4xf32>) -> tensor<f32>
    func.return %a, %b : tensor<2xf32>, tensor<f32>
After:
    %0 = aten.mean.dim(%x, [1, 2], true) : (tensor<2x3x4xf32>) -> tensor<2x1x1xf32>
    %a = aten.view.default(%0, [2]) : (tensor<2x1x1xf32>) -> tensor<2xf32>
    %1 = aten.sum.dim_IntList(%x, [0, 1, 2], true) : (tensor<2x3x4xf32>) -> tensor<1x1x1xf32>
    %b = aten.view.default(%1, []) : (tensor<1x1x1xf32>) -> tensor<f32>
    func.return %a, %b : tensor<2xf32>, tensor<f32>
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar

from xdsl.ir import Attribute, Operation

from stepwell.dialects import aten
from stepwell.dialects.aten.op import SchemaOp
from stepwell.ir.bounds import roundings
from stepwell.ir.dtypes import dtype_name, i64, is_float
from stepwell.ir.program import Program
from stepwell.ir.rewriting import Bound, Refusal, Rewrite, Rewriter
from stepwell.ir.types import dims, element, tensor
from stepwell.translate.rewrites.building import (
    axes,
    cannot_be_viewed_as,
    cast,
    emit,
    kept,
    view,
)


@dataclass(frozen=True)
class Reduction:
    """`form(operand.to(dtype), axes, keepdim=True)`, then a view."""

    op: SchemaOp
    form: type[SchemaOp]
    axes: tuple[int, ...]
    dtype: Attribute | None


_FORMS: dict[type[SchemaOp], type[SchemaOp]] = {
    aten.MeanDefault: aten.MeanDim,
    aten.MeanDim: aten.MeanDim,
    aten.SumDefault: aten.SumDimIntList,
    aten.SumDimIntList: aten.SumDimIntList,
    aten.AmaxDefault: aten.AmaxDefault,
    aten.AminDefault: aten.AminDefault,
    aten.MaxDefault: aten.AmaxDefault,
    aten.MinDefault: aten.AminDefault,
    aten.MaxDim: aten.AmaxDefault,
    aten.MinDim: aten.AminDefault,
}


@dataclass(frozen=True)
class NormaliseReduction(Rewrite[Reduction]):
    """Any mean, sum, maximum or minimum to the one over listed axes, kept."""

    name: ClassVar[str] = "normalise-reduction"
    bound: ClassVar[Bound] = roundings("the sum may run in another order")
    anchors: ClassVar[tuple[type[Operation], ...]] = tuple(_FORMS)

    def match(self, op: SchemaOp, program: Program) -> Reduction | Refusal | None:
        """Indices are not wanted, and the kept shape can be viewed as the result."""
        if any(indices.uses for indices in op.results[1:]):
            return Refusal("the indices are used")
        value, names = op.operands[0], op.SCHEMA.by_name
        rank = len(dims(value.type))
        listed: Any = op.arg("dim") if "dim" in names else None
        listed = [listed] if isinstance(listed, int) else listed
        over = axes(listed, rank) if listed else tuple(range(rank))
        dtype = op.arg("dtype") if "dtype" in names else None
        form = _FORMS[type(op)]
        if dtype is None and form is aten.SumDimIntList:
            dtype = element(op.results[0].type)
        if (
            dtype is not None
            and form is aten.SumDimIntList
            and not (is_float(dtype) or dtype == i64)
        ):
            return Refusal(
                f"a sum in {dtype_name(dtype)} has no form that does not state its dtype"
            )
        if dtype == element(value.type):
            dtype = None
        if rank == 0:
            return None
        if isinstance(op, form) and dtype is None and is_normal(op, over):
            return None
        refusal = cannot_be_viewed_as(value, kept(dims(value.type), over))
        return refusal or Reduction(op, form, over, dtype)

    def build(self, match: Reduction, rw: Rewriter) -> None:
        """Write the cast, the reduction and the view, as far as they do something."""
        value, result = match.op.operands[0], match.op.results[0]
        if match.dtype is not None:
            value = cast(rw, value, match.dtype)
        held = tensor(kept(dims(value.type), match.axes), element(result.type))
        new = match.form.make(value, list(match.axes), True, result_types=[held])
        rw.replace_value(result, view(rw, emit(rw, new), dims(result.type)))
        rw.erase(match.op)


def is_normal(op: SchemaOp, over: tuple[int, ...]) -> bool:
    """Whether a reduction lists its axes in order, keeps them and states no dtype."""
    stated = op.present()
    return (
        stated.get("dim") == list(over) and stated.get("keepdim") is True and "dtype" not in stated
    )
