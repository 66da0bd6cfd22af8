"""Lowering of bilinear resizing to a dynamic size: a product with a matrix along each axis.

XNNPACK resizes to a constant size only. Along one axis, the weight of each old pixel in a new one
is a tent around its sampling position, `max(0, 1 − |position − old|)`. This is a matrix `[new,
old]` computed from positions, which are integers from outside the delegate. An axis that keeps its
size is unchanged.

Positions are PyTorch's: `i·(old − 1)/(new − 1)` with aligned corners, else `(i + ½)·old/new − ½`,
clamped to the image.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch
from xdsl.ir import SSAValue

from stepwell.dialects import aten
from stepwell.dialects.aten.op import SchemaOp
from stepwell.ir.declared.bounds import roundings
from stepwell.ir.declared.numerics import Deviation
from stepwell.ir.dtypes import f32
from stepwell.ir.program import Program
from stepwell.ir.rewriting.rewrite import Rewriter
from stepwell.ir.sizes.size import Size
from stepwell.ir.types import Dim, dims, tensor
from stepwell.translate.decompositions.values import Value, no_refusal
from stepwell.translate.lowerings.lowering import lowerings_of, lowers, refuse
from stepwell.translate.range_analysis import is_finite
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
from stepwell.translate.rewrites.xnnpack.nodes.windows import stated_scale


@dataclass(frozen=True)
class Stretch:
    """How one axis is resized.

    Attributes:
        old, new: its sizes.
        step: distance of two new pixels in old ones; None with aligned corners.
    """

    old: Dim
    new: Dim
    step: float | None


def _loses(op: Any, program: Program) -> Deviation | None:
    """Declare that inf and NaN spread: every old pixel is multiplied, most of them by zero."""
    spread = Deviation("a pixel that is infinite or NaN makes its row and its column NaN")
    return spread.unless(is_finite(op.operands[0], program))


@lowers(
    "aten.upsample_bilinear2d.vec",
    "aten.upsample_bilinear2d.default",
    to="xnnpack",
    check="none",
    unless=lambda op: static_dims(op.results[0]) is not None,
    bound=roundings("a place is rounded before a pixel's is subtracted"),
    deviation=_loses,
    name="resize-by-matrices",
    sample="""
        %y = aten.upsample_bilinear2d.vec(%x, none, false, [2.0, 1.0]) : (tensor<1x2x?x8xf32, #stepwell.shape<[1, 2, "s", 8]>>) -> tensor<1x2x?x8xf32, #stepwell.shape<[1, 2, "2*s", 8]>>
    """,
)
def resize_by_matrices(x: Value, *, op: Any, b: Rewriter) -> Value:
    """Multiply along the width, exchange rows and columns, multiply along the height; NHWC."""
    no_refusal(not_floats((x.ssa, op.results[0])))
    if x.dtype != f32:
        refuse("places in half precision are whole pixels in a wide image")
    down, across = (stretch(op, at) for at in (0, 1))
    value = permute(b, x.ssa, [0, 2, 3, 1])
    if across is not None:
        value = _product(b, tents(b, op, across), value)
    if down is None:
        return Value(permute(b, value, [0, 3, 1, 2]), b)
    value = permute(b, value, [0, 2, 1, 3])
    value = _product(b, tents(b, op, down), value)
    return Value(permute(b, value, [0, 3, 2, 1]), b)


def stretch(op: SchemaOp, at: int) -> Stretch | None:
    """Return how the height (0) or width (1) is resized; None if the size stays."""
    old, new = (dims(value.type)[2 + at] for value in (op.operands[0], op.results[0]))
    scale = stated_scale(op, at)
    is_aligned = bool(op.arg("align_corners"))
    for size in (old, new):
        if isinstance(size, Size) and size_of_input(op.parent_block(), size) is None:
            refuse(f"the size {size} is no fraction of the size of an input")
    if is_aligned:
        return None if old == new else Stretch(old, new, None)
    step = 1.0 / scale if scale else share_of(old, new)
    if step is None:
        refuse(f"{old} to {new} is no constant ratio")
    return None if step == 1 and old == new else Stretch(old, new, float(step))


def tents(rw: Rewriter, op: SchemaOp, axis: Stretch) -> SSAValue:
    """Return the weight of each old pixel in each new one, `[1, 1, new, old]`."""
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
    """Return 0, 1, … as floats `[size]`: a constant, or computed outside the delegate."""
    if isinstance(size, int):
        return torch.arange(size, dtype=torch.float32)
    asked = size_of_input(op.parent_block(), size)
    assert asked is not None, "guarded"
    end, result = asked.value(rw), tensor([size], f32)
    return emit(rw, aten.ArangeDefault.make(end, dtype=f32, result_types=[result]))


def _last(rw: Rewriter, positions: SSAValue | torch.Tensor) -> SSAValue | torch.Tensor:
    """Return the last position `[1]`."""
    if isinstance(positions, torch.Tensor):
        return positions[-1:]
    return emit(rw, slice_op(positions, 0, -1, TO_THE_END, 1))


def _shaped(rw: Rewriter, value: SSAValue | torch.Tensor, shape: list[Dim]) -> SSAValue:
    """Reshape positions to a tensor of four axes."""
    if isinstance(value, SSAValue):
        return view(rw, value, shape)
    return rw.constant(value.reshape([size for size in shape if isinstance(size, int)]), "places")


def _product(rw: Rewriter, matrix: SSAValue, image: SSAValue) -> SSAValue:
    """Multiply `[1, 1, new, old]` by `[N, lines, old, C]`."""
    batch, lines, _, channels = dims(image.type)
    result = tensor([batch, lines, dims(matrix.type)[2], channels], f32)
    return emit(rw, aten.MatmulDefault.make(matrix, image, result_types=[result]))


RULES = lowerings_of(__name__)
