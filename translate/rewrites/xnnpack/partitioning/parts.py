"""Cut a box out of a value, or build a node that computes only a box."""

from __future__ import annotations

from xdsl.ir import Operation, SSAValue

from stepwell.dialects import xnnpack
from stepwell.dialects.xnnpack import XnnpackOp
from stepwell.dialects.xnnpack.base import to_attribute
from stepwell.ir.axes.boxes import Box, shape_of
from stepwell.ir.compat.torch.lazy_imports import torch
from stepwell.ir.core import weight_key
from stepwell.ir.rewriting.rewrite import Rewriter
from stepwell.ir.rewriting.rewriter import remade
from stepwell.ir.sizes.size import Size, number_of, settled
from stepwell.ir.types import dims, element, tensor
from stepwell.ir.weights import recipe
from stepwell.translate.rewrites.building import TO_THE_END, emit, slice_op

STATED: dict[type[XnnpackOp], str] = {
    xnnpack.StaticReshape: "new_shape",
    xnnpack.StaticSlice: "sizes",
}
"""Nodes that state the sizes of their result, with the name of that attribute."""


@recipe("box_of")
def box_of(constant: torch.Tensor, *, starts: list[int], stops: list[int]) -> torch.Tensor:
    """Return a box of a constant, as a view."""
    return constant[tuple(slice(a, b) for a, b in zip(starts, stops, strict=True))]


def cut_out(rw: Rewriter, value: SSAValue, have: Box, box: Box) -> SSAValue:
    """Return the elements of `box` from a value that holds the elements of `have`."""
    starts: list[int] = []
    for at, (asked, held) in enumerate(zip(box, have, strict=True)):
        start, length = settled(Size.of(asked[0]) - held[0]), settled(Size.of(asked[1]) - asked[0])
        is_rest = isinstance(start, int) and asked[1] == held[1]  # A node slices to the end.
        if not is_rest and (isinstance(start, Size) or isinstance(length, Size)):
            ends = [settled(Size.of(end) - held[1]) for end in asked]
            first = start if isinstance(start, int) else number_of(ends[0])
            last = number_of(ends[1]) or TO_THE_END
            value, start = emit(rw, slice_op(value, at, first, last, length)), 0
        starts.append(number_of(start))
    shape = shape_of(box)
    if shape == dims(value.type):
        return value
    key = weight_key(value)
    sizes = [size if isinstance(size, int) else 0 for size in shape]
    if key is not None:
        stops = [start + size for start, size in zip(starts, sizes, strict=True)]
        return rw.weight(rw.weights.derive("box_of", [key], starts=starts, stops=stops))
    result = tensor(shape, element(value.type))
    new = xnnpack.StaticSlice.make(value, result=result, offsets=starts, sizes=sizes)
    return rw.insert(new).results[0]


def rebuilt(op: XnnpackOp, operands: list[SSAValue], box: Box) -> Operation:
    """Build a copy of `op` that computes only a box of its result: a range on each axis."""
    new = remade(op, operands, [tensor(shape_of(box), element(op.output.type))])
    if (field := STATED.get(type(op))) is not None:
        sizes = [size for size in shape_of(box) if isinstance(size, int)]
        new.properties[field] = to_attribute(sizes)
    return new
