"""Canonical forms of slices and concatenations."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import accumulate, pairwise
from typing import Any

from xdsl.ir import SSAValue

from stepwell.dialects import aten
from stepwell.ir.core import weight_key
from stepwell.ir.rewriting.rewrite import Rewriter
from stepwell.ir.sizes.size import UNKNOWN, Dim, Size, settled
from stepwell.ir.types import IntType, dims
from stepwell.translate.decompositions.values import (
    Value,
    cat,
    no_refusal,
)
from stepwell.translate.lowerings.lowering import Out, lowerings_of, lowers, refuse
from stepwell.translate.rewrites.building import (
    TO_THE_END,
    axis,
    cannot_be_viewed_as,
    element_count,
    emit,
    is_open_once,
    same_type,
    slice_op,
    view_op,
)
from stepwell.translate.rewrites.sizes.sizes import SizeBuilder
from stepwell.translate.rewrites.slices.picking import runs_of

SLICES = ("aten.slice.Tensor", "aten.slice_copy.Tensor")


NARROWS = ("aten.narrow.default", "aten.narrow_copy.default")


SELECTIONS = ("aten.select.int", "aten.select_copy.int")


@lowers(*SLICES, *NARROWS, to="aten", sample=("4x6xf32", -2, -2))
def normalize_slice(x: Value, dim: int, *, op: Any, out: Out) -> Value | None:
    """Canonicalize slices and narrows to `aten.slice.Tensor` with every bound a number.

    Bounds count from the front and are within the axis.
    """
    at = x.axis(dim)
    bounds = (_narrowed if "length" in op.SCHEMA.by_name else _ranged)(op, x.shape[at])
    if isinstance(op, aten.SliceTensor):
        stated = [op.present().get(name) for name in ("dim", "start", "end", "step")]
        if stated == [at, *bounds]:
            return None
    return x.call(aten.SliceTensor, at, *bounds, shape=out.shape)


@lowers(
    *SLICES,
    to="aten",
    unless=lambda op: not isinstance(dims(op.results[0].type)[op.arg("dim") or 0], Size),
    sample="""
    %n = aten.sym_size.int(%z, 0) : (tensor<?x12xf32, #stepwell.shape<["s", 12]>>) -> !stepwell.int<"s">
    %x = aten.view.default(%z, [-1, 3]) : (tensor<?x12xf32, #stepwell.shape<["s", 12]>>) -> tensor<?x3xf32, #stepwell.shape<["4*s", 3]>>
    %y = aten.slice.Tensor(%x, 0, 0, %n, 1) : (tensor<?x3xf32, #stepwell.shape<["4*s", 3]>>, !stepwell.int<"s">) -> tensor<?x3xf32, #stepwell.shape<["s", 3]>>
    """,
)
def slice_whole_share(x: Value, dim: int, *, op: Any, out: Out) -> Value | None:
    """Rewrite a slice of a fixed fraction of a dynamic axis, such as its second quarter, as a
    selection.

    TimeSformer selects a frame's rows, `x[:batch]`, from those of all frames.
    """
    at = x.axis(dim)
    part, whole, start = out.shape[at], x.shape[at], op.arg("start")
    if part == whole or not isinstance(whole, Size) or op.arg("step") not in (None, 1):
        return None
    begin = start.type.size if isinstance(start, SSAValue) else start or 0
    count, first = (Size.of(size).exact_quotient(part) for size in (whole, begin))
    if count is None or first is None or count.number is None or first.number is None:
        refuse("the slice is not an integer fraction of the axis")
    apart = [*x.shape[:at], count.number, part, *x.shape[at + 1 :]]
    if not is_open_once(apart):
        refuse("several sizes are dynamic")
    return x.view(*apart).slice(at, first.number, first.number + 1).view(*out.shape)


def _narrowed(op: Any, size: Dim) -> tuple[int, int, int]:
    start, length = op.arg("start"), op.arg("length")
    if isinstance(start, SSAValue) or isinstance(length, SSAValue):
        refuse("the bounds are known only at run time")
    if start < 0 and not isinstance(size, int):
        refuse(f"the start {start} counts from the end of an axis of the symbolic size {size}")
    start = start + size if start < 0 and isinstance(size, int) else start
    return start, start + length, 1


def _ranged(op: Any, size: Dim) -> tuple[int, int, int]:
    start, stop, step = op.arg("start"), op.arg("end"), op.arg("step")
    if isinstance(stop, SSAValue):
        stop = _counted_from_end(op, stop, size)
    if any(isinstance(bound, SSAValue) for bound in (start, stop, step)):
        refuse("the bounds are known only at run time")
    start = 0 if start is None else start
    stop = TO_THE_END if stop is None else stop
    if isinstance(size, int):
        start = range(size)[start:stop:step].start
        stop = max(start, slice(None, stop).indices(size)[1])
    return start, stop, step


def _counted_from_end(op: Any, stop: SSAValue, size: Dim) -> Any:
    """Return the end of a slice as a number, if it is a fixed distance before the end of the axis.

    The result's size shows that the end neither becomes negative nor is before the start.
    """
    start, end = op.arg("start") or 0, stop.type.size if isinstance(stop.type, IntType) else UNKNOWN
    cut = (Size.of(size) - end).number
    if cut is None or cut < 0 or not isinstance(start, int) or op.arg("step") not in (None, 1):
        return stop
    is_between = settled(Size.of(end) - start) == dims(op.results[0].type)[op.arg("dim") or 0]
    return (-cut or TO_THE_END) if is_between else stop


@lowers(*SELECTIONS, to="aten", sample=("4x6xf32", 1, -1))
def normalize_selection(x: Value, dim: int, index: Any, *, out: Out, b: Any) -> Value:
    """Rewrite a selection as a slice of length 1 and a view that drops the axis.

    On a symbolic axis, indices counted from the front and the last element are supported.
    """
    at = x.axis(dim)
    size = x.shape[at]
    if isinstance(index, SSAValue):
        refuse("the index is known only at run time")
    if index < 0 and isinstance(size, Size):
        if index != -1:
            refuse(f"index {index} counts from the end of an axis of the symbolic size {size}")
        start, stop = -1, TO_THE_END
    else:
        start = index + size if index < 0 and isinstance(size, int) else index
        stop = start + 1
    no_refusal(cannot_be_viewed_as(x.ssa, [n for i, n in enumerate(x.shape) if i != at]))
    if size != 1:
        one = [1 if i == at else n for i, n in enumerate(x.shape)]
        x = x.call(aten.SliceTensor, at, start, stop, 1, shape=one)
    return Value(emit(b, view_op(b, x.ssa, out.shape)), b)


SPLITS = (
    "aten.split.Tensor",
    "aten.split.sizes",
    "aten.split_copy.Tensor",
    "aten.split_with_sizes.default",
    "aten.split_with_sizes_copy.default",
    "aten.chunk.default",
    "aten.tensor_split.sections",
    "aten.tensor_split.indices",
    "aten.unsafe_split.Tensor",
    "aten.unsafe_chunk.default",
    "aten.unbind.int",
    "aten.unbind_copy.int",
)


@lowers(*SPLITS, to="aten", sample=("2x6xf32", 4, 1))
def split_to_slices(x: Value, *, op: Any, dim: int) -> tuple[Value | None, ...]:
    """Rewrite `split`, `chunk`, `tensor_split` and `unbind` as one slice per part.

    The length of each part is read from the result types, which are verified.
    """
    at = x.axis(dim)
    shapes = [Value(result, x.b).shape for result in op.results]
    drops = op.SCHEMA.operator.startswith("unbind")
    if drops:
        no_refusal(cannot_be_viewed_as(x.ssa, [n for i, n in enumerate(x.shape) if i != at]))
    lengths = [1 if drops else shape[at] for shape in shapes]
    if op.SCHEMA.operator.startswith("split_with_sizes") and op.dynamic:
        return _by_sizes_of_run_time(x, at, op)
    if not all(isinstance(length, int) for length in lengths):
        refuse("the parts of a symbolic axis have symbolic bounds")
    parts: list[Value | None] = []
    for start, length, shape, result in zip(
        [0, *accumulate(lengths)], lengths, shapes, op.results, strict=False
    ):
        part = x.slice(at, start, start + length) if result.uses else None
        parts.append(part.view(*shape) if part is not None and drops else part)
    return tuple(parts)


def _by_sizes_of_run_time(x: Value, at: int, op: Any) -> tuple[Value | None, ...]:
    """Return slices whose bounds are running sums of dynamic sizes, as in mixtures of experts."""
    sizes, parts = SizeBuilder(x.b, op.operands, None), list[Value | None]()
    lengths = [n.type.size if isinstance(n, SSAValue) else n for n in op.arg("split_sizes")]
    ends = [settled(end) for end in accumulate(map(Size.of, lengths), initial=Size.of(0))]
    for (start, stop), result in zip(pairwise(ends), op.results, strict=True):
        part = None
        if result.uses:
            bounds = sizes.value(start), sizes.value(stop)
            cut = aten.SliceTensor.make(x.ssa, at, *bounds, 1, result_types=[result.type])
            part = Value(emit(x.b, cut), x.b)
        parts.append(part)
    return tuple(parts)


JOINS = ("aten.cat.default", "aten.concat.default", "aten.concatenate.default")


STACKS = {"aten.stack.default": "stack", "aten.hstack.default": "h", "aten.vstack.default": "v"}


@lowers({**STACKS, **dict.fromkeys(JOINS)}, to="aten", sample=(["2x3xf32", "2x3xf32"], {"dim": -1}))
def stack_to_cat(parts: list[Value], *, form: str | None, op: Any, out: Out) -> Value | None:
    """Rewrite `stack`, `hstack`, `concat`, … as `aten.cat.default` of views, on an axis ≥ 0.

    Empty parts are dropped, among them those of shape [0] that PyTorch's `cat` skips for
    compatibility, so that no target has to handle them.
    """
    if any(part.dtype != out.dtype for part in parts):
        refuse("the operands have several dtypes; cast them first")
    rank = len(out.shape)
    if form in ("h", "v"):
        at = 0 if form == "v" or rank == 1 else 1
        least = 2 if form == "v" else 1
        shapes = [(*[1] * (least - part.rank), *part.shape) for part in parts]
    elif form == "stack":
        at = op.arg("dim") % rank
        shapes = [(*part.shape[:at], 1, *part.shape[at:]) for part in parts]
    else:
        at, count = op.arg("dim") % max(rank, 1), len(parts)
        parts = [part for part in parts if part.shape != (0,) or rank == 1]
        parts = [part for part in parts if part.shape[at] != 0] or parts[:1]
        shapes = [part.shape for part in parts]
        if isinstance(op, aten.CatDefault):
            if len(parts) == 1 and same_type(parts[0].ssa, op.results[0]):
                return parts[0]
            if len(parts) == count and op.present().get("dim") == at:
                return None
    values = [part.view(*shape) for part, shape in zip(parts, shapes, strict=True)]
    if len(values) == 1:
        return values[0]
    made = aten.CatDefault.make([v.ssa for v in values], at, result_types=[op.results[0].type])
    return Value(emit(parts[0].b, made), parts[0].b)


@lowers("aten.roll.default", "aten.flip.default", to="aten", sample=("4x6xf32", [-1, 2], [0, 1]))
def roll_to_cat(x: Value, shifts: Sequence[Any], *, op: Any, out: Out) -> Value:
    """Rewrite `roll` as two slices and a concatenation per axis.

    Swin's shifted windows roll the feature map by half a window, in both directions. No target has
    a roll. `flip` stays: only a target without a gather selects element by element
    (`pick-by-slices`).
    """
    if isinstance(op, aten.FlipDefault):
        refuse("a flip by slices would cost more than a gather")
    if any(isinstance(shift, SSAValue) for shift in shifts):
        refuse("the shift is known only at run time")
    at = list(op.arg("dims"))
    if any(isinstance(x.shape[d], Size) for d in at or range(x.rank)):
        refuse("the size of a rolled axis is symbolic")
    if 0 in x.shape:
        return x
    x = x if at else x.view(element_count(x.shape))
    starts: dict[int, int] = {}
    for shift, dim in zip(shifts, at or [0], strict=True):
        where = x.axis(dim)
        starts[where] = (starts.get(where, 0) - shift) % x.shape[where]
    for where, start in starts.items():
        if start:
            back = x.slice(where, start, x.shape[where])
            x = cat([back, x.slice(where, 0, start)], where)
    return x.view(*out.shape)


@lowers("aten.constant_pad_nd.default", to="aten", sample=("2x5xf32", [-1, 2], 0.5))
def crop_to_slice(x: Value, amounts: Sequence[Any], *, op: Any, out: Out, b: Any) -> Value | None:
    """Rewrite negative padding as slices, and keep a pad for the rest.

    `F.pad` with a negative amount crops. No target's pad can crop, and ExecuTorch's kernel refuses
    such a pad at run time.
    """
    if any(isinstance(amount, SSAValue) for amount in amounts):
        refuse("the padding is known only at run time")
    if min(amounts, default=0) >= 0:
        return None
    kept: dict[int, tuple[int, int, Dim]] = {}
    for index, (before, after) in enumerate(zip(amounts[::2], amounts[1::2], strict=True)):
        if min(before, after) < 0:
            at = x.rank - 1 - index
            size, start, cut = x.shape[at], max(0, -before), min(0, after)
            stop = size + cut if isinstance(size, int) else cut or TO_THE_END
            kept[at] = (start, stop, settled(Size.of(size) + (cut - start)))
    value, type_ = op.arg("value"), op.results[0].type
    if any(isinstance(n, int) and n <= 0 for _, _, n in kept.values()):  # The padding is left.
        full = aten.FullDefault.make(list(out.shape), value, dtype=out.dtype, result_types=[type_])
        return Value(emit(b, full), b)
    for at, (start, stop, length) in kept.items():
        x = Value(emit(b, slice_op(x.ssa, at, start, stop, length)), b)
    left = [max(0, amount) for amount in amounts]
    return x.call(aten.ConstantPadNdDefault, left, value, shape=out.shape) if any(left) else x


WIDEST_BORDER = 8
"""The most rows of reflecting padding; more of them would cost more slices than a gather."""


BORDERS = {
    "aten.pad.default": None,
    **{f"aten.reflection_pad{space}d.default": "reflect" for space in (1, 2, 3)},
    **{f"aten.replication_pad{space}d.default": "replicate" for space in (1, 2, 3)},
}


@lowers(BORDERS, to="aten", sample=("2x5xf32", [2, 1], "reflect"))
def pad_to_slices(x: Value, amounts: Sequence[Any], *, form: str | None, op: Any) -> Value | None:
    """Rewrite reflecting, replicating and circular padding as a concatenation of slices.

    Reflection is one slice per row, replication is the outermost row expanded, circular padding is
    a single slice of the other end. ExecuTorch has kernels for some of these pads and delegates for
    none; the padding is usually a few rows wide.
    """
    mode = form or op.arg("mode")
    if mode == "constant":
        return None
    if any(isinstance(amount, SSAValue) for amount in amounts):
        refuse("the padding is known only at run time")
    if min(amounts) < 0:
        refuse(f"{mode} padding with a negative amount crops")
    if mode == "reflect" and max(amounts) > WIDEST_BORDER:
        refuse(f"padding of {max(amounts)} rows would need one slice per row")

    def rows(x: Value, at: int, before: int, after: int) -> _Rows:
        size = x.shape[at]
        if isinstance(size, int):
            return _ROWS[mode](x, at, size, before, after)
        if mode != "circular":
            refuse("the size is dynamic, and the runtime has a kernel for the pad")
        return _circular_of_any(x, at, before, after)

    return bordered(x, amounts, rows)


def bordered(
    x: Value, amounts: Sequence[int], rows: Callable[[Value, int, int, int], _Rows]
) -> Value:
    """Concatenate padding rows before and after each axis; amounts begin with the last axis."""
    for index, (before, after) in enumerate(zip(amounts[::2], amounts[1::2], strict=True)):
        at = x.rank - 1 - index
        if before or after:
            first, last = rows(x, at, before, after)
            x = cat([*first, x, *last], at)
    return x


_Rows = tuple[list[Value], list[Value]]


def _reflected(x: Value, at: int, size: int, before: int, after: int) -> _Rows:
    first = [x.slice(at, i, i + 1) for i in range(before, 0, -1)]
    return first, [x.slice(at, size - 2 - i, size - 1 - i) for i in range(after)]


def _replicated(x: Value, at: int, size: int, before: int, after: int) -> _Rows:
    def repeated(row: int, count: int) -> list[Value]:
        if count == 0:
            return []
        shape = [count if i == at else n for i, n in enumerate(x.shape)]
        return [x.slice(at, row, row + 1).expand(*shape)]

    return repeated(0, before), repeated(size - 1, after)


def _circular(x: Value, at: int, size: int, before: int, after: int) -> _Rows:
    first = [x.slice(at, size - before, size)] if before else []
    return first, [x.slice(at, 0, after)] if after else []


def _circular_of_any(x: Value, at: int, before: int, after: int) -> _Rows:
    first = [x.last(at, before)] if before else []
    return first, [x.slice(at, 0, after)] if after else []


_ROWS = {"reflect": _reflected, "replicate": _replicated, "circular": _circular}


@lowers(
    "aten.index_select.default",
    "aten.index.Tensor",
    to="aten",
    sample="""
    %i = stepwell.weight <"#rolled"> "constant" : tensor<4xi64>
    %y = aten.index_select.default(%x, 1, %i) : (tensor<2x4xf32>, tensor<4xi64>) -> tensor<2x4xf32>
    """,
)
def index_to_slices(x: Value, *, op: Any, b: Rewriter, most_runs: int = 4) -> Value | None:
    """Rewrite a selection by constant indices as slices, if the indices form a few ranges.

    `roll` decomposes to `index_select` with indices that wrap around once; every second channel of
    a tensor is one run. Indices are read from the weight. Other selections remain a gather.
    """
    at, index = _indexed_axis(op)
    if index is None or (key := weight_key(index)) is None:
        return None
    if not x.is_static or len(dims(index.type)) != 1:
        refuse("the shape is symbolic, or the indices are not a vector")
    numbers = b.program.weights.get(key)
    if numbers.dtype.itemsize == 1:
        refuse("a mask selects the elements, not indices")
    runs = runs_of([axis(int(n), x.shape[at]) for n in numbers.tolist()])
    if not 0 < len(runs) <= most_runs:
        refuse(f"the indices form {len(runs)} ranges: a gather costs less than a slice for each")
    return cat([x.slice(at, *run) for run in runs], at)


def _indexed_axis(op: Any) -> tuple[int, SSAValue | None]:
    """Return the indexed axis and the indices; None if several axes are indexed."""
    if isinstance(op, aten.IndexSelectDefault):
        return axis(op.arg("dim"), max(len(dims(op.operands[0].type)), 1)), op.operands[1]
    given = [(at, index) for at, index in enumerate(op.arg("indices")) if index is not None]
    return given[0] if len(given) == 1 else (0, None)


RULES = lowerings_of(__name__)
