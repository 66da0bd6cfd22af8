"""Bilinear resizing of an image of symbolic size, as a product with a matrix along each axis.

XNNPACK resizes to a constant size only. Along one axis, what a new pixel takes of each old one is a
tent around its place, `max(0, 1 − |place − old|)`: a matrix `[new, old]` made of the positions,
which are integers from outside of the delegate. An axis that keeps its size is left alone.

Places are torch's: `i·(old − 1)/(new − 1)` where corners are aligned, else
`(i + ½)·old/new − ½`, held within the image.

Before:
    %y = aten.upsample_bilinear2d.vec(%x, none, false, [2.0, 1.0]) : (tensor<1x2x?x8xf32, #stepwell.shape<[1, 2, "s", 8]>>) -> tensor<1x2x?x8xf32, #stepwell.shape<[1, 2, "2*s", 8]>>
After:
    %0 = aten.permute.default(%x, [0, 2, 3, 1]) : (tensor<1x2x?x8xf32, #stepwell.shape<[1, 2, "s", 8]>>) -> tensor<1x?x8x2xf32, #stepwell.shape<[1, "s", 8, 2]>>
    %1 = aten.permute.default(%0, [0, 2, 1, 3]) : (tensor<1x?x8x2xf32, #stepwell.shape<[1, "s", 8, 2]>>) -> tensor<1x8x?x2xf32, #stepwell.shape<[1, 8, "s", 2]>>
    %2 = aten.sym_size.int(%x, 2) : (tensor<1x2x?x8xf32, #stepwell.shape<[1, 2, "s", 8]>>) -> !stepwell.int<"s">
    %3 = sym.mul [#aten.dyn, 2 : i64](%2) : (!stepwell.int<"s">) -> !stepwell.int<"2*s">
    %4 = aten.arange.default(%3, dtype=f32) : (!stepwell.int<"2*s">) -> tensor<?xf32, #stepwell.shape<["2*s"]>>
    %5 = aten.sym_size.int(%x, 2) : (tensor<1x2x?x8xf32, #stepwell.shape<[1, 2, "s", 8]>>) -> !stepwell.int<"s">
    %6 = aten.arange.default(%5, dtype=f32) : (!stepwell.int<"s">) -> tensor<?xf32, #stepwell.shape<["s"]>>
    %7 = aten.view.default(%4, [1, 1, -1, 1]) : (tensor<?xf32, #stepwell.shape<["2*s"]>>) -> tensor<1x1x?x1xf32, #stepwell.shape<[1, 1, "2*s", 1]>>
    %8 = aten.view.default(%6, [1, 1, 1, -1]) : (tensor<?xf32, #stepwell.shape<["s"]>>) -> tensor<1x1x1x?xf32, #stepwell.shape<[1, 1, 1, "s"]>>
    %9 = aten.slice.Tensor(%6, 0, -1, 9223372036854775807, 1) : (tensor<?xf32, #stepwell.shape<["s"]>>) -> tensor<1xf32>
    %10 = aten.view.default(%9, [1, 1, 1, 1]) : (tensor<1xf32>) -> tensor<1x1x1x1xf32>
    %11 = aten.mul.Scalar(%7, 0.5) : (tensor<1x1x?x1xf32, #stepwell.shape<[1, 1, "2*s", 1]>>) -> tensor<1x1x?x1xf32, #stepwell.shape<[1, 1, "2*s", 1]>>
    %12 = aten.add.Scalar(%11, -0.25) : (tensor<1x1x?x1xf32, #stepwell.shape<[1, 1, "2*s", 1]>>) -> tensor<1x1x?x1xf32, #stepwell.shape<[1, 1, "2*s", 1]>>
    %13 = aten.relu.default(%12) : (tensor<1x1x?x1xf32, #stepwell.shape<[1, 1, "2*s", 1]>>) -> tensor<1x1x?x1xf32, #stepwell.shape<[1, 1, "2*s", 1]>>
    %14 = aten.minimum.default(%13, %10) : (tensor<1x1x?x1xf32, #stepwell.shape<[1, 1, "2*s", 1]>>, tensor<1x1x1x1xf32>) -> tensor<1x1x?x1xf32, #stepwell.shape<[1, 1, "2*s", 1]>>
    %15 = aten.sub.Tensor(%14, %8) : (tensor<1x1x?x1xf32, #stepwell.shape<[1, 1, "2*s", 1]>>, tensor<1x1x1x?xf32, #stepwell.shape<[1, 1, 1, "s"]>>) -> tensor<1x1x?x?xf32, #stepwell.shape<[1, 1, "2*s", "s"]>>
    %16 = aten.abs.default(%15) : (tensor<1x1x?x?xf32, #stepwell.shape<[1, 1, "2*s", "s"]>>) -> tensor<1x1x?x?xf32, #stepwell.shape<[1, 1, "2*s", "s"]>>
    %17 = aten.neg.default(%16) : (tensor<1x1x?x?xf32, #stepwell.shape<[1, 1, "2*s", "s"]>>) -> tensor<1x1x?x?xf32, #stepwell.shape<[1, 1, "2*s", "s"]>>
    %18 = aten.add.Scalar(%17, 1.0) : (tensor<1x1x?x?xf32, #stepwell.shape<[1, 1, "2*s", "s"]>>) -> tensor<1x1x?x?xf32, #stepwell.shape<[1, 1, "2*s", "s"]>>
    %19 = aten.relu.default(%18) : (tensor<1x1x?x?xf32, #stepwell.shape<[1, 1, "2*s", "s"]>>) -> tensor<1x1x?x?xf32, #stepwell.shape<[1, 1, "2*s", "s"]>>
    %20 = aten.matmul.default(%19, %1) : (tensor<1x1x?x?xf32, #stepwell.shape<[1, 1, "2*s", "s"]>>, tensor<1x8x?x2xf32, #stepwell.shape<[1, 8, "s", 2]>>) -> tensor<1x8x?x2xf32, #stepwell.shape<[1, 8, "2*s", 2]>>
    %y = aten.permute.default(%20, [0, 3, 2, 1]) : (tensor<1x8x?x2xf32, #stepwell.shape<[1, 8, "2*s", 2]>>) -> tensor<1x2x?x8xf32, #stepwell.shape<[1, 2, "2*s", 8]>>
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import torch
from xdsl.ir import Operation, SSAValue

from stepwell.dialects import aten
from stepwell.dialects.aten.op import SchemaOp
from stepwell.ir.bounds import roundings
from stepwell.ir.dtypes import f32
from stepwell.ir.numerics import Deviation
from stepwell.ir.program import Program
from stepwell.ir.rewriting import Bound, Refusal, Rewrite, Rewriter
from stepwell.ir.size import Size
from stepwell.ir.types import Dim, dims, element, tensor
from stepwell.translate.rewrites.building import (
    TO_THE_END,
    emit,
    permute,
    put,
    slice_op,
    static_dims,
    view,
)
from stepwell.translate.rewrites.sizes.sizes import share_of, size_of_input
from stepwell.translate.rewrites.xnnpack.nodes.guards import not_floats
from stepwell.translate.rewrites.xnnpack.nodes.lower_pooling import stated_scale


@dataclass(frozen=True)
class Stretch:
    """How one axis is resized.

    Attributes:
        old, new: its sizes.
        step: how many old pixels lie between two new ones; None where the corners are aligned.
    """

    old: Dim
    new: Dim
    step: float | None


@dataclass(frozen=True)
class Resized:
    """A resized image; None for an axis that keeps its size."""

    op: SchemaOp
    down: Stretch | None
    across: Stretch | None


@dataclass(frozen=True)
class ResizeByMatrices(Rewrite[Resized]):
    """`aten.upsample_bilinear2d` of symbolic sizes to products."""

    name: ClassVar[str] = "resize-by-matrices"
    anchors: ClassVar[tuple[type[Operation], ...]] = (
        aten.UpsampleBilinear2dVec,
        aten.UpsampleBilinear2dDefault,
    )
    bound: ClassVar[Bound] = roundings("a place is rounded before a pixel's is subtracted")
    deviation: ClassVar[Deviation | None] = Deviation(
        "a pixel that is infinite or NaN makes its row and its column NaN"
    )
    """Every old pixel is multiplied, most by zero."""

    def match(self, op: SchemaOp, program: Program) -> Resized | Refusal | None:
        """Guards: single precision, a symbolic size that an input tells, constant steps."""
        image, result = op.operands[0], op.results[0]
        if static_dims(result) is not None:
            return None
        refusal = not_floats((image, result))
        if refusal is not None:
            return refusal
        if element(image.type) != f32:
            return Refusal("places in half precision are whole pixels in a wide image")
        found = [stretch(op, at) for at in (0, 1)]
        for each in found:
            if isinstance(each, Refusal):
                return each
        down, across = (each if isinstance(each, Stretch) else None for each in found)
        return Resized(op, down, across)

    def build(self, match: Resized, rw: Rewriter) -> None:
        """Channels last; a product across; rows and columns exchanged; a product down; back."""
        op = match.op
        value = permute(rw, op.operands[0], [0, 2, 3, 1])
        if match.across is not None:
            value = _product(rw, tents(rw, op, match.across), value)
        if match.down is None:
            rw.replace(op, [permute(rw, value, [0, 3, 1, 2])])
            return
        value = permute(rw, value, [0, 2, 1, 3])
        value = _product(rw, tents(rw, op, match.down), value)
        rw.replace(op, [permute(rw, value, [0, 3, 2, 1])])


def stretch(op: SchemaOp, at: int) -> Stretch | Refusal | None:
    """How a resize treats its axis down (0) or across (1); None where the size stays."""
    old, new = (dims(value.type)[2 + at] for value in (op.operands[0], op.results[0]))
    scale = stated_scale(op, at)
    is_aligned = bool(op.arg("align_corners"))
    for size in (old, new):
        if isinstance(size, Size) and size_of_input(op.parent_block(), size) is None:
            return Refusal(f"the size {size} is no share of the size of an input")
    if is_aligned:
        return None if old == new else Stretch(old, new, None)
    step = 1.0 / scale if scale else share_of(old, new)
    if step is None:
        return Refusal(f"{old} to {new} is no constant ratio")
    return None if step == 1 and old == new else Stretch(old, new, float(step))


def tents(rw: Rewriter, op: SchemaOp, axis: Stretch) -> SSAValue:
    """What each new pixel takes of each old one, `[1, 1, new, old]`."""
    new, old = (_positions(rw, op, size) for size in (axis.new, axis.old))
    place, pixel = (
        _shaped(rw, new, [1, 1, axis.new, 1]),
        _shaped(rw, old, [1, 1, 1, axis.old]),
    )
    last = _shaped(rw, _last(rw, old), [1, 1, 1, 1])
    if axis.step is None:
        end = _shaped(rw, _last(rw, new), [1, 1, 1, 1])
        least = rw.constant(torch.ones(1, 1, 1, 1), "one_pixel")
        end = put(rw, aten.MaximumDefault, end, least)
        ratio = put(rw, aten.DivTensor, last, end)
        place = put(rw, aten.MulTensor, place, ratio)
    else:
        place = put(rw, aten.MulScalar, place, axis.step)
        place = put(rw, aten.AddScalar, place, 0.5 * axis.step - 0.5)
        place = put(rw, aten.ReluDefault, place)
        place = put(rw, aten.MinimumDefault, place, last)
    kept = tensor([1, 1, axis.new, axis.old], f32)
    away = emit(rw, aten.SubTensor.make(place, pixel, result_types=[kept]))
    near = put(rw, aten.NegDefault, put(rw, aten.AbsDefault, away))
    return put(rw, aten.ReluDefault, put(rw, aten.AddScalar, near, 1.0))


def _positions(rw: Rewriter, op: SchemaOp, size: Dim) -> SSAValue | torch.Tensor:
    """0, 1, … as floats `[size]`: a constant, or asked for outside of the delegate."""
    if isinstance(size, int):
        return torch.arange(size, dtype=torch.float32)
    asked = size_of_input(op.parent_block(), size)
    assert asked is not None, "guarded"
    end, result = asked.value(rw), tensor([size], f32)
    return emit(rw, aten.ArangeDefault.make(end, dtype=f32, result_types=[result]))


def _last(rw: Rewriter, positions: SSAValue | torch.Tensor) -> SSAValue | torch.Tensor:
    """The last position `[1]`."""
    if isinstance(positions, torch.Tensor):
        return positions[-1:]
    return emit(rw, slice_op(positions, 0, -1, TO_THE_END, 1))


def _shaped(rw: Rewriter, value: SSAValue | torch.Tensor, shape: list[Dim]) -> SSAValue:
    """Positions as a tensor of four axes."""
    if isinstance(value, SSAValue):
        return view(rw, value, shape)
    return rw.constant(value.reshape([size for size in shape if isinstance(size, int)]), "places")


def _product(rw: Rewriter, matrix: SSAValue, image: SSAValue) -> SSAValue:
    """`[1, 1, new, old]` times `[N, lines, old, C]`."""
    batch, lines, _, channels = dims(image.type)
    result = tensor([batch, lines, dims(matrix.type)[2], channels], f32)
    return emit(rw, aten.MatmulDefault.make(matrix, image, result_types=[result]))
