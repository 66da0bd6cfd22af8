"""Layer norms over several axes, and norms scaled by what the run computes: first the norm alone.

Before:
    %y = aten.layer_norm.default(%x, [3, 4]) : (tensor<2x3x4xf32>) -> tensor<2x3x4xf32>
After:
    %0 = aten.view.default(%x, [2, 12]) : (tensor<2x3x4xf32>) -> tensor<2x12xf32>
    %1 = aten.layer_norm.default(%0, [12], none, none, 1.0e-05) : (tensor<2x12xf32>) -> tensor<2x12xf32>
    %y = aten.view.default(%1, [2, 3, 4]) : (tensor<2x12xf32>) -> tensor<2x3x4xf32>
"""

from __future__ import annotations

from dataclasses import dataclass
from math import prod
from typing import ClassVar

from xdsl.ir import Operation, SSAValue

from stepwell.dialects import aten
from stepwell.dialects.aten.op import SchemaOp
from stepwell.ir.bounds import roundings
from stepwell.ir.core import weight_key
from stepwell.ir.program import Program
from stepwell.ir.rewriting import Bound, Refusal, Rewrite, Rewriter
from stepwell.translate.rewrites.building import emit, put, static_dims, view


@dataclass(frozen=True)
class Peeled:
    """A norm of a tensor of this shape; a layer norm over its last `axes` axes."""

    op: SchemaOp
    shape: tuple[int, ...]
    axes: int


@dataclass(frozen=True)
class PeelNormAffine(Rewrite[Peeled]):
    """`layer_norm` and `group_norm` to one without weights, a product and a sum."""

    name: ClassVar[str] = "peel-norm-affine-to-tosa"
    anchors: ClassVar[tuple[type[Operation], ...]] = (aten.LayerNormDefault, aten.GroupNormDefault)
    bound: ClassVar[Bound] = roundings("the scale rounds once more")

    def match(self, op: SchemaOp, program: Program) -> Peeled | Refusal | None:
        """Several axes, or a scale or shift of run time; known sizes."""
        given = [value for name in ("weight", "bias") if (value := op.operand(name)) is not None]
        axes = len(op.arg("normalized_shape")) if isinstance(op, aten.LayerNormDefault) else 1
        if axes == 1 and all(weight_key(value) is not None for value in given):
            return None
        shape = static_dims(op.operands[0])
        if shape is None:
            return Refusal("the shape is symbolic")
        return Peeled(op, shape, axes)

    def build(self, match: Peeled, rw: Rewriter) -> None:
        """The norm, of rows where it runs over several axes, then scale and shift."""
        op, shape = match.op, match.shape
        x, eps = op.operands[0], op.arg("eps")
        spread: tuple[int, ...] | None = None
        if isinstance(op, aten.GroupNormDefault):
            groups = op.arg("num_groups")
            norm = aten.GroupNormDefault.make(x, groups, None, None, eps, result_types=[x.type])
            spread = (shape[1], *[1] * (len(shape) - 2))
        else:
            length = prod(shape[-match.axes :])
            rows = view(rw, x, (*shape[: -match.axes], length))
            lists = ([length], None, None, eps)
            norm = aten.LayerNormDefault.make(rows, *lists, result_types=[rows.type])
        value: SSAValue = view(rw, emit(rw, norm), shape)
        for cls, name in ((aten.MulTensor, "weight"), (aten.AddTensor, "bias")):
            given = op.operand(name)
            if given is not None:
                given = given if spread is None else view(rw, given, spread)
                value = put(rw, cls, value, given)
        rw.replace(op, [value])
