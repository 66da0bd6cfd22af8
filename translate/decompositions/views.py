"""Canonical forms of data movement: views, permutes and expands with explicit sizes."""

from __future__ import annotations

from collections.abc import Sequence
from math import prod
from typing import Any

from xdsl.ir import SSAValue

from stepwell.dialects import aten
from stepwell.dialects.xnnpack.datatypes import MAX_RANK
from stepwell.ir.compat.xdsl.xdsl_private import operands_of
from stepwell.ir.rewriting.rewrite import EXACT, Bound, Rewriter
from stepwell.ir.sizes.size import UNKNOWN, Dim, Size
from stepwell.ir.types import dims, tensor
from stepwell.translate.decompositions.values import Value, cat, no_refusal
from stepwell.translate.lowerings.lowering import Out, lowerings_of, lowers, refuse
from stepwell.translate.rewrites.building import (
    axis,
    cannot_be_viewed_as,
    element_count,
    emit,
    is_open_once,
    same_type,
    view_op,
)
from stepwell.translate.rewrites.slices.moved_places import MOST_PLACES, longest_run, places
from stepwell.translate.rewrites.views.memory import is_dense, is_row_major
from stepwell.translate.rewrites.xnnpack.nodes.guards import not_floats

STRIDED = ("aten.as_strided.default", "aten.as_strided_copy.default")


@lowers(*STRIDED, to="aten", sample=("2x6xf32", [3, 4], [4, 1]))
def as_strided_to_view(x: Value, size: Any, stride: Any, offset: Any, *, out: Out, b: Any) -> Value:
    """Rewrite `as_strided` as a view, if it provably is one.

    Strides are not part of the IR: the elements that `as_strided` reads are known only if the
    memory format of its operand is. The memory format is known for an input (by the signature), a
    weight, or a new tensor with at most one axis longer than 1. The op is a view only if the
    requested strides are dense and row-major, with offset 0 and the same number of elements.
    """
    shape = static_dims_of(out.shape)
    if not x.is_static or shape is None:
        refuse("the shape is symbolic")
    if any(isinstance(s, SSAValue) for s in stride) or offset:
        refuse("the strides or the offset are not those of a view")
    if not is_dense(shape, stride) or element_count(shape) != element_count(x.shape):
        refuse(f"strides {stride} of {list(shape)} overlap, skip or reorder")
    if not is_row_major(x.ssa, b.program):
        refuse("the memory format of the operand is not known to be row-major")
    return x.view(*shape)


@lowers(
    *STRIDED,
    to="aten",
    takes_empty=False,
    sample=("2x4xf32", [3, 2], [2, 1], 2),
)
def gather_strides(x: Value, *, op: Any, out: Out, b: Rewriter) -> Value:
    """Rewrite `as_strided` as a gather from its operand's memory, if that is row-major.

    The elements that `as_strided` reads depend on strides, which are not part of the IR: the
    strides of a transposed value do not follow from its shape. The op becomes an `index_select`
    only if its operand is provably row-major.
    """
    shape = static_dims_of(out.shape)
    if not x.is_static or shape is None:
        refuse("the shape is symbolic")
    if len(op.operands) > 1:
        refuse("a size, a stride or the offset is known only at run time")
    if not is_row_major(x.ssa, b.program):
        refuse("the memory format of the operand is not known to be row-major")
    if element_count(shape) > MOST_PLACES:
        refuse(f"the positions would be a constant of {element_count(shape)} elements")
    pattern, count = places(op), element_count(x.shape)
    run = longest_run(pattern, count)
    rows = x.view(count // run, run)
    index = b.constant((pattern[::run] // run).contiguous(), "rows")
    chosen = emit(b, aten.IndexSelectDefault.make(rows.ssa, 0, index))
    return Value(chosen, b).view(*shape)


def static_dims_of(shape: Sequence[Dim]) -> tuple[int, ...] | None:
    """Return a shape if all its sizes are numbers."""
    known = tuple(size for size in shape if isinstance(size, int))
    return known if len(known) == len(shape) else None


RESHAPES = (
    "aten.reshape.default",
    "aten.view.default",
    "aten.view_copy.default",
    "aten._unsafe_view.default",
    "aten._reshape_copy.default",
    "aten.view_as.default",
    "aten.reshape_as.default",
    "aten.flatten.using_ints",
    "aten.ravel.default",
    "aten.unflatten.int",
    "aten.squeeze.default",
    "aten.squeeze.dim",
    "aten.squeeze.dims",
    "aten.squeeze_copy.default",
    "aten.squeeze_copy.dim",
    "aten.squeeze_copy.dims",
    "aten.unsqueeze.default",
    "aten.unsqueeze_copy.default",
)


def is_view_in_form(op: Any) -> bool:
    """Whether an op is a view whose sizes are stated or computed in the program."""
    if type(op) is not aten.ViewDefault:
        return False
    sizes = op.arg("size")
    return not sizes or len(operands_of(op)) > 1 or is_written_out(sizes, dims(op.results[0].type))


@lowers(*RESHAPES, to="aten", unless=is_view_in_form, sample=("2x12xf32", [-1, 3]))
def reshape_to_view(x: Value, *, op: Any, out: Out, b: Rewriter) -> Value:
    """Rewrite every reshape as `aten.view.default` with its sizes written out.

    `reshape`, `flatten`, `unflatten`, `squeeze`, `unsqueeze`, `view_copy` and the rest keep the
    elements in row-major order and state another shape, so that one op is enough. The first
    symbolic size is written as −1, others are read from the operand; sizes that the program
    computes are unchanged.
    """
    sizes = stated_sizes(op)
    if any(isinstance(size, SSAValue) for size in sizes):
        return x.call(aten.ViewDefault, list(sizes), shape=out.shape)
    no_refusal(cannot_be_viewed_as(x.ssa, out.shape))
    return Value(emit(b, view_op(b, x.ssa, out.shape)), b)


def stated_sizes(op: Any) -> Sequence[int | SSAValue]:
    """Return the result's sizes as an op states them; None unless it states all."""
    for name in ("size", "shape"):
        if name in op.SCHEMA.by_name:
            return op.arg(name)
    if not isinstance(op, aten.UnflattenInt):
        return ()
    operand_dims = dims(op.operands[0].type)
    at = axis(op.arg("dim"), len(operand_dims))
    kept = [size for i, size in enumerate(operand_dims) if i != at]
    known: list[int | SSAValue] = [size for size in kept if isinstance(size, int)]
    return [*known[:at], *op.arg("sizes"), *known[at:]] if len(known) == len(kept) else ()


def is_written_out(sizes: Sequence[int | SSAValue], shape: Sequence[Dim]) -> bool:
    """Whether a view states every static size as a number, and one symbolic size as -1."""
    return all(
        size == dim if isinstance(dim, int) else size == -1
        for size, dim in zip(sizes, shape, strict=True)
    )


BROADCASTS = (
    "aten.expand_copy.default",
    "aten.expand.default",
    "aten.expand_as.default",
    "aten.broadcast_to.default",
)


@lowers(*BROADCASTS, to="aten", sample=("1x3xf32", [4, -1]))
def normalize_expand(x: Value, *, op: Any, out: Out) -> Value | None:
    """Rewrite every broadcast as one `aten.expand.default` with explicit sizes, −1 if dynamic.

    An expand of an expand is merged. A view first adds leading axes, so that an expand only ever
    repeats axes of size 1.
    """
    result = op.results[0]
    if same_type(x.ssa, result):
        return None
    merges = isinstance(x.owner, aten.ExpandDefault)
    source = Value(x.owner.operands[0], x.b) if merges else x
    shape = (*[1] * (len(out.shape) - source.rank), *source.shape)
    if any(isinstance(b, Size) and a != b for a, b in zip(shape, out.shape, strict=True)):
        refuse("the expanded shape is symbolic")
    sizes = [-1 if isinstance(size, Size) else size for size in out.shape]
    is_normal = isinstance(op, aten.ExpandDefault) and op.arg("size") == sizes
    if is_normal and not merges and shape == source.shape and "implicit" not in op.properties:
        return None
    value = source.view(*shape)
    if same_type(value.ssa, result):
        return value
    return value.call(aten.ExpandDefault, sizes, shape=out.shape)


REPEATS = {
    "aten.repeat.default": "repeats",
    "aten.tile.default": "dims",
    "aten.repeat_interleave.self_int": None,
}


@lowers(REPEATS, to="aten", sample=("2x1xf32", [3, 4]))
def repeat_to_expand(x: Value, *, form: str | None, op: Any, out: Out) -> Value:
    """Rewrite `repeat`, `tile` and `repeat_interleave` as a view, one expand and a view.

    An axis of n elements repeated r times is the axes (r, n) of an expand, flattened; elements
    repeated r times each are the axes (n, r). Axes of size 1 need no view. If several sizes are
    dynamic, a view cannot infer them, and the repeated parts of one axis are concatenated.
    """
    if UNKNOWN in x.shape:
        refuse("the result's shape is unknown")
    counts = op.arg(form) if form is not None else ()
    if any(isinstance(count, SSAValue) for count in counts):
        return _of_open_counts(x, counts, out.shape)
    if form is None:
        units, sizes = _interleaved(x, op.arg("repeats"), op.arg("dim"))
    else:
        units, sizes = _repeated(x.shape, counts)
    if not is_open_once(out.shape) and (parts := _repeated_parts(x, out.shape, form)):
        return cat(parts[1], parts[0])
    return x.view(*units).expand(*sizes).view(*out.shape)


def _of_open_counts(x: Value, counts: Sequence[Any], made: Sequence[Dim]) -> Value:
    """Expand axes of one element by repetition counts that the program computes."""
    shape = (*[1] * (len(counts) - x.rank), *x.shape)
    pairs = list(zip(shape, counts, strict=True))
    if not all(size == 1 or count == 1 for size, count in pairs):
        refuse("the counts are known only at run time")
    sizes = [count if size == 1 else -1 for size, count in pairs]
    return x.view(*shape).call(aten.ExpandDefault, sizes, shape=made)


MOST_PARTS = 64
"""The most copies that are concatenated along a repeated axis."""


def _repeated_parts(
    x: Value, made: Sequence[Dim], form: str | None
) -> tuple[int, list[Value]] | None:
    """Return the only repeated axis with several elements, and the number of copies."""
    if x.rank != len(made):
        return None
    longer = [at for at, (size, new) in enumerate(zip(x.shape, made, strict=True)) if size != new]
    if len(longer) != 1 or x.shape[longer[0]] == 1:
        return None
    at = longer[0]
    size, new = x.shape[at], made[at]
    assert isinstance(size, int) and isinstance(new, int), "a dynamic axis is not repeated"
    if new > MOST_PARTS:
        return None
    count = new // size
    if form is not None:
        return at, [x] * count
    rows = [x.slice(at, row, row + 1) for row in range(size)]
    return at, [row for row in rows for _ in range(count)]


def _repeated(shape: Sequence[Dim], counts: Sequence[Any]) -> tuple[list[Dim], list[Dim]]:
    """Return the shapes of the view and of the expand."""
    rank = max(len(shape), len(counts))
    units: list[Dim] = []
    sizes: list[Dim] = []
    for size, count in zip(
        (*[1] * (rank - len(shape)), *shape), (*[1] * (rank - len(counts)), *counts), strict=True
    ):
        if isinstance(size, Size) and count != 1:
            refuse("an axis of symbolic size is repeated")
        if count != 1 and size != 1:
            units, sizes = [*units, 1, size], [*sizes, count, size]
        else:
            units, sizes = [*units, size], [*sizes, size if count == 1 else count]
    return units, sizes


def _interleaved(x: Value, count: Any, dim: int | None) -> tuple[list[Dim], list[Dim]]:
    if isinstance(count, SSAValue):
        refuse("the count is known only at run time")
    if dim is None:
        refuse("repeat_interleave without dim flattens its operand")
    at = x.axis(dim)
    if isinstance(x.shape[at], Size):
        refuse("an axis of symbolic size is repeated")
    front, behind = x.shape[: at + 1], x.shape[at + 1 :]
    return [*front, 1, *behind], [*front, count, *behind]


SHUFFLES = (
    "aten.pixel_shuffle.default",
    "aten.pixel_unshuffle.default",
    "aten.channel_shuffle.default",
)


@lowers(*SHUFFLES, to="aten", takes_empty=False, sample=("1x8x3x3xf32", 2))
def pixel_shuffle_to_permute(x: Value, factor: int, *, op: Any, out: Out) -> Value:
    """Rewrite `pixel_shuffle`, `pixel_unshuffle` and `channel_shuffle` as view, permute, view."""
    if any(isinstance(size, Size) for size in x.shape[1:]):
        refuse("the shuffled sizes are symbolic")
    if isinstance(op, aten.ChannelShuffleDefault):
        batch, channels, *space = x.shape
        shape = (batch, factor, channels // factor, *space)
        order = (0, 2, 1, *range(3, len(shape)))
        return x.view(*shape).permute(order).view(*out.shape)
    *lead, channels, height, width = x.shape
    n, r = len(lead), factor
    if isinstance(op, aten.PixelShuffleDefault):
        shape = (*lead, channels // (r * r), r, r, height, width)
        moved = (n, n + 3, n + 1, n + 4, n + 2)
    else:
        shape = (*lead, channels, height // r, r, width // r, r)
        moved = (n, n + 2, n + 4, n + 1, n + 3)
    return x.view(*shape).permute((*range(n), *moved)).view(*out.shape)


@lowers(
    "aten.col2im.default",
    to="aten",
    bound=Bound(0.0, 5e-324, "torch adds to zeros: −0 becomes +0"),
    sample=("1x8x6xf32", [4, 6], [2, 2], [1, 1], [0, 0], [2, 2]),
)
def fold_to_permute(
    x: Value,
    size: Sequence[Any],
    kernel: Sequence[int],
    dilation: Sequence[int],
    padding: Sequence[int],
    stride: Sequence[int],
    *,
    out: Out,
) -> Value:
    """Rewrite `fold` of windows that tile the image (MobileViTV2) as view, permute, view."""
    if not x.is_static or not all(isinstance(n, int) for n in size):
        refuse("a size is symbolic")
    if any(n != 1 for n in dilation) or any(padding) or list(kernel) != list(stride):
        refuse("the windows overlap, or have gaps")
    if any(n % k for n, k in zip(size, kernel, strict=True)):
        refuse("the windows do not cover the whole image")
    lead, (rows, columns) = x.shape[:-2], kernel
    down, across = size[0] // rows, size[1] // columns
    n = len(lead)
    apart = x.view(*lead, out.shape[n], rows, columns, down, across)
    order = (*range(n + 1), n + 3, n + 1, n + 4, n + 2)
    return apart.permute(order).view(*out.shape)


MOST_AXES = MAX_RANK
"""The rank of tensors that every target can move: TOSA's level 8K has as many as XNNPACK."""


@lowers(
    "aten.permute.default",
    to="aten",
    unless=lambda op: len(dims(op.results[0].type)) <= MOST_AXES,
    bound=EXACT,
    sample=("1x2x3x1x2x2x5xf32", [0, 6, 1, 2, 3, 4, 5]),
)
def merge_permuted_axes(x: Value, order: Sequence[int], *, out: Out) -> Value:
    """Permute fewer axes: drop those of size one, and merge those that stay neighbors.

    Engines move tensors of up to six axes. A video's patches have eight, `[B, T, H, W, t, h, w,
    C]`, of which some are of size one. If more than six axes are left, adjacent blocks of axes are
    exchanged one pair after another; each exchange is a permute of four axes. One axis may be
    dynamic.
    """
    if not is_open_once(x.shape):
        refuse("several sizes are known only at run time")
    order = [d for d in map(x.axis, order) if x.shape[d] != 1]
    apart = [i for i, d in enumerate(order) if i == 0 or not _follows(order[i - 1], d, x.shape)]
    blocks = [order[i:j] for i, j in zip(apart, [*apart[1:], len(order)], strict=True)]
    rising = sorted(blocks)
    sizes = [prod(x.shape[d] for d in block) for block in rising]
    places = [rising.index(block) for block in blocks]
    if len(places) <= MOST_AXES:
        return x.view(*sizes).permute(places).view(*out.shape)
    held = list(range(len(places)))
    for place, block in enumerate(places):
        at = held.index(block)
        if at == place:
            continue
        parts = (held[:place], held[place:at], [block], held[at + 1 :])
        x = x.view(*(prod(sizes[i] for i in part) for part in parts)).permute((0, 2, 1, 3))
        held = [i for part in (parts[0], parts[2], parts[1], parts[3]) for i in part]
    return x.view(*out.shape)


def _follows(one: int, other: int, shape: Sequence[Dim]) -> bool:
    """Whether only axes of size one are between two axes."""
    return one < other and all(size == 1 for size in shape[one + 1 : other])


@lowers(
    "aten.slice.Tensor",
    to="aten",
    unless=lambda op: op.arg("step") == 1,
    sample=("8x3xf32", 0, 1, 8, 2),
)
def strided_slice_to_view(x: Value, dim: int, start: Any, end: Any, step: Any) -> Value:
    """Rewrite a slice with a step as a view and a plain slice.

    `x[0::2]` of a length-8 axis is column 0 of the axis viewed as `[4, 2]`. Swin's patch merging
    takes four such slices per stage, LeViT's sub-sampling attention one of an odd axis; XNNPACK and
    CMSIS-NN slice with step one only. If the axis length is not a multiple of the step, the axis is
    cut or padded; padding is never selected.
    """
    at, shape = x.axis(dim), x.shape
    size, start = shape[at], start or 0
    if isinstance(size, Size) or not isinstance(step, int):
        refuse("the sliced axis or the step is symbolic")
    if not is_open_once(shape):
        refuse("several sizes of a view are known only at run time")
    if not isinstance(start, int) or not isinstance(end, int | None):
        refuse("a bound is known only at run time")
    start = max(start + size, 0) if start < 0 else start
    stop = size if end is None else min(end + size if end < 0 else end, size)
    if start >= stop:
        refuse("the slice is empty")
    count = -(-(stop - start) // step)
    if count == 1:
        return x.slice(at, start, start + 1)
    if size != count * step or start >= step:
        stop = min(start + count * step, size)
        x = x.slice(at, start, stop)
        missing, start = start + count * step - stop, 0
        if missing:  # Padding after the end of the axis, which is never read.
            amounts = [0] * (2 * (len(shape) - at - 1)) + [0, missing]
            longer = [n + missing if i == at else n for i, n in enumerate(x.shape)]
            x = x.call(aten.ConstantPadNdDefault, amounts, 0, shape=longer)
    x = x.view(*shape[:at], count, step, *shape[at + 1 :]).slice(at + 1, start, start + 1)
    return x.view(*shape[:at], count, *shape[at + 1 :])


SHORT = 4
"""The most parts of an axis for which moving all of it costs less than element by element."""


def _is_short_and_last(shape: Sequence[Any], dim: int) -> bool:
    """Whether an axis is the last one, short, and XNNPACK's rank limit leaves room for one more
    axis.
    """
    if not 2 <= len(shape) < MAX_RANK or axis(dim, len(shape)) != len(shape) - 1:
        return False
    return isinstance(shape[-1], int) and 2 <= shape[-1] <= SHORT


@lowers("aten.unbind.int", to="aten", phases=("xnnpack/normalize",), sample=("3x4x2xf32", -1))
def unbind_by_permute(x: Value, dim: int, *, op: Any, b: Rewriter) -> tuple[Value, ...] | None:
    """Move a short last axis to the front before unbinding or after stacking (layout optimization).

    Rotary embeddings of neighboring pairs unbind a last axis of two and later stack one.
    XNNPACK slices and concatenates there element by element; a transposition to the front and
    slices of the first axis move whole blocks. (128 tokens of 8 heads of 64: a fifth of a layer.)
    """
    if not _is_short_and_last(x.shape, dim) or any(not result.uses for result in op.results):
        return None
    no_refusal(not_floats((x.ssa,)))
    turned = x.permute([x.rank - 1, *range(x.rank - 1)])
    types = [result.type for result in op.results]
    made = b.insert(aten.UnbindInt.make(turned.ssa, result_types=types))
    return tuple(Value(part, b) for part in made.results)


@lowers(
    "aten.stack.default",
    to="aten",
    phases=("xnnpack/normalize",),
    sample=(["3x4xf32", "3x4xf32"], -1),
)
def stack_by_permute(parts: list[Value], dim: int, *, op: Any, out: Out) -> Value | None:
    """Replace a stack on a short last axis by one on the first axis and a permute."""
    if not _is_short_and_last(out.shape, dim):
        return None
    no_refusal(not_floats(op.results))
    *before, last = out.shape
    type_ = tensor((last, *before), out.dtype)
    made = aten.StackDefault.make([part.ssa for part in parts], result_types=[type_])
    b = parts[0].b
    return Value(b.insert(made).results[0], b).permute([*range(1, len(before) + 1), 0])


RULES = lowerings_of(__name__)
