"""Lowerings of means, sums and extrema: linear layers over the last axes, else pools of planes.

XNNPACK reduces only image planes. `[B, N, C]` reduced over N is an image of height N and width one,
already channels last, so no transpose is needed. Groups of adjacent axes are reduced one after
another. If more than one size is symbolic, a reshape cannot infer them; each axis is then moved to
the end and summed. Planes of any size, and one axis of any size, are averaged by pooling; a sum is
the mean times the size.

The maximum is max pooling of such images; the minimum is the negated maximum of the negated
operand. Single-channel images are pooled pixel by pixel, so a row without trailing axes is folded
into lines of a few elements, or made a column (1024 rows of 1024: 5.8 ms, folded 0.4 ms). XNNPACK's
pooling may return the number if one of two operands is NaN. By default a sum of squares, which is
NaN only for a NaN, is turned into 0 or NaN and subtracted (see `carry-nans`).
"""

from __future__ import annotations

from collections.abc import Sequence
from math import prod
from typing import Any

from stepwell.dialects import aten, xnnpack
from stepwell.dialects.xnnpack.datatypes import MAX_RANK
from stepwell.ir.declared.bounds import roundings
from stepwell.ir.declared.numerics import Deviation
from stepwell.ir.dtypes import f16
from stepwell.ir.program import Program
from stepwell.ir.rewriting.rewrite import Bound, Rewriter
from stepwell.ir.signature import most_of
from stepwell.ir.sizes.size import Dim, Size, settled
from stepwell.ir.types import dims, tensor
from stepwell.translate.decompositions.values import Value, no_refusal
from stepwell.translate.lowerings.lowering import Out, lowerings_of, lowers, refuse
from stepwell.translate.lowerings.xnnpack.values import flushed, node
from stepwell.translate.rewrites.building import axes
from stepwell.translate.rewrites.norms.row_statistics import too_wide, weighted_rows
from stepwell.translate.rewrites.sizes.sizes import size_as_tensor
from stepwell.translate.rewrites.xnnpack.floats.nans import carries_nans, keeps_nans, nans_along
from stepwell.translate.rewrites.xnnpack.floats.singles import widened
from stepwell.translate.rewrites.xnnpack.nodes.guards import may_be_empty
from stepwell.translate.rewrites.xnnpack.nodes.lower_shape import reshape, stays_outside


@lowers(
    {"aten.mean.dim": True, "aten.sum.dim_IntList": False},
    to="xnnpack",
    bound=roundings("sums in another order"),
    deviation=flushed,
    name="lower-reduction",
    sample=("2x4x8xf32", [2], True),
)
def reduction(x: Value, *, form: bool, dim: Any, op: Any, out: Out, b: Rewriter) -> Value:
    """Reduce one group of adjacent axes after another, the last group first; a view restores the
    shape.
    """
    shape = x.shape
    runs = runs_of(axes(dim or range(x.rank), x.rank))
    if not form:  # The sum of no elements is 0, and their mean is NaN.
        no_refusal(may_be_empty(op, [size for run in runs for size in shape[slice(*run)]]))
    if any(_symbols(shape[slice(*run)]) for run in runs):
        _needs_pool(shape, runs)
    elif runs and (runs[0][1] == x.rank or _symbols(shape) > 1):
        no_refusal(too_wide(_count(shape[slice(*runs[0])])))
    is_widened = x.dtype == f16 and carries_nans([x.ssa], b.program)
    if is_widened:  # A linear layer of halves clamps NaN to −∞ on some CPUs.
        x = Value(widened(b, x.ssa), b)
    for first, end in runs:
        x = _reduce(x, first, end, form)
    return x.cast(out.dtype).view(*out.shape)


def _count(shape: Sequence[Dim]) -> int:
    return prod(size for size in shape if isinstance(size, int))


def runs_of(reduced: tuple[int, ...]) -> tuple[tuple[int, int], ...]:
    """Return the ranges (first, end) of adjacent axes, last range first: `(0, 2, 3)` gives `((2,
    4), (0, 1))`.
    """
    runs: list[tuple[int, int]] = []
    for at in reversed(reduced):
        if runs and runs[-1][0] == at + 1:
            runs[-1] = (at, runs[-1][1])
        else:
            runs.append((at, at + 1))
    return tuple(runs)


def _symbols(shape: Sequence[Dim]) -> int:
    """Count the symbolic dimensions: a reshape node infers only one."""
    return sum(isinstance(size, Size) for size in shape)


_PLANES = ((2, 4),)
"""The runs of a mean over the planes of `[N, C, H, W]`."""


def _needs_pool(shape: Sequence[Dim], runs: Sequence[tuple[int, int]]) -> None:
    """Refuse axes of symbolic size unless one pool averages them."""
    if len(shape) == 4 and tuple(runs) == _PLANES:
        return
    (first, end), *others = runs
    if others or (end - first > 1 and _symbols(shape) > 1) or len(shape) >= MAX_RANK:
        refuse("several axes of symbolic size are reduced that are not the planes of an image")


def _reduce(value: Value, first: int, end: int, is_mean: bool) -> Value:
    """Reduce one group of adjacent axes to size one."""
    shape, source = value.shape, value
    kept = [1 if first <= i < end else d for i, d in enumerate(shape)]
    is_open = _symbols(shape[first:end]) > 0
    if is_open and (_symbols(shape) > 1 or (first, end) == (2, 4)):
        return _open_pool(value, first, end, is_mean)
    if _symbols(shape) > 1:
        for axis in range(first, end):
            value = _rows_along(value, axis, is_mean)
        return value
    if end == len(shape) and not is_open:
        if end - first > 1:
            value = value.view(*shape[:first], _extent(shape[first:]))
        return weighted_rows(value, None if is_mean else 1.0).view(*kept)
    count = _extent(shape[first:end])
    value = _pooled(value.view(_extent(shape[:first]), count, 1, _extent(shape[end:])))
    return (value if is_mean else _times(value, count, source)).view(*kept)


def _open_pool(value: Value, first: int, end: int, is_mean: bool) -> Value:
    """Average one axis, or the planes of an image, to size one, with several dynamic sizes.

    Channels are moved last, because a reshape could not split merged axes again.
    """
    rank, reduced = value.rank, list(range(first, end))
    order = [*(at for at in range(rank) if at not in reduced), *reduced]
    order = [*order[: -len(reduced) - 1], *reduced, order[-len(reduced) - 1]]
    image = value.permute(order) if rank > 1 else value.view(*value.shape, 1)
    sizes, is_line = image.shape, len(reduced) == 1
    result = _pooled(image.view(*sizes[:-1], 1, sizes[-1]) if is_line else image)
    if not is_mean:
        for at in reduced:
            result = _times(result, value.shape[at], value)
    if is_line:
        result = result.view(*sizes[:-2], 1, sizes[-1])
    return result.permute([order.index(at) for at in range(rank)])


def _times(value: Value, count: Dim, source: Value) -> Value:
    """Multiply by a size; a dynamic size is read from an input, or else from a value that has
    it.
    """
    if isinstance(count, int):
        return value if count == 1 else value * float(count)
    return value.call(aten.MulTensor, size_as_tensor(value.b, count, source.ssa))


def _extent(shape: Sequence[Dim]) -> Dim:
    return settled(prod(shape))


def _pooled(image: Value) -> Value:
    """Return the mean over the planes of `[N, H, W, C]`: `[N, 1, 1, C]`."""
    return node(image.b, xnnpack.GlobalAveragePooling2d, image.ssa, keep_dims=True)


def _rows_along(value: Value, axis: int, is_mean: bool) -> Value:
    """Move one axis to the end, sum it, and move it back."""
    order = [*(at for at in range(value.rank) if at != axis), axis]
    sums = weighted_rows(value.permute(order), None if is_mean else 1.0)
    return sums.permute([order.index(at) for at in range(value.rank)])


@lowers(
    "aten.view.default",
    to="xnnpack",
    check="none",
    unless=lambda op: _symbols(dims(op.results[0].type)) < 2,
    bound=Bound(0.0, 5e-324, "a sum of one −0 is +0"),
    deviation=flushed,
    name="lower-view-of-open-sizes",
    sample="""
    %n = aten.sym_size.int(%x, 0) : (tensor<?x1x?xf32, #stepwell.shape<["n", 1, "b"]>>) -> !stepwell.int<"n">
    %y = aten.view.default(%x, [%n, -1]) : (tensor<?x1x?xf32, #stepwell.shape<["n", 1, "b"]>>, !stepwell.int<"n">) -> tensor<?x?xf32, #stepwell.shape<["n", "b"]>>
    """,
)
def view_of_open_sizes(x: Value, *, op: Any, b: Rewriter) -> Value:
    """Rewrite a view that a reshape cannot infer: add unit axes by products, drop them by means."""
    result = op.results[0]
    no_refusal(stays_outside(result))
    return Value(reshape(b, x.ssa, dims(result.type)), b)


def _loses(op: Any, program: Program) -> Deviation | None:
    """Return the deviation: XNNPACK's pooling may return a number where PyTorch returns NaN."""
    lost = Deviation("a NaN may be lost beside a number")
    return lost.unless(keeps_nans(op.operands[0], program))


@lowers(
    {"aten.amax.default": False, "aten.amin.default": True},
    to="xnnpack",
    bound=Bound(0.0, 5e-324, "a maximum takes either of two zeros"),
    deviation=_loses,
    name="lower-greatest",
    sample=("2x4x8xf32", [1]),
)
def greatest(x: Value, *, form: bool, op: Any, dim: Any, out: Out, b: Rewriter) -> Value:
    """Pool one group of adjacent axes after another, the last first; a view restores the shape.

    If the one symbolic size is after the reduced axes, they are permuted after it.
    """
    shape = list(x.shape)
    reduced = axes(dim or range(x.rank), x.rank)
    open_ = [at for at in reduced if isinstance(shape[at], Size)]
    if (
        not open_
        and _symbols(shape) == 1
        and any(_symbols(shape[end:]) for _, end in runs_of(reduced))
    ):
        order = [*(at for at in range(x.rank) if at not in reduced), *sorted(reduced)]
        x, shape = x.permute(order), [shape[at] for at in order]
        reduced = tuple(range(x.rank - len(reduced), x.rank))
    value = x.call(aten.NegDefault) if form else x
    for at in open_:
        value = _greatest_along(value, at, op)
        shape[at] = 1
    for first, end in runs_of(reduced):
        if _symbols(shape) > 1 and (end < x.rank or first > 2):
            refuse("axes of symbolic size are adjacent to a reduced axis")
    for first, end in runs_of(reduced):
        count = _count(shape[first:end])
        if count > 1:
            value = _greatest(value, shape[:first], count, _count(shape[end:]))
        shape[first:end] = [1] * (end - first)
    if form:
        value = value.call(aten.NegDefault)
    if carries_nans(op.operands, b.program):
        value = value.view(*shape) - nans_along(x, sorted(reduced), b.program)
    return value.view(*out.shape)


LINES = (8, 16, 4, 32)
"""Elements of the lines that a row is folded into, in order of preference."""


def _greatest(value: Value, leading: list[Dim], count: int, behind: int) -> Value:
    """Return the maximum over `count` elements, each with `behind` trailing elements.

    Two leading axes of symbolic size stay separate, as batch and height of single-channel images.
    """
    if _symbols(leading) > 1:
        image = value.view(*leading, *[1] * (2 - len(leading)), count, 1)
        return _windows_pooled(image, 1, count)
    rows = _extent(leading)
    if behind == 1:
        line = next((size for size in LINES if count % size == 0 and count > 2 * size), None)
        if line is not None:
            value = _windows_pooled(value.view(rows, count // line, 1, line), count // line)
            count = line
        elif leading and isinstance(leading[-1], int) and leading[-1] >= min(LINES):
            rows, behind = _extent(leading[:-1]), leading[-1]
            value = value.view(rows, behind, count).permute([0, 2, 1])
    return _windows_pooled(value.view(rows, count, 1, behind), count)


WINDOW = 32
"""The most rows of a dynamic axis that are pooled at once."""


def _greatest_along(value: Value, at: int, op: Any) -> Value:
    """Return the maximum along an axis of dynamic size, kept with size 1.

    Windows are pooled, then windows of the results, until the greatest size makes a single window.
    Windows may extend past the end, where a pool ignores what is missing.
    """
    shape = value.shape
    size, most = shape[at], most_of(shape[at], op)
    if most is None:
        refuse("the size of the axis has no upper bound, which the number of windows depends on")
    if _symbols(shape) > 1:
        refuse("another size than that of the axis is symbolic, too")
    before, behind = _count(shape[:at]), _count(shape[at + 1 :])
    if behind == 1:  # Pools compute the last axis at once.
        image = value.view(before, size).permute([1, 0]).view(1, size, 1, before)
    else:
        image = value.view(before, size, 1, behind)
    while most > 1:
        height = min(most, WINDOW)
        most = -(-most // height)
        size = 1 if most == 1 else settled((Size.of(size) + (height - 1)) // height)
        made = tensor((image.shape[0], size, 1, image.shape[3]), value.dtype)
        image = _windows_pooled(image, height, past=height - 1, result=made)
    return image.view(*shape[:at], 1, *shape[at + 1 :])


def _windows_pooled(
    image: Value, height: int, width: int = 1, past: int = 0, **result: Any
) -> Value:
    windows = {"kernel": (height, width), "stride": (height, width)}
    fields = {**windows, "padding": (0, 0, past, 0), "dilation": (1, 1)}
    return node(image.b, xnnpack.MaxPooling2d, image.ssa, **fields, **result)


RULES = lowerings_of(__name__)
