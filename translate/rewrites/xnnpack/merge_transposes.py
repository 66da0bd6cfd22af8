"""Transposes and reshapes in a row are one or none.

`AssignLayouts` decides where transposes stand; here those that meet become one, or vanish.

Before:
    %a = xnnpack.static_transpose(%x, perm=[0, 3, 1, 2]) : (tensor<1x2x3x4xf32>) -> tensor<1x4x2x3xf32>
    %c = xnnpack.static_transpose(%a, perm=[0, 2, 3, 1]) : (tensor<1x4x2x3xf32>) -> tensor<1x2x3x4xf32>
    %y = xnnpack.tanh(%c) : (tensor<1x2x3x4xf32>) -> tensor<1x2x3x4xf32>
After:
    %y = xnnpack.tanh(%x) : (tensor<1x2x3x4xf32>) -> tensor<1x2x3x4xf32>
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import torch
from xdsl.ir import Attribute, Operation, SSAValue

from stepwell.dialects import xnnpack
from stepwell.dialects.xnnpack import XnnpackOp
from stepwell.ir.axes import Order, lies_the_same
from stepwell.ir.program import Program
from stepwell.ir.rewriting import Rewrite, Rewriter
from stepwell.ir.size import Size
from stepwell.ir.types import dims
from stepwell.ir.weights import recipe
from stepwell.translate.rewrites.xnnpack.lower_shape import slice_sizes


@recipe("transposed_to")
def transposed_to(constant: torch.Tensor, *, order: list[int]) -> torch.Tensor:
    """A constant, filled up with leading axes of size one, in another order of axes."""
    missing = len(order) - constant.dim()
    return constant.reshape(*([1] * missing), *constant.shape).permute(order).contiguous()


@dataclass(frozen=True)
class TransposeOfTranspose:
    """A transpose of a transpose's operand, or of no consequence."""

    op: XnnpackOp
    source: SSAValue
    order: Order


@dataclass(frozen=True)
class MergeTransposes(Rewrite[TransposeOfTranspose]):
    """Two transposes in a row are one or none; one that moves unit axes only is a reshape."""

    name: ClassVar[str] = "merge-transposes"
    anchors: ClassVar[tuple[type[Operation], ...]] = (xnnpack.StaticTranspose,)

    def match(self, op: XnnpackOp, program: Program) -> TransposeOfTranspose | None:
        """The permutation of what stands before both."""
        inner = op.operands[0].owner
        order = op.ints("perm")
        if isinstance(inner, xnnpack.StaticTranspose):
            first = inner.ints("perm")
            return TransposeOfTranspose(op, inner.operands[0], tuple(first[i] for i in order))
        if moves_units_only(op.operands[0], order):
            return TransposeOfTranspose(op, op.operands[0], order)
        return None

    def build(self, match: TransposeOfTranspose, rw: Rewriter) -> None:
        """Nothing, a reshape, or one transpose."""
        result = match.op.output.type
        value = match.source
        if match.order == tuple(range(len(match.order))):
            pass
        elif moves_units_only(value, match.order):
            value = reshaped(rw, value, result)
        else:
            new = xnnpack.StaticTranspose.make(value, result=result, perm=match.order)
            value = rw.insert(new).results[0]
        rw.replace(match.op, [value])


@dataclass(frozen=True)
class ReshapeOfReshape:
    """A reshape whose operand is a reshape, or has the shape already."""

    op: XnnpackOp
    source: SSAValue


@dataclass(frozen=True)
class MergeReshapes(Rewrite[ReshapeOfReshape]):
    """Two reshapes in a row are one or none."""

    name: ClassVar[str] = "merge-reshapes"
    anchors: ClassVar[tuple[type[Operation], ...]] = (xnnpack.StaticReshape,)

    def match(self, op: XnnpackOp, program: Program) -> ReshapeOfReshape | None:
        """What stands before both."""
        source = op.operands[0]
        inner = source.owner
        if isinstance(inner, xnnpack.StaticReshape):
            return ReshapeOfReshape(op, inner.operands[0])
        return ReshapeOfReshape(op, source) if source.type == op.output.type else None

    def build(self, match: ReshapeOfReshape, rw: Rewriter) -> None:
        """Nothing, or one reshape."""
        rw.replace(match.op, [reshaped(rw, match.source, match.op.output.type)])


def moves_units_only(value: SSAValue, order: Order) -> bool:
    """Whether a permutation keeps the order of the axes that are not of size one.

    It is a reshape then, which works out one symbolic size, not more.
    """
    shape = dims(value.type)
    return lies_the_same(shape, order) and sum(isinstance(d, Size) for d in shape) <= 1


def reshaped(rw: Rewriter, value: SSAValue, type_: Attribute) -> SSAValue:
    """A value in the shape of a type."""
    if value.type == type_:
        return value
    new = xnnpack.StaticReshape.make(value, result=type_, new_shape=slice_sizes(dims(type_)))
    return rw.insert(new).results[0]


@dataclass(frozen=True)
class ReshapedMeans:
    """A reshape that takes away the two axes an average over planes left as one."""

    op: XnnpackOp
    pool: xnnpack.GlobalAveragePooling2d


@dataclass(frozen=True)
class DropAveragedAxes(Rewrite[ReshapedMeans]):
    """`reshape(global average, kept dims)` to the average that keeps none."""

    name: ClassVar[str] = "drop-averaged-axes"
    anchors: ClassVar[tuple[type[Operation], ...]] = (xnnpack.StaticReshape,)

    def match(self, op: XnnpackOp, program: Program) -> ReshapedMeans | None:
        """Guards: nothing else reads the average, the reshape does no more than that."""
        pool = op.operands[0].owner
        if not isinstance(pool, xnnpack.GlobalAveragePooling2d) or not pool.flag("keep_dims"):
            return None
        shape = dims(pool.result.type)
        if len(tuple(pool.result.uses)) > 1 or dims(op.output.type) != (*shape[:-3], shape[-1]):
            return None
        return ReshapedMeans(op, pool)

    def build(self, match: ReshapedMeans, rw: Rewriter) -> None:
        """The same node without the flag."""
        properties = {k: v for k, v in match.pool.properties.items() if k != "keep_dims"}
        new = type(match.pool).create(
            operands=list(match.pool.operands),
            result_types=[match.op.output.type],
            properties=properties,
            attributes=dict(match.pool.attributes),
        )
        rw.replace(match.op, [rw.insert(new).results[0]])
