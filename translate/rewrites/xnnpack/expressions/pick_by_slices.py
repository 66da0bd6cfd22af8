"""Lower indexing at known positions (flips, windows, nearest resizes, gathers) to slices and `cat`.

XNNPACK has no gather. Where the positions are known and regular, a few slices are enough
(`translate/rewrites/slices/picking.py` finds them), and the neighboring ops stay in one delegate. A
product with a constant matrix would work too, but it turns an infinity next to a picked element
into NaN.

Before:
    %y = aten.flip.default(%x, [1]) : (tensor<1x4x3xf32>) -> tensor<1x4x3xf32>
After:
    %0 = aten.slice.Tensor(%x, 1, 3, 4, 1) : (tensor<1x4x3xf32>) -> tensor<1x1x3xf32>
    %1 = aten.slice.Tensor(%x, 1, 2, 3, 1) : (tensor<1x4x3xf32>) -> tensor<1x1x3xf32>
    %2 = aten.slice.Tensor(%x, 1, 1, 2, 1) : (tensor<1x4x3xf32>) -> tensor<1x1x3xf32>
    %3 = aten.slice.Tensor(%x, 1, 0, 1, 1) : (tensor<1x4x3xf32>) -> tensor<1x1x3xf32>
    %y = aten.cat.default([%0, %1, %2, %3], 1) : (tensor<1x1x3xf32>, tensor<1x1x3xf32>, tensor<1x1x3xf32>, tensor<1x1x3xf32>) -> tensor<1x4x3xf32>
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from math import prod
from typing import ClassVar

import torch
from xdsl.ir import Operation, SSAValue

from stepwell.dialects import aten
from stepwell.dialects.aten.op import SchemaOp
from stepwell.dialects.xnnpack.datatypes import MAX_RANK
from stepwell.ir.core import weight_key
from stepwell.ir.program import Program
from stepwell.ir.rewriting.rewrite import Refusal, Rewrite, Rewriter
from stepwell.ir.types import Dim, dims
from stepwell.translate.rewrites.building import axis, is_known, is_open_once, permute, view
from stepwell.translate.rewrites.slices.picking import Plan, Planner, pick
from stepwell.translate.rewrites.xnnpack.nodes.guards import not_floats
from stepwell.translate.rewrites.xnnpack.nodes.windows import stated_scale

MOST = 64
"""The most slices and concatenations that may replace one op."""


@dataclass(frozen=True)
class Places:
    """The operand viewed as `seen`, from whose axes of known sizes elements are picked."""

    seen: tuple[Dim, ...]
    picked: tuple[tuple[int, tuple[int, ...]], ...]
    moved_last: int | None = None


@dataclass(frozen=True)
class Picked:
    """An op that picks elements, and the slices along each axis."""

    op: SchemaOp
    places: Places
    plans: tuple[tuple[int, Plan], ...]


@dataclass(frozen=True)
class PickBySlices(Rewrite[Picked]):
    """`index`, `gather`, `flip`, `unfold` and `upsample_nearest2d` to slices and `cat`."""

    name: ClassVar[str] = "pick-by-slices"
    anchors: ClassVar[tuple[type[Operation], ...]] = (
        aten.IndexSelectDefault,
        aten.IndexTensor,
        aten.GatherDefault,
        aten.FlipDefault,
        aten.UnfoldDefault,
        aten.UpsampleNearest2dDefault,
        aten.UpsampleNearest2dVec,
    )

    def match(self, op: SchemaOp, program: Program) -> Picked | Refusal | None:
        """Guards: floats, at most one dynamic size, known positions on other axes, few slices."""
        if isinstance(op, aten.GatherDefault) and weight_key(op.operands[1]) is None:
            return None
        if refusal := not_floats((op.operands[0], *op.results)):
            return refusal
        shape, made = dims(op.operands[0].type), dims(op.results[0].type)
        if not all(is_known(sizes) and is_open_once(sizes) for sizes in (shape, made)):
            return Refusal("more than one size is symbolic")
        places = self.places(op, shape, program)
        if not isinstance(places, Places):
            return places
        if len(places.seen) + 1 > MAX_RANK:
            return Refusal(f"with an axis more, rank {len(shape)} is above XNNPACK's {MAX_RANK}")
        sizes = _sizes_of(places.seen, [at for at, _ in places.picked])
        assert sizes is not None, "places are on axes of known sizes"
        plans = tuple(
            (at, Planner().plan(indices, size))
            for (at, indices), size in zip(places.picked, sizes, strict=True)
        )
        cost = sum(plan.cost for _, plan in plans)
        if cost > MOST:
            return Refusal(f"the indices are so irregular that it takes {cost} slices")
        return Picked(op, places, plans)

    def places(
        self, op: SchemaOp, shape: tuple[Dim, ...], program: Program
    ) -> Places | Refusal | None:
        """Return the positions that are picked, or the reason why slices cannot express them."""
        if isinstance(op, aten.FlipDefault):
            flipped = sorted({axis(at, len(shape)) for at in op.arg("dims")})
            sizes = _sizes_of(shape, flipped)
            if sizes is None:
                return _OPEN
            backwards = (tuple(range(size))[::-1] for size in sizes)
            return Places(shape, tuple(zip(flipped, backwards, strict=True)))
        if isinstance(op, aten.UnfoldDefault):
            return _windows(op, shape)
        if isinstance(op, aten.UpsampleNearest2dDefault | aten.UpsampleNearest2dVec):
            return _nearest(op, shape)
        if isinstance(op, aten.GatherDefault):
            return _gathered(op, shape, program)
        if isinstance(op, aten.IndexSelectDefault):
            at = axis(op.arg("dim"), len(shape))
            given = [*[None] * at, op.operands[1]]
        else:
            given = list(op.arg("indices"))
        return _indexed(given, shape, program)

    def build(self, match: Picked, rw: Rewriter) -> None:
        """Pick along each axis, then reshape to the result's shape."""
        value = view(rw, match.op.operands[0], match.places.seen)
        for at, plan in match.plans:
            value = pick(rw, value, at, plan)
        shape = dims(match.op.results[0].type)
        at = match.places.moved_last
        if at is None:
            rw.replace(match.op, [view(rw, value, shape)])
            return
        value = view(rw, value, (*shape[: at + 1], shape[-1], *shape[at + 1 : -1]))
        order = [axis for axis in range(len(shape)) if axis != at + 1]
        rw.replace(match.op, [permute(rw, value, [*order, at + 1])])


_OPEN = Refusal("it picks from an axis of symbolic size")


def _sizes_of(shape: Sequence[Dim], over: Sequence[int]) -> tuple[int, ...] | None:
    """Return the sizes of some axes, if all are static."""
    sizes = tuple(size for at in over if isinstance(size := shape[at], int))
    return sizes if len(sizes) == len(over) else None


def _windows(op: SchemaOp, shape: tuple[Dim, ...]) -> Places | Refusal | None:
    size, step = op.arg("size"), op.arg("step")
    if not shape or not isinstance(size, int) or not isinstance(step, int):
        return Refusal("a window's size is known only at run time, or there is no axis")
    at = axis(op.arg("dimension"), len(shape))
    whole = shape[at]
    if not isinstance(whole, int):
        return _OPEN
    starts = range(0, whole - size + 1, step)
    return Places(shape, ((at, tuple(i + j for i in starts for j in range(size))),), at)


def _nearest(op: SchemaOp, shape: tuple[Dim, ...]) -> Places | Refusal | None:
    sizes, made = (_sizes_of(of, (2, 3)) for of in (shape, dims(op.results[0].type)))
    if sizes is None or made is None:
        return _OPEN
    picked: list[tuple[int, tuple[int, ...]]] = []
    for at, (size, wide) in enumerate(zip(sizes, made, strict=True)):
        if size >= 1 << 24:
            return Refusal("the image is so large that its indices are not exact floats")
        line = torch.arange(size, dtype=torch.float32).reshape(1, 1, 1, size)
        places = torch.ops.aten.upsample_nearest2d.default(
            line, [1, wide], None, stated_scale(op, at)
        )
        picked.append((2 + at, tuple(int(place) for place in places.flatten())))
    return Places(shape, tuple(picked))


def _gathered(op: SchemaOp, shape: tuple[Dim, ...], program: Program) -> Places | Refusal | None:
    """Return positions in the rows of a matrix, equal for all heads, as relative ones are."""
    key = weight_key(op.operands[1])
    assert key is not None, "match asks for constant places"
    places, rank = program.weights.get(key), len(shape)
    if rank < 2 or axis(op.arg("dim"), rank) != rank - 1:
        return Refusal("it gathers along another axis than the last, or of one axis")
    if tuple(places.shape[:-1]) != shape[:-1]:
        return Refusal("there are fewer indices than rows")
    matrices = places.flatten(0, -3) if rank > 2 else places[None]
    if not bool((matrices == matrices[:1]).all()):
        return Refusal("the places are not the same for all matrices")
    matrix = _sizes_of(shape, (rank - 2, rank - 1))
    if matrix is None:
        return _OPEN
    height, width = matrix
    if not 0 <= int(places.min()) <= int(places.max()) < width:
        return Refusal("an index is outside its axis")
    rows = torch.arange(height)[:, None] * width
    flat = tuple((matrices[0] + rows).flatten().tolist())
    return Places((*shape[:-2], height * width), ((rank - 2, flat),))


def _indexed(
    values: Sequence[SSAValue | None], shape: tuple[Dim, ...], program: Program
) -> Places | Refusal | None:
    """Return constant indices of adjacent axes: for each axis alone, or for the axes as one."""
    axes = [at for at, index in enumerate(values) if index is not None]
    keys = [weight_key(index) for index in values if index is not None]
    if any(key is None for key in keys):
        return None
    if not axes or axes != list(range(axes[0], axes[-1] + 1)):
        return Refusal("axes that are not neighbors are indexed")
    sizes = _sizes_of(shape, axes)
    if sizes is None:
        return _OPEN
    tensors = [program.weights.get(key) for key in keys if key is not None]
    if any(tensor.dtype.itemsize == 1 for tensor in tensors):
        return Refusal("a mask selects the elements, not indices")
    wrapped = [
        torch.where(tensor < 0, tensor + size, tensor).long()
        for size, tensor in zip(sizes, tensors, strict=True)
    ]
    for size, tensor in zip(sizes, wrapped, strict=True):
        if tensor.numel() and not 0 <= int(tensor.min()) <= int(tensor.max()) < size:
            return Refusal("an index is outside its axis")
    if _is_mesh(wrapped):
        return Places(
            shape,
            tuple(
                (at, tuple(tensor.flatten().tolist()))
                for at, tensor in zip(axes, wrapped, strict=True)
            ),
        )
    places = torch.zeros((), dtype=torch.long)
    for size, tensor in zip(sizes, wrapped, strict=True):
        places = places * size + tensor
    first, behind = axes[0], axes[-1] + 1
    merged = (*shape[:first], prod(sizes), *shape[behind:])
    return Places(merged, ((first, tuple(places.flatten().tolist())),))


def _is_mesh(tensors: Sequence[torch.Tensor]) -> bool:
    """Whether index i varies along axis i of the broadcast shape, alone, in order."""
    rank = max(tensor.dim() for tensor in tensors)
    shapes = [(1,) * (rank - tensor.dim()) + tuple(tensor.shape) for tensor in tensors]
    own = [[at for at, size in enumerate(shape) if size > 1] for shape in shapes]
    flat = [at for axes in own for at in axes]
    return flat == sorted(set(flat))
