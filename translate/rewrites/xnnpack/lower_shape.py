"""Ops that move elements: view, permute, slice, cat, pad and expand.

Before:
    %y = aten.permute.default(%x, [1, 0]) : (tensor<2x4xf32>) -> tensor<4x2xf32>
After:
    %y = xnnpack.static_transpose(%x, perm=[1, 0]) : (tensor<2x4xf32>) -> tensor<4x2xf32>
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from math import prod
from typing import ClassVar

import torch
from xdsl.ir import Attribute, Operation, SSAValue

from stepwell.dialects import aten, xnnpack
from stepwell.dialects.aten.op import SchemaOp
from stepwell.dialects.xnnpack import XnnpackOp
from stepwell.ir.core import WeightOp
from stepwell.ir.dtypes import torch_dtype
from stepwell.ir.program import Program
from stepwell.ir.rewriting import Refusal, Rewrite, Rewriter
from stepwell.ir.size import UNKNOWN, Size
from stepwell.ir.types import Dim, dims, element, tensor
from stepwell.translate.rewrites.aten.building import axis
from stepwell.translate.rewrites.aten.hoist_slice_over_layout import static_bounds
from stepwell.translate.rewrites.xnnpack.guards import (
    moves_among_integers,
    not_floats,
    not_for_xnnpack,
    not_static,
)

FOLLOWING = (aten.PermuteDefault, aten.SliceTensor, aten.CatDefault, aten.ConstantPadNdDefault)
"""Ops whose nodes find the sizes of their results from the operands' at run time."""


MOST_ONES = 1 << 24
"""Ones in the largest constant that repeats a tensor: they are written into the artefact."""


@dataclass(frozen=True)
class LowerShape(Rewrite[SchemaOp]):
    """`aten.{view,permute,slice,cat,constant_pad_nd,expand}` to XNNPACK's static nodes."""

    name: ClassVar[str] = "lower-shape"
    anchors: ClassVar[tuple[type[Operation], ...]] = (
        aten.ViewDefault,
        aten.PermuteDefault,
        aten.SliceTensor,
        aten.CatDefault,
        aten.ConstantPadNdDefault,
        aten.ExpandDefault,
    )

    def match(self, op: SchemaOp, program: Program) -> SchemaOp | Refusal | None:
        """Guards: float elements, static shapes, forms that the nodes have."""
        if isinstance(op, aten.ViewDefault):
            refusal = not_floats((op.operands[0], *op.results))
        else:
            refusal = not_for_xnnpack(op)
        refusal = refusal or unknown_sizes(op)
        if refusal is not None:
            return refusal
        if all(isinstance(operand.owner, WeightOp) for operand in op.operands):
            return Refusal("all operands are constants; XNNPACK needs one that is computed")
        if moves_among_integers(op):
            return Refusal("what it moves is looked up by integers, and read outside")
        if isinstance(op, aten.SliceTensor) and static_bounds(op) is None:
            return Refusal("XNNPACK slices with step 1 and constant bounds")
        if isinstance(op, aten.ConstantPadNdDefault) and min(op.arg("pad"), default=0) < 0:
            return Refusal("negative padding crops; write it as a slice")
        if isinstance(op, aten.ExpandDefault) and (count := ones_of(op)) > MOST_ONES:
            return Refusal(f"it repeats by a product with {count} ones, above {MOST_ONES}")
        if isinstance(op, aten.CatDefault):
            at = axis(op.arg("dim"), len(dims(op.results[0].type)))
            symbolic = any(isinstance(dims(operand.type)[at], Size) for operand in op.operands)
            if symbolic and len(op.operands) not in xnnpack.CONCATENATES:
                return Refusal("more than five tensors are concatenated along a symbolic axis")
        return op

    def build(self, match: SchemaOp, rw: Rewriter) -> None:
        """The node of the op's kind."""
        op = match
        result = op.results[0]
        rw.replace(op, [self._lowered(op, result.type, rw)])

    def _lowered(self, op: SchemaOp, type_: Attribute, rw: Rewriter) -> SSAValue:
        if isinstance(op, aten.ViewDefault):
            return reshape(rw, op.operands[0], dims(type_))
        if isinstance(op, aten.PermuteDefault):
            rank = len(dims(type_))
            return transpose(rw, op.operands[0], [axis(d, rank) for d in op.arg("dims")])
        if isinstance(op, aten.SliceTensor):
            return _slice(op, type_, rw)
        if isinstance(op, aten.CatDefault):
            return _concatenate(op, rw)
        if isinstance(op, aten.ConstantPadNdDefault):
            return _pad(op, type_, rw)
        return _expand(op, type_, rw)


def ones_of(op: SchemaOp) -> int:
    """How many ones a tensor is multiplied by to be repeated."""
    return prod(d for d in dims(op.results[0].type) if isinstance(d, int))


def unknown_sizes(op: SchemaOp) -> Refusal | None:
    """Shapes are numbers, except where a node takes axes whole or finds one size from the others."""
    if isinstance(op, FOLLOWING):
        return next(
            (
                Refusal("a dimension is not known, not even as an expression")
                for v in op.results
                if UNKNOWN in dims(v.type)
            ),
            None,
        )
    if isinstance(op, aten.ViewDefault):
        symbolic = [d for d in dims(op.results[0].type) if isinstance(d, Size)]
        if len(symbolic) > 1:
            return Refusal(
                f"the sizes {', '.join(map(str, symbolic))} are symbolic; XNNPACK works out one, not more"
            )
        return None
    return next((r for v in (*op.operands, *op.results) if (r := not_static(v))), None)


def _put(rw: Rewriter, node: XnnpackOp) -> SSAValue:
    return rw.insert(node).results[0]


def reshape(rw: Rewriter, value: SSAValue, shape: tuple[Dim, ...]) -> SSAValue:
    """`xnnpack.static_reshape`, or the value where the shape is its own."""
    if dims(value.type) == shape:
        return value
    result = tensor(shape, element(value.type))
    sizes = [0 if isinstance(d, Size) else d for d in shape]
    return _put(rw, xnnpack.StaticReshape.make(value, result=result, new_shape=sizes))


def transpose(rw: Rewriter, value: SSAValue, order: list[int]) -> SSAValue:
    """`xnnpack.static_transpose`, or the value where nothing moves."""
    if order == list(range(len(order))):
        return value
    return _put(rw, xnnpack.StaticTranspose.make(value, perm=order))


def to_nhwc(rw: Rewriter, value: SSAValue) -> SSAValue:
    """`[N, C, H, W]` to `[N, H, W, C]`; `[N, C, W]` to `[N, 1, W, C]`."""
    shape = dims(value.type)
    if len(shape) == 3:
        value = reshape(rw, value, (shape[0], shape[1], 1, shape[2]))
    return transpose(rw, value, [0, 2, 3, 1])


def to_nchw(rw: Rewriter, value: SSAValue, type_: Attribute) -> SSAValue:
    """`[N, H, W, C]` to `[N, C, H, W]`, without the height where the type has none."""
    return reshape(rw, transpose(rw, value, [0, 3, 1, 2]), dims(type_))


def _slice(op: SchemaOp, type_: Attribute, rw: Rewriter) -> SSAValue:
    bounds = static_bounds(op)
    assert bounds is not None
    at, start, _ = bounds
    shape = dims(type_)
    offsets = [start if index == at else 0 for index in range(len(shape))]
    return _put(
        rw,
        xnnpack.StaticSlice.make(
            op.operands[0], result=type_, offsets=offsets, sizes=slice_sizes(shape)
        ),
    )


def slice_sizes(shape: tuple[Dim, ...]) -> list[int]:
    """A slice's sizes as the node takes them: 0 for an axis of symbolic size, which stays whole."""
    return [0 if isinstance(d, Size) else d for d in shape]


def _concatenate(op: SchemaOp, rw: Rewriter) -> SSAValue:
    at = axis(op.arg("dim"), len(dims(op.results[0].type)))
    if any(isinstance(dims(part.type)[at], Size) for part in op.operands):
        node = xnnpack.CONCATENATES[len(op.operands)].make(
            *op.operands, result=op.results[0].type, axis=at
        )
        return _put(rw, node)
    return concatenate(rw, op.operands, at)


def concatenate(rw: Rewriter, parts: Sequence[SSAValue], at: int) -> SSAValue:
    """Groups of at most five, then groups of groups."""
    values = list(parts)
    while len(values) > 1:
        values = [
            _put(rw, xnnpack.CONCATENATES[len(part)].make(*part, axis=at))
            if len(part) > 1
            else part[0]
            for part in (values[i : i + 5] for i in range(0, len(values), 5))
        ]
    return values[0]


def _pad(op: SchemaOp, type_: Attribute, rw: Rewriter) -> SSAValue:
    rank = len(dims(type_))
    before, after = [0] * rank, [0] * rank
    for index, amount in enumerate(op.arg("pad")):
        (after if index % 2 else before)[rank - 1 - index // 2] = amount
    node = xnnpack.StaticConstantPad.make(
        op.operands[0],
        result=type_,
        pre_paddings=before,
        post_paddings=after,
        padding_value=float(op.arg("value")),
    )
    return _put(rw, node)


def _expand(op: SchemaOp, type_: Attribute, rw: Rewriter) -> SSAValue:
    """XNNPACK repeats nothing, but a product with ones broadcasts."""
    value = op.operands[0]
    target = dims(type_)
    missing = len(target) - len(dims(value.type))
    value = reshape(rw, value, (*([1] * missing), *dims(value.type)))
    if dims(value.type) == target:
        return value
    ones = rw.constant(
        torch.ones([d for d in target if isinstance(d, int)], dtype=torch_dtype(element(type_))),
        "ones",
    )
    return _put(rw, xnnpack.Multiply.make(value, ones, result=type_))
