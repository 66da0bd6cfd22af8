"""Lower indexing at known positions (flips, windows, nearest resizes, gathers) to slices and `cat`.

XNNPACK has no gather. Where the positions are known and regular, a few slices are enough
(`translate/rewrites/slices/picking.py` finds them), and the neighboring ops stay in one delegate. A
product with a constant matrix would work too, but it turns an infinity next to a picked element
into NaN.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from math import prod

from xdsl.ir import SSAValue

from stepwell.dialects import aten
from stepwell.dialects.aten.op import SchemaOp
from stepwell.dialects.xnnpack.datatypes import MAX_RANK
from stepwell.ir.compat.torch.lazy_imports import torch
from stepwell.ir.core import weight_key
from stepwell.ir.program import Program
from stepwell.ir.rewriting.rewrite import Refusal
from stepwell.ir.types import Dim, dims
from stepwell.translate.decompositions.values import Value, no_refusal
from stepwell.translate.lowerings.lowering import Out, lowerings_of, lowers, refuse
from stepwell.translate.rewrites.building import axis, is_known, is_open_once
from stepwell.translate.rewrites.slices.picking import Planner, pick
from stepwell.translate.rewrites.xnnpack.nodes.guards import not_floats
from stepwell.translate.rewrites.xnnpack.nodes.windows import stated_scale

MOST = 64
"""The most slices and concatenations that may replace one op."""


@dataclass(frozen=True)
class Places:
    """The view of the operand from whose static axes elements are picked."""

    seen: tuple[Dim, ...]
    picked: tuple[tuple[int, tuple[int, ...]], ...]
    moved_last: int | None = None


@lowers(
    "aten.flip.default",
    "aten.index_select.default",
    "aten.index.Tensor",
    "aten.gather.default",
    "aten.unfold.default",
    "aten.upsample_nearest2d.default",
    "aten.upsample_nearest2d.vec",
    to="aten",
    sample=("1x4x3xf32", [1]),
)
def pick_by_slices(x: Value, *, op: SchemaOp, out: Out) -> Value | None:
    """Pick elements at known positions by slices and `cat` along each axis, then reshape."""
    if isinstance(op, aten.GatherDefault) and weight_key(op.operands[1]) is None:
        return None
    no_refusal(not_floats((x.ssa, *op.results)))
    if not all(is_known(sizes) and is_open_once(sizes) for sizes in (x.shape, out.shape)):
        refuse("more than one size is symbolic")
    places = places_of(op, x.shape, x.b.program)
    if not isinstance(places, Places):
        no_refusal(places)
        return None
    if len(places.seen) + 1 > MAX_RANK:
        refuse(f"one more axis than rank {x.rank} exceeds XNNPACK's limit of {MAX_RANK}")
    sizes = _sizes_of(places.seen, [at for at, _ in places.picked])
    assert sizes is not None, "places are on axes of known sizes"
    plans = [
        (at, Planner().plan(indices, size))
        for (at, indices), size in zip(places.picked, sizes, strict=True)
    ]
    if (cost := sum(plan.cost for _, plan in plans)) > MOST:
        refuse(f"the indices are so irregular that it takes {cost} slices")
    picked = x.view(*places.seen).ssa
    for at, plan in plans:
        picked = pick(x.b, picked, at, plan)
    shape, at, y = out.shape, places.moved_last, Value(picked, x.b)
    if at is None:
        return y.view(*shape)
    y = y.view(*shape[: at + 1], shape[-1], *shape[at + 1 : -1])
    return y.permute([*(axis for axis in range(len(shape)) if axis != at + 1), at + 1])


def places_of(op: SchemaOp, shape: tuple[Dim, ...], program: Program) -> Places | Refusal | None:
    """Return the picked positions, or why slices cannot express them."""
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


_OPEN = Refusal("the op picks from an axis of symbolic size")


def _sizes_of(shape: Sequence[Dim], over: Sequence[int]) -> tuple[int, ...] | None:
    """Return the sizes of some axes, if all are static."""
    sizes = tuple(size for at in over if isinstance(size := shape[at], int))
    return sizes if len(sizes) == len(over) else None


def _windows(op: SchemaOp, shape: tuple[Dim, ...]) -> Places | Refusal | None:
    size, step = op.arg("size"), op.arg("step")
    if not shape or not isinstance(size, int) or not isinstance(step, int):
        return Refusal("a window's size is known only at run time, or the operand is a scalar")
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
    """Return the picked positions in the rows of a matrix, which must be equal for all heads."""
    key = weight_key(op.operands[1])
    assert key is not None, "match asks for constant places"
    places, rank = program.weights.get(key), len(shape)
    if rank < 2 or axis(op.arg("dim"), rank) != rank - 1:
        return Refusal(
            "the op gathers along another axis than the last, or its operand has one axis"
        )
    if tuple(places.shape[:-1]) != shape[:-1]:
        return Refusal("the indices leave out rows along another axis")
    matrices = places.flatten(0, -3) if rank > 2 else places[None]
    if not bool((matrices == matrices[:1]).all()):
        return Refusal("the indices are not the same for all matrices")
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
    """Return constant indices for adjacent axes, either for each axis or for the axes merged into
    one.
    """
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
    """Whether index i varies only along axis i of the broadcast shape, in order."""
    rank = max(tensor.dim() for tensor in tensors)
    shapes = [(1,) * (rank - tensor.dim()) + tuple(tensor.shape) for tensor in tensors]
    own = [[at for at, size in enumerate(shape) if size > 1] for shape in shapes]
    flat = [at for axes in own for at in axes]
    return flat == sorted(set(flat))


RULES = lowerings_of(__name__)
