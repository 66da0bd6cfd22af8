"""Lowerings of data movement and of indexing."""

from __future__ import annotations

from collections.abc import Sequence
from math import prod
from typing import Any

from xdsl.dialects.builtin import IntegerType

from stepwell.integrations.openvino.lowerings.values import (
    Value,
    cannot_hold,
    loses_nan,
    unfit,
)
from stepwell.ir.compat.torch.lazy_imports import torch
from stepwell.ir.dtypes import i1, i64
from stepwell.ir.rewriting.rewrite import EXACT
from stepwell.ir.sizes.size import Dim, Size
from stepwell.ir.types import tensor
from stepwell.translate.lowerings.lowering import (
    Out,
    known,
    lowerings_of,
    lowers,
    no_refusal,
    refuse,
)

END = (1 << 31) - 1
"""An end beyond every axis."""


@lowers("aten.view.default", to="openvino", bound=EXACT, sample=("2x6xf32", [3, 4]))
def reshape(x: Value, *, out: Out) -> Value:
    """Lower a reshape; symbolic sizes are inferred or computed."""
    return x.reshape(*out.shape)


@lowers("aten.permute.default", to="openvino", bound=EXACT, sample=("2x6xf32", [1, 0]))
def permute(x: Value, order: Sequence[int]) -> Value:
    """Lower a permutation of axes."""
    return x.permute([x.axis(dim) for dim in order])


@lowers("aten.slice.Tensor", to="openvino", bound=EXACT, sample=("4x3xf32", 0, 1, 3))
def slice_(x: Value, dim: int, start: Any, end: Any, step: Any, *, out: Out) -> Value:
    """Lower to Slice of one axis; an end that is computed is that of the result."""
    if not isinstance(start or 0, int) or not isinstance(step, int):
        refuse("the start or the step is known only at run time")
    axis, first = x.axis(dim), start or 0
    if end is not None and not isinstance(end, int):
        count = out.shape[axis]
        end = count if step == 1 and first == 0 else refuse("the end is known only at run time")
    stop = END if end is None else end if isinstance(end, Size) else min(end, END)
    sizes = x.sizes([stop]) if isinstance(stop, Size) else [stop]
    return x.op("Slice", [first], sizes, [step], [axis], shape=out.shape)


@lowers("aten.cat.default", to="openvino", bound=EXACT, sample=(["2x3xf32", "1x3xf32"], 0))
def concat(parts: list[Value], dim: int, *, out: Out) -> Value:
    """Lower to Concat of operands of the result's element type."""
    first, *rest = (part.cast(out.dtype) for part in parts)
    return first.op("Concat", *rest, shape=out.shape, axis=dim % len(out.shape))


@lowers("aten.expand.default", to="openvino", bound=EXACT, sample=("1x3xf32", [2, 3]))
def expand(x: Value, *, out: Out) -> Value:
    """Lower a broadcast."""
    return x.op("Broadcast", x.sizes(out.shape), shape=out.shape, mode="numpy")


@lowers("aten.repeat.default", to="openvino", bound=EXACT, sample=("1x3xf32", [2, 3]))
def repeat(x: Value, repeats: Sequence[Any], *, out: Out) -> Value:
    """Lower a repetition along each axis."""
    if not all(isinstance(count, int) for count in repeats):
        refuse("the number of repetitions is known only at run time")
    return x.op("Tile", list(repeats), shape=out.shape)


@lowers("aten.flip.default", to="openvino", bound=EXACT, sample=("2x3xf32", [1]))
def flip(x: Value, axes: Sequence[int]) -> Value:
    """Lower to a slice of step −1 along each axis."""
    at = [x.axis(dim) for dim in axes]
    count = len(at)
    return x.op("Slice", [-1] * count, [-END - 1] * count, [-1] * count, at) if at else x


PADS = {
    "aten.constant_pad_nd.default": "constant",
    **{f"aten.reflection_pad{n}d.default": "reflect" for n in (1, 2, 3)},
    **{f"aten.replication_pad{n}d.default": "edge" for n in (1, 2, 3)},
}


@lowers(PADS, to="openvino", bound=EXACT, sample=("2x3xf32", [1, 0], 0.0))
def pad(x: Value, amounts: Sequence[Any], *, form: str, op: Any, out: Out) -> Value:
    """Lower a padding, from the last axis on."""
    if any(not isinstance(n, int) or n < 0 for n in amounts):
        refuse("the padding is negative, or known only at run time")
    pairs = [list(amounts[i : i + 2]) for i in range(0, len(amounts), 2)]
    pairs = [[0, 0]] * (x.rank - len(pairs)) + pairs[::-1]
    before, after = ([pair[side] for pair in pairs] for side in (0, 1))
    number = known(op.arg("value"), "the number") if form == "constant" else 0
    fill = x.like(number)
    return x.op("Pad", before, after, fill, shape=out.shape, pad_mode=form)


@lowers("aten.pad.default", to="openvino", bound=EXACT, sample=("2x3xf32", [1, 0], "reflect"))
def pad_by_mode(x: Value, amounts: Sequence[Any], mode: str, *, op: Any, out: Out) -> Value:
    """Lower the paddings that have a mode."""
    modes = {"constant": "constant", "reflect": "reflect", "replicate": "edge"}
    if mode not in modes:
        refuse(f"OpenVINO pads in no mode {mode}")
    return pad(x, amounts, form=modes[mode], op=op, out=out)


# -- indexing --------------------------------------------------------------------------------


def _may_index(x: Value, indices: Sequence[Value], op: Any) -> None:
    """Refuse operands that OpenVINO does not hold; indices fit 32 bits, because axes do."""
    no_refusal(unfit([x.ssa], x.b.program))
    for index in indices:
        no_refusal(cannot_hold(index.ssa))
        if not isinstance(index.dtype, IntegerType) or index.dtype == i1:
            refuse("a mask selects a number of elements that is known only at run time")


@lowers(
    "aten.embedding.default", to="openvino", check="none", bound=EXACT,
    sample=("10x4xf32", "2x3xi64"),
)  # fmt: skip
def embedding(x: Value, index: Value, *, op: Any, out: Out) -> Value:
    """Gather rows of the first axis."""
    _may_index(x, [index], op)
    return _rows(x, index, 0, out.shape)


@lowers(
    "aten.index_select.default", to="openvino", check="none", bound=EXACT,
    sample=("4x5xf32", 1, "2xi64"),
)  # fmt: skip
def index_select(x: Value, dim: int, index: Value, *, op: Any, out: Out) -> Value:
    """Gather rows of any axis."""
    _may_index(x, [index], op)
    return _rows(x, index, x.axis(dim), out.shape)


def _rows(x: Value, index: Value, axis: int, shape: Sequence[Dim]) -> Value:
    return x.op("Gather", index, torch.tensor(axis), shape=shape, batch_dims=0)


@lowers(
    "aten.index.Tensor", to="openvino", check="none", bound=EXACT, sample=("4x5xf32", ["2xi64"])
)
def index_(x: Value, indices: Sequence[Value | None], *, op: Any, out: Out) -> Value:
    """Lower an index of one axis to Gather, indices of the first axes to GatherND."""
    held = [index for index in indices if index is not None]
    _may_index(x, held, op)
    if len(held) == 1:
        axis = next(at for at, index in enumerate(indices) if index is not None)
        return _rows(x, held[0], axis, out.shape)
    if any(index is None for index in indices[: len(held)]):
        refuse("the indexed axes are not the first")
    places = _places(x, held)
    return x.op("GatherND", places, shape=out.shape, batch_dims=0)


def _places(x: Value, indices: Sequence[Value]) -> Value:
    """Return indices of several axes as one tensor: the last axis has an index of each."""
    shape = torch.broadcast_shapes(*(tuple(map(_static, index.shape)) for index in indices))
    parts = list[Value]()
    for axis, index in enumerate(indices):
        part = index.cast(i64)
        size = _static(x.shape[axis])
        negative = part.binary("Less", 0, i1)  # GatherND counts from the front only.
        moved = part.binary("Add", size)
        part = negative.op("Select", moved, part, shape=part.shape, dtype=i64)
        part = part.op("Broadcast", list(shape), shape=shape, mode="numpy")
        parts.append(part.reshape(*shape, 1))
    return parts[0].op("Concat", *parts[1:], shape=(*shape, len(parts)), axis=len(shape))


def _static(size: Dim) -> int:
    return size if isinstance(size, int) else refuse(f"the size {size} is symbolic")


@lowers(
    "aten.gather.default",
    to="openvino",
    check="none",
    bound=EXACT,
    sample=("4x5xf32", 0, "4x5xi64"),
)
def gather(x: Value, dim: int, index: Value, *, op: Any, out: Out) -> Value:
    """Gather an element for each index."""
    _may_index(x, [index], op)
    axis = x.axis(dim)
    rest = [
        (a, b) for at, (a, b) in enumerate(zip(x.shape, index.shape, strict=True)) if at != axis
    ]
    if any(a != b for a, b in rest):
        refuse("the index is smaller than the tensor along another axis")
    return x.op("GatherElements", index, shape=out.shape, axis=axis)


SCATTERS = {
    "aten.scatter.src": "none",
    "aten.scatter_add.default": "sum",
}


@lowers(SCATTERS, to="openvino", check="none", sample=("4x5xf32", 0, "4x5xi64", "4x5xf32"))
def scatter(x: Value, dim: int, index: Value, source: Value, *, form: str, op: Any) -> Value:
    """Write or add elements at indices."""
    _may_index(x, [index], op)
    no_refusal(unfit([source.ssa], x.b.program))
    if index.shape != source.shape:
        refuse("the index is smaller than the source")
    axis = torch.tensor(x.axis(dim))
    return x.op("ScatterElementsUpdate", index, source, axis, reduction=form, use_init_val=True)


@lowers(
    "aten.index_put.default", to="openvino", check="none",
    sample=("4x5xf32", ["2xi64"], "2x5xf32"),
)  # fmt: skip
def index_put(x: Value, indices: Sequence[Value | None], source: Value, *, op: Any) -> Value:
    """Write or add rows at indices of the first axes."""
    held = [index for index in indices if index is not None]
    _may_index(x, held, op)
    no_refusal(unfit([source.ssa], x.b.program))
    if any(index is None for index in indices[: len(held)]):
        refuse("the indexed axes are not the first")
    places = _places(x, held)
    shape = (*places.shape[:-1], *x.shape[len(held) :])
    rows = source.op("Broadcast", [_static(s) for s in shape], shape=shape, mode="numpy")
    reduction = "sum" if op.arg("accumulate") else "none"
    return x.op("ScatterNDUpdate", places, rows, reduction=reduction)


# -- orders ----------------------------------------------------------------------------------


@lowers("aten.topk.default", to="openvino", check="first", bound=EXACT, deviation=loses_nan,
        sample=("2x4xf32", 2))  # fmt: skip
def topk(x: Value, k: int, dim: int, largest: bool, *, op: Any) -> tuple[Value, ...]:
    """Lower to TopK, whose places are the first of equal elements."""
    return _top(x, known(k, "k"), dim, largest, op)


@lowers("aten.sort.default", to="openvino", check="first", bound=EXACT, deviation=loses_nan)
def sort(x: Value, dim: int, descending: bool, *, op: Any) -> tuple[Value, ...]:
    """Lower to TopK of all elements."""
    if x.rank == 0:
        refuse("a scalar has no order")
    return _top(x, _static(x.shape[x.axis(dim)]), dim, descending, op)


def _top(x: Value, k: int, dim: int, largest: bool, op: Any) -> tuple[Value, ...]:
    types = [result.type for result in op.results]
    fields = {"mode": "max" if largest else "min", "sort": "value", "stable": True}
    more = {"axis": x.axis(dim), "index_element_type": "i64"}
    return x.results("TopK", torch.tensor(k), types=types, **fields, **more)


@lowers(
    {
        "aten.argmax.default": True,
        "aten.argmin.default": False,
        "aten.max.dim": True,
        "aten.min.dim": False,
    },
    to="openvino",
    check="first",
    bound=EXACT,
    deviation=loses_nan,
    sample=("2x4xf32", 1),
)
def place(x: Value, dim: int | None, *, form: bool, op: Any, out: Out) -> Any:
    """Lower to TopK of one element; its place is the first of equal ones."""
    flat = x.reshape(prod(map(_static, x.shape))) if dim is None or x.rank == 0 else x
    axis = 0 if flat is not x else x.axis(dim or 0)
    shape = [1 if at == axis else size for at, size in enumerate(flat.shape)]
    fields = {"mode": "max" if form else "min", "sort": "value", "stable": True}
    types = [tensor(shape, x.dtype), tensor(shape, i64)]
    more = {"axis": axis, "index_element_type": "i64"}
    values = flat.results("TopK", torch.tensor(1), types=types, **fields, **more)
    if len(op.results) == 1:
        return values[1].reshape(*out.shape)
    return tuple(value.reshape(*out.shape) for value in values)


@lowers("aten.cumsum.default", to="openvino", sample=("2x4xf32", 1))
def cumsum(x: Value, dim: int, *, out: Out) -> Value:
    """Lower to CumSum in the result's element type."""
    if x.rank == 0:
        return x.cast(out.dtype)
    axis = torch.tensor(x.axis(dim))
    return x.cast(out.dtype).op("CumSum", axis, exclusive=False, reverse=False)


RULES = lowerings_of(__name__)
