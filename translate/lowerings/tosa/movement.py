"""Lowerings of data movement: RESHAPE, TRANSPOSE, SLICE, CONCAT, TILE, PAD, REVERSE."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from xdsl.dialects.builtin import IntegerAttr

from stepwell.dialects.tosa import generated as t
from stepwell.ir.compat.torch.lazy_imports import torch
from stepwell.ir.dtypes import i32
from stepwell.ir.rewriting.rewrite import EXACT
from stepwell.translate.lowerings.lowering import Out, lowerings_of, lowers, refuse
from stepwell.translate.lowerings.tosa.values import Value, concat, needs_known
from stepwell.translate.rewrites.slices.moved_places import MOST_PLACES
from stepwell.translate.rewrites.tosa.operators.building import elements


@lowers("aten.view.default", to="tosa", bound=EXACT, sample=("2x6xf32", [3, 4]))
def reshape(x: Value, *, out: Out) -> Value:
    """Lower a reshape to one RESHAPE operator."""
    return x.reshape(*out.shape)


@lowers("aten.permute.default", to="tosa", bound=EXACT, sample=("2x6xf32", [1, 0]))
def permute(x: Value, order: Sequence[int]) -> Value:
    """Lower a permutation of axes to one TRANSPOSE operator."""
    return x.permute([x.axis(dim) for dim in order])


@lowers("aten.slice.Tensor", to="tosa", bound=EXACT, sample=("4x3xf32", 0, 1, 3))
def slice_(x: Value, dim: int, start: Any, end: Any, step: Any, *, b: Any, out: Out) -> Value:
    """Lower to one SLICE, of step 1."""
    if step != 1:
        refuse(f"the step is {step}; SLICE has none")
    if not isinstance(start or 0, int):
        refuse("the start is known only at run time")
    needs_known(x, [dim], "the sliced axis of size")
    axis, first = x.axis(dim), start or 0
    first = min(first + x.shape[axis] if first < 0 else first, x.shape[axis])
    starts = [first if i == axis else 0 for i in range(x.rank)]
    return x.made(t.SliceOp, out.shape, b.sizes(starts), b.sizes(out.shape))


@lowers("aten.cat.default", to="tosa", bound=EXACT, sample=(["2x3xf32", "1x3xf32"], 0))
def concat_(parts: list[Value], dim: int, *, b: Any, out: Out) -> Value:
    """Lower to one CONCAT, or to several if there are more operands than one takes."""
    if len({part.dtype for part in parts}) > 1:
        refuse("the operands have several dtypes")
    axis, most = dim % len(out.shape), b.level.list
    while len(parts) > most:
        parts = [concat(parts[at : at + most], axis) for at in range(0, len(parts), most)]
    return concat(parts, axis, out.shape)


@lowers("aten.expand.default", to="tosa", bound=EXACT, sample=("1x3xf32", [2, 3]))
def expand(x: Value, *, out: Out) -> Value:
    """Lower a broadcast to one TILE operator."""
    return x.of_rank(len(out.shape)).tile(out.shape)


@lowers("aten.constant_pad_nd.default", to="tosa", bound=EXACT, sample=("2x3xf32", [1, 0], 0.0))
def pad(x: Value, amounts: Sequence[Any], value: float) -> Value:
    """Lower a padding to one PAD operator."""
    return x.pad(from_the_first_axis(amounts, x.rank), value)


def from_the_first_axis(amounts: Sequence[Any], rank: int) -> list[int]:
    """Return the padding before and after each axis; PyTorch's begins with the last axis."""
    if any(not isinstance(n, int) or n < 0 for n in amounts):
        refuse("the padding is negative, or known only at run time")
    pairs = [amounts[i : i + 2] for i in range(0, len(amounts), 2)]
    pairs += [[0, 0]] * (rank - len(pairs))
    return [n for pair in reversed(pairs) for n in pair]


@lowers("aten.flip.default", to="tosa", bound=EXACT, sample=("2x3xf32", [1]))
def flip(x: Value, axes: Sequence[int]) -> Value:
    """Lower to one REVERSE per axis."""
    for axis in sorted(x.axis(dim) for dim in axes):
        x = x.made(t.ReverseOp, x.shape, axis=IntegerAttr(axis, i32))
    return x


def gathered(x: Value, axis: int, indices: Sequence[int]) -> Value:
    """Gather elements of an axis by constant indices; consecutive indices become a slice."""
    first, shape, width = indices[0], x.shape, len(indices)
    if list(indices) == list(range(first, first + width)):
        return x.narrow(axis, first, width)
    batch, channels = elements(shape[:axis]), elements(shape[axis + 1 :])
    rows = torch.tensor(indices, dtype=torch.int32).reshape(1, -1)
    if isinstance(batch, int) and batch * width <= MOST_PLACES:
        index = x.tensor(rows.expand(batch, width))
    else:
        index = x.tensor(rows).tile((batch, width))
    values = x.reshape(batch, shape[axis], channels)
    y = values.made(t.GatherOp, (batch, width, channels), index)
    return y.reshape(*shape[:axis], width, *shape[axis + 1 :])


RULES = lowerings_of(__name__)
