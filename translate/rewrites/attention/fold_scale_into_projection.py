"""Fusion: fold the factor of one slice of a fused projection into that part of its weight.

Attention scales q, and q is a slice of the result of one linear layer for q, k and v. The factor is
applied to the rows of the weight, and of the bias, that produce q; k and v keep theirs.

Before:
    %w = stepwell.weight <"w"> "parameter" : tensor<4x4xf32>
    %p = aten.linear.default(%x, %w) : (tensor<3x4xf32>, tensor<4x4xf32>) -> tensor<3x4xf32>
    %q = aten.slice.Tensor(%p, 1, 0, 2, 1) : (tensor<3x4xf32>) -> tensor<3x2xf32>
    %k = aten.slice.Tensor(%p, 1, 2, 4, 1) : (tensor<3x4xf32>) -> tensor<3x2xf32>
    %s = aten.mul.Scalar(%q, 0.125) : (tensor<3x2xf32>) -> tensor<3x2xf32>
    func.return %s, %k : tensor<3x2xf32>, tensor<3x2xf32>
After:
    %0 = stepwell.weight <"w#scale_some_rows.1f19f048210a"> "constant" : tensor<4x4xf32>
    %p = aten.linear.default(%x, %0) : (tensor<3x4xf32>, tensor<4x4xf32>) -> tensor<3x4xf32>
    %q = aten.slice.Tensor(%p, 1, 0, 2, 1) : (tensor<3x4xf32>) -> tensor<3x2xf32>
    %k = aten.slice.Tensor(%p, 1, 2, 4, 1) : (tensor<3x4xf32>) -> tensor<3x2xf32>
    func.return %q, %k : tensor<3x2xf32>, tensor<3x2xf32>
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from xdsl.ir import Operation, SSAValue

from stepwell.dialects import aten
from stepwell.dialects.aten.op import SchemaOp
from stepwell.ir.axes.boxes import numbers, whole_of
from stepwell.ir.axes.maps import axis_map
from stepwell.ir.compat.torch.lazy_imports import torch
from stepwell.ir.core import weight_key
from stepwell.ir.declared.bounds import roundings
from stepwell.ir.declared.families import moves_one
from stepwell.ir.dtypes import is_float
from stepwell.ir.program import Program
from stepwell.ir.rewriting.rewrite import Bound, Refusal, Rewrite, Rewriter
from stepwell.ir.types import dims, element
from stepwell.ir.weights import recipe
from stepwell.translate.rewrites.building import emit_as, static_dims


@recipe("scale_some_rows")
def scale_some_rows(weight: torch.Tensor, *, start: int, stop: int, factor: float) -> torch.Tensor:
    """Return the weight with rows `start` to `stop` multiplied by a number."""
    scaled = weight.clone()
    scaled[start:stop] *= factor
    return scaled


@dataclass(frozen=True)
class ScaledSlice:
    """`op` multiplies the values of output features `start` to `stop` of `linear`."""

    op: SchemaOp
    linear: SchemaOp
    start: int
    stop: int
    factor: float


@dataclass(frozen=True)
class FoldScaleIntoProjection(Rewrite[ScaledSlice]):
    """Replace `slice(linear(x)) * s` by `slice(linear(x))` with scaled rows of the weight."""

    name: ClassVar[str] = "fold-scale-into-projection"
    takes_empty: ClassVar[bool] = False
    anchors: ClassVar[tuple[type[Operation], ...]] = (aten.MulScalar,)
    bound: ClassVar[Bound] = roundings("the product moves into the weight")

    def match(self, op: SchemaOp, program: Program) -> ScaledSlice | Refusal | None:
        """Match a scaled projection whose weights are constant, and whose scaled output features
        are contiguous and have no other users.
        """
        factor = op.arg("other")
        if not isinstance(factor, int | float):
            return Refusal("the factor is known only at run time")
        chain = chain_to_linear(op.operands[0])
        if chain is None:
            return None
        linear, layout = chain
        if op.results[0].type != op.operands[0].type or not is_float(element(op.results[0].type)):
            return Refusal("the factor is no float of the projection's own dtype")
        if len(dims(linear.operands[1].type)) != 2:
            return Refusal(
                "the projection's weight is one row, so that there is no axis of outputs"
            )
        if any(strides(use.operation) for step in layout for use in step.operands[0].uses):
            return Refusal("a slice has a step, or counts features from the end")
        if any(len(list(step.results[0].uses)) > 1 for step in after_slice(layout)):
            return Refusal("another op reads the unscaled value")
        keys = [weight_key(v) for v in linear.operands[1:]]
        if None in keys:
            return Refusal("the projection's weight is computed at run time")
        if any(static_dims(step.results[0]) is None for step in (linear, *layout)):
            return Refusal("the shape is symbolic")
        beside = [use.operation for step in layout for use in step.operands[0].uses]
        others = [other for other in beside if other not in layout]
        if not all(isinstance(other, aten.SliceTensor) for other in others):
            return Refusal("another op reads all of the projection")
        start, stop = features_of(op.operands[0], linear)
        reads = [features_of(other.results[0], linear) for other in others]
        if any(first < stop and start < last for first, last in reads):
            return Refusal("another op reads the same part of the projection")
        return ScaledSlice(op, linear, start, stop, float(factor))

    def build(self, match: ScaledSlice, rw: Rewriter) -> None:
        """Build the linear layer with the scaled weight, and remove the multiplication by the
        scale.
        """
        linear, store = match.linear, rw.weights
        rows = {"start": match.start, "stop": match.stop, "factor": match.factor}
        keys = [weight_key(value) for value in linear.operands[1:]]
        scaled = [store.derive("scale_some_rows", [key], **rows) for key in keys if key]
        rw.replace(match.op, [match.op.operands[0]])
        inner = Rewriter(linear, rw.program)
        new = aten.LinearDefault.make(
            linear.operands[0],
            *[inner.weight(key) for key in scaled],
            result_types=[linear.results[0].type],
        )
        value = emit_as(inner, new, linear.results[0])
        rw.supersede(linear.results[0], value)
        rw.erase(linear)


def strides(op: Operation) -> bool:
    """Whether a slice has a step, is empty, or has a negative axis or start."""
    if not isinstance(op, aten.SliceTensor):
        return False
    if 0 in dims(op.results[0].type):
        return True
    return op.arg("step") != 1 or op.arg("dim") < 0 or (op.arg("start") or 0) < 0


def chain_to_linear(value: SSAValue) -> tuple[SchemaOp, list[SchemaOp]] | None:
    """Return the linear layer that computes a value through layout ops, and these ops in order."""
    layout: list[SchemaOp] = []
    owner = value.owner
    while isinstance(owner, SchemaOp) and moves_one(owner) and axis_map(owner) is not None:
        layout.append(owner)
        owner = owner.operands[0].owner
    if not isinstance(owner, aten.LinearDefault):
        return None
    if not any(isinstance(op, aten.SliceTensor) for op in layout):
        return None
    return owner, layout[::-1]


def after_slice(layout: list[SchemaOp]) -> list[SchemaOp]:
    """Return the layout ops from the first slice on; only the multiplication may read them."""
    first = next(i for i, op in enumerate(layout) if isinstance(op, aten.SliceTensor))
    return layout[first:]


def features_of(value: SSAValue, linear: SchemaOp) -> tuple[int, int]:
    """Return the range of a linear layer's output features that layout ops select."""
    box = whole_of(dims(value.type))
    while value.owner is not linear:
        axes = axis_map(value.owner)
        assert axes is not None and isinstance(value.owner, SchemaOp)
        box, value = axes.reads(0, box), value.owner.operands[0]
    features = numbers(box[-1])
    assert features is not None
    return features
