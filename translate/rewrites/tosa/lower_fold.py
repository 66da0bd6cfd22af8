"""Reductions that are no sum or extreme: truth values, products, norms, sums of exponentials.

Before:
    %y = aten.any.dim(%x, 1) : (tensor<2x4xi1>) -> tensor<2xi1>
After:
    %0 = tosa.reduce_any %x {axis = 1 : i32} : (tensor<2x4xi1>) -> tensor<2x1xi1>
    %1 = tosa.const_shape {values = dense<2> : tensor<1xindex>} : () -> !tosa.shape<1>
    %y = tosa.reshape %0, %1 : (tensor<2x1xi1>, !tosa.shape<1>) -> tensor<2xi1>
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import torch
from xdsl.ir import Operation, SSAValue

from stepwell.dialects import aten
from stepwell.dialects.aten.op import SchemaOp
from stepwell.dialects.tosa import generated as t
from stepwell.dialects.tosa.base import TosaOp
from stepwell.ir.dtypes import dtype_name, i1, torch_dtype
from stepwell.ir.rewriting import Refusal
from stepwell.ir.types import element
from stepwell.translate.rewrites.tosa.building import FLOATS, Builder, shape_of
from stepwell.translate.rewrites.tosa.lower_cast import compares, converted
from stepwell.translate.rewrites.tosa.lower_elementwise import clamp
from stepwell.translate.rewrites.tosa.lower_power import narrowed, power, root
from stepwell.translate.rewrites.tosa.lowering import LowerToTosa, reduced_axes

_LOGICAL: dict[type[Operation], type[TosaOp]] = {
    aten.AnyDim: t.ReduceAnyOp,
    aten.AnyDims: t.ReduceAnyOp,
    aten.AnyDefault: t.ReduceAnyOp,
    aten.AllDim: t.ReduceAllOp,
    aten.AllDims: t.ReduceAllOp,
    aten.AllDefault: t.ReduceAllOp,
}
_PRODUCTS = (aten.ProdDimInt, aten.ProdDefault)
_NORMS: dict[float, type[TosaOp]] = {
    1.0: t.ReduceSumOp,
    2.0: t.ReduceSumOp,
    float("inf"): t.ReduceMaxOp,
    float("-inf"): t.ReduceMinOp,
}


@dataclass(frozen=True)
class LowerFold(LowerToTosa):
    """`any`, `all`, `prod`, `logsumexp` and `linalg_vector_norm`."""

    name: ClassVar[str] = "lower-fold-to-tosa"
    anchors: ClassVar[tuple[type[Operation], ...]] = (
        *_LOGICAL,
        *_PRODUCTS,
        aten.LogsumexpDefault,
        aten.LinalgVectorNormDefault,
    )

    def refuses(self, op: SchemaOp) -> Refusal | None:
        """Truth values, or what TOSA compares with 0, for `any` and `all`; floats for the rest."""
        held, given = element(op.operands[0].type), element(op.results[0].type)
        if type(op) in _LOGICAL:
            if compares(held) and given == i1:
                return None
            return Refusal(f"{op.name} takes {dtype_name(held)}; compare it with 0 first")
        if held not in FLOATS or given != held:
            return Refusal(
                f"it reduces {dtype_name(held)} to {dtype_name(given)}; both must be one float type"
            )
        return None

    def lower(self, op: SchemaOp, b: Builder) -> SSAValue:
        """One REDUCE an axis with what surrounds it, then a reshape if axes go."""
        x = op.operands[0]
        axes = reduced_axes(op)
        match op:
            case _ if type(op) in _LOGICAL:
                y = _reduce(_LOGICAL[type(op)], converted(x, i1, b), axes, b)
            case aten.LogsumexpDefault():
                y = _logsumexp(x, axes, b)
            case aten.LinalgVectorNormDefault():
                y = _norm(x, float(op.arg("ord")), axes, b)
            case _:
                y = _reduce(t.ReduceProductOp, x, axes, b)
        return b.reshape(y, shape_of(op.results[0]))


def _reduce(cls: type[TosaOp], x: SSAValue, axes: list[int], b: Builder) -> SSAValue:
    for axis in axes:
        x = b.reduce(cls, x, axis)
    return x


def _norm(x: SSAValue, order: float, axes: list[int], b: Builder) -> SSAValue:
    """Roots of sums of powers; an overflowing power is inf where torch's norm is.

    The order 0 counts what is not 0. Powers of other orders are those of `lower-power-to-tosa`.
    """
    if order == 2:
        return root(_reduce(t.ReduceSumOp, b.binary(t.MulOp, x, x), axes, b), b)
    if order == 0:
        counted = converted(converted(x, i1, b), element(x.type), b)
        return _reduce(t.ReduceSumOp, counted, axes, b)
    size = b.unary(t.AbsOp, x)
    if order in _NORMS:
        return _reduce(_NORMS[order], size, axes, b)
    summed = _reduce(t.ReduceSumOp, power(b.single(size), order, b), axes, b)
    return narrowed(power(summed, 1 / order, b), x, b)


def _logsumexp(x: SSAValue, axes: list[int], b: Builder) -> SSAValue:
    """Log Σ exp(x - m) + m, with the largest element m kept finite: inf - inf would be NaN."""
    info = torch.finfo(torch_dtype(element(x.type)))
    most = clamp(_reduce(t.ReduceMaxOp, x, axes, b), info.min, info.max, b)
    powers = b.unary(t.ExpOp, b.binary(t.SubOp, x, most))
    return b.binary(t.AddOp, b.unary(t.LogOp, _reduce(t.ReduceSumOp, powers, axes, b)), most)
