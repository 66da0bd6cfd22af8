"""Lowering of bilinear resizing to a dynamic size: a product with a matrix along each axis.

XNNPACK resizes to a constant size only. Along one axis, the weight of each old pixel in a new one
is a tent around its sampling position, `max(0, 1 − |position − old|)`. The weights form a matrix
`[new, old]`, computed from positions that are integers outside the delegate. An axis that keeps its
size is not multiplied.

Sampling positions are PyTorch's: `i·(old − 1)/(new − 1)` with aligned corners, else `(i +
½)·old/new − ½`, clamped to the image.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from stepwell.dialects import aten
from stepwell.dialects.aten.op import SchemaOp
from stepwell.ir.compat.torch.lazy_imports import torch
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
from stepwell.translate.rewrites.building import emit, static_dims
from stepwell.translate.rewrites.sizes.sizes import share_of, size_of_input
from stepwell.translate.rewrites.xnnpack.nodes.guards import not_floats
from stepwell.translate.rewrites.xnnpack.nodes.windows import stated_scale


@dataclass(frozen=True)
class Stretch:
    """The resize of one axis, by a constant ratio or with aligned corners.

    Attributes:
        old, new: the size before and after.
        step: the distance of two new pixels in units of old ones; None with aligned corners.
    """

    old: Dim
    new: Dim
    step: float | None


def _loses(op: Any, program: Program) -> Deviation | None:
    """Return the deviation that inf and NaN spread, as every old pixel is multiplied, mostly by
    zero.
    """
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
        refuse(
            "in half precision, the sampling positions in a wide image are rounded to whole pixels"
        )
    down, across = (stretch(op, at) for at in (0, 1))
    value = x.permute([0, 2, 3, 1])
    if across is not None:
        value = _product(tents(b, op, across), value)
    if down is None:
        return value.permute([0, 3, 1, 2])
    value = _product(tents(b, op, down), value.permute([0, 2, 1, 3]))
    return value.permute([0, 3, 2, 1])


def stretch(op: SchemaOp, at: int) -> Stretch | None:
    """Return how the height (0) or width (1) is resized; None if its size does not change."""
    old, new = (dims(value.type)[2 + at] for value in (op.operands[0], op.results[0]))
    scale = stated_scale(op, at)
    is_aligned = bool(op.arg("align_corners"))
    for size in (old, new):
        if isinstance(size, Size) and size_of_input(op.parent_block(), size) is None:
            refuse(f"the size {size} is not a fraction of an input's size")
    if is_aligned:
        return None if old == new else Stretch(old, new, None)
    step = 1.0 / scale if scale else share_of(old, new)
    if step is None:
        refuse(f"the ratio of {new} to {old} is not constant")
    return None if step == 1 and old == new else Stretch(old, new, float(step))


def tents(b: Rewriter, op: SchemaOp, axis: Stretch) -> Value:
    """Return the weight of each old pixel in each new one, `[1, 1, new, old]`."""
    new, old = (_positions(b, op, size) for size in (axis.new, axis.old))
    place, pixel = _shaped(b, new, 1, 1, axis.new, 1), _shaped(b, old, 1, 1, 1, axis.old)
    last = _shaped(b, _last(old), 1, 1, 1, 1)
    if axis.step is None:
        end = _shaped(b, _last(new), 1, 1, 1, 1)
        least = b.constant(torch.ones(1, 1, 1, 1), "one_pixel")
        place = place * last.call(aten.DivTensor, end.call(aten.MaximumDefault, least))
    else:
        place = (place * axis.step + (0.5 * axis.step - 0.5)).call(aten.ReluDefault)
        place = place.call(aten.MinimumDefault, last)
    near = (place - pixel).call(aten.AbsDefault).call(aten.NegDefault)
    return (near + 1.0).call(aten.ReluDefault)


def _positions(b: Rewriter, op: SchemaOp, size: Dim) -> Value | torch.Tensor:
    """Return 0, 1, … as floats `[size]`: a constant, or computed outside the delegate."""
    if isinstance(size, int):
        return torch.arange(size, dtype=torch.float32)
    asked = size_of_input(op.parent_block(), size)
    assert asked is not None, "guarded"
    end, result = asked.value(b), tensor([size], f32)
    return Value(emit(b, aten.ArangeDefault.make(end, dtype=f32, result_types=[result])), b)


def _last(positions: Value | torch.Tensor) -> Value | torch.Tensor:
    """Return the last position `[1]`."""
    return positions[-1:] if isinstance(positions, torch.Tensor) else positions.last(0, 1)


def _shaped(b: Rewriter, value: Value | torch.Tensor, *shape: Dim) -> Value:
    """Reshape positions to a tensor of four axes."""
    if isinstance(value, Value):
        return value.view(*shape)
    sizes = [size for size in shape if isinstance(size, int)]
    return Value(b.constant(value.reshape(sizes), "places"), b)


def _product(matrix: Value, image: Value) -> Value:
    """Multiply `[1, 1, new, old]` by `[N, lines, old, C]`."""
    batch, lines, _, channels = image.shape
    shape = batch, lines, matrix.shape[2], channels
    return matrix.call(aten.MatmulDefault, image, shape=shape)


RULES = lowerings_of(__name__)
