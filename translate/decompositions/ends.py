"""Extract the last rows of a dynamic axis by products with one-hot markers from a convolution.

XNNPACK's slices have static bounds. A line of ones as long as the axis, padded with zeros, changes
from 1 to 0 at the axis' end. A convolution with taps 1 and −1 marks that position, and other taps
mark the positions before it. Products with such markers extract the rows. Reflecting and
replicating padding of a dynamic axis is built from these rows; it would otherwise cut a delegate in
two.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import chain, takewhile
from typing import Any

from xdsl.dialects.builtin import TensorType
from xdsl.ir import SSAValue

from stepwell.dialects import aten
from stepwell.ir.compat.torch.lazy_imports import torch
from stepwell.ir.declared.numerics import Deviation
from stepwell.ir.dtypes import f32
from stepwell.ir.rewriting.rewrite import EXACT, Bound
from stepwell.ir.sizes.size import Size
from stepwell.ir.types import dims, element
from stepwell.translate.decompositions.slices import BORDERS, WIDEST_BORDER, bordered
from stepwell.translate.decompositions.values import Value, cat, no_refusal
from stepwell.translate.lowerings.lowering import Out, lowerings_of, lowers, refuse
from stepwell.translate.range_analysis import is_finite
from stepwell.translate.rewrites.building import TO_THE_END, emit, is_open_once, slice_op
from stepwell.translate.rewrites.xnnpack.nodes.guards import (
    may_be_empty,
    not_floats,
    not_for_xnnpack,
)

_MIXES = Deviation("an infinity or NaN of a line makes NaN of its last elements")


def _mixes(op: Any, program: Any) -> Deviation | None:
    return _MIXES.unless(is_finite(op.operands[0], program))


_ZERO = Bound(0.0, 5e-324, "−0 becomes +0 beside a zero")


@lowers(
    BORDERS,
    to="aten",
    phases=("xnnpack/decompose",),
    unless=lambda op: all(isinstance(size, int) for size in dims(op.operands[0].type)),
    bound=_ZERO,
    deviation=_mixes,
    sample="""
    %y = aten.pad.default(%x, [2, 1], "reflect") : (tensor<3x?xf32, #stepwell.shape<[3, "s"]>>) -> tensor<3x?xf32, #stepwell.shape<[3, "s + 3"]>>
    """,
)
def border_by_products(x: Value, amounts: Sequence[Any], *, form: str | None, op: Any) -> Value:
    """Decompose reflecting and replicating padding of dynamic axes."""
    mode = form or op.arg("mode")
    if mode not in ("reflect", "replicate") or not all(isinstance(n, int) for n in amounts):
        refuse("the padding mode is constant, or an amount is known only at run time")
    _check(x, op, max(amounts))
    if min(amounts) < 0:
        refuse("a negative amount crops")
    rows = _reflected if mode == "reflect" else _replicated
    return bordered(x, amounts, rows)


def _reflected(x: Value, at: int, before: int, after: int) -> tuple[list[Value], list[Value]]:
    first = [x.slice(at, i, i + 1) for i in range(before, 0, -1)]
    return [cat(first, at)] if first else [], _from_the_end(x, at, range(1, after + 1))


def _replicated(x: Value, at: int, before: int, after: int) -> tuple[list[Value], list[Value]]:
    first = [_repeated(x.slice(at, 0, 1), at, before)] if before else []
    return first, [_repeated(row, at, after) for row in _from_the_end(x, at, [0])] if after else []


@lowers(
    "aten.slice.Tensor",
    to="aten",
    phases=("xnnpack/decompose",),
    unless=lambda op: not _ends_with_its_axis(op),
    bound=_ZERO,
    deviation=_mixes,
    sample=f"""
    %y = aten.slice.Tensor(%x, 1, -2, {TO_THE_END}, 1) : (tensor<3x?xf32, #stepwell.shape<[3, "s"]>>) -> tensor<3x2xf32>
    """,
)
def last_rows_by_product(x: Value, dim: int, *, op: Any, out: Out) -> Value:
    """Extract the last rows of a dynamic axis."""
    at, count = x.axis(dim), -op.arg("start")
    _check(x, op, count)
    if out.shape[at] != count:
        refuse("the axis may have fewer rows")
    (rows,) = _from_the_end(x, at, range(count - 1, -1, -1))
    return rows


def _ends_with_its_axis(op: Any) -> bool:
    """Whether a slice is a constant number of rows at the end of a dynamic axis."""
    start, end, shape = op.arg("start"), op.arg("end"), dims(op.operands[0].type)
    if not isinstance(start, int) or start >= 0 or op.arg("step") != 1 or not shape:
        return False
    return isinstance(end, int) and end >= TO_THE_END and isinstance(shape[op.arg("dim")], Size)


def _check(x: Value, op: Any, count: int) -> None:
    no_refusal(not_for_xnnpack(op))
    no_refusal(may_be_empty(op, x.shape))
    if x.dtype != f32:
        refuse("the dtype is not single precision")
    if count > WIDEST_BORDER:
        refuse(f"{count} rows would need {count} products")
    if x.rank < 2:
        refuse("a vector has no rows")


def _repeated(row: Value, at: int, count: int) -> Value:
    return row.expand(*(count if axis == at else size for axis, size in enumerate(row.shape)))


def _from_the_end(x: Value, at: int, places: Sequence[int]) -> list[Value]:
    """Return the rows at these distances from the last row, as a list of one tensor or none."""
    if not places:
        return []
    size = x.shape[at]
    if isinstance(size, int):
        rows = [x.slice(at, size - 1 - place, size - place) for place in places]
        return [cat(rows, at)]
    marks = _marks(x, at, places)
    order = [*(axis for axis in range(x.rank) if axis != at), at]
    rows = x.permute(order)
    marks = marks.view(*[1] * (x.rank - 2), len(places), size)
    turned = [*range(x.rank - 2), x.rank - 1, x.rank - 2]
    made = rows.call(
        aten.MatmulDefault, marks.permute(turned), shape=(*rows.shape[:-1], len(places))
    )
    return [made.permute([order.index(axis) for axis in range(x.rank)])]


def _ones(x: Value, at: int) -> Value:
    """Return a line of ones of an axis' length, computed without reading the axis' values."""
    line = x
    for axis in range(x.rank):
        if axis != at and line.shape[axis] != 1:
            line = line.slice(axis, 0, 1)
    size = x.shape[at]
    two = line.view(1, size).call(aten.ConstantPadNdDefault, [0, 0, 0, 1], 1.0, shape=(2, size))
    return two.slice(0, 1, 2)


def _marks(x: Value, at: int, places: Sequence[int]) -> Value:
    """Return lines `[1, places, size]` along an axis that are 1 at one position each, else 0."""
    deepest, size = max(places), x.shape[at]
    ones = _ones(x, at).view(1, 1, size)
    longer = (1, 1, size + deepest + 1)
    padded = ones.call(aten.ConstantPadNdDefault, [0, deepest + 1], 0.0, shape=longer)
    taps = torch.zeros(len(places), 1, deepest + 2)
    for row, place in enumerate(places):
        taps[row, 0, place], taps[row, 0, place + 1] = 1.0, -1.0
    weight = x.constant(taps, "ends")
    form = ([1], [0], [1], False, [0], 1)
    made = (1, len(places), size)
    return padded.call(aten.ConvolutionDefault, weight, None, *form, shape=made)


@lowers(
    "aten.unfold.default",
    to="aten",
    phases=("xnnpack/decompose",),
    unless=lambda op: not isinstance(dims(op.operands[0].type)[op.arg("dimension")], Size),
    bound=EXACT,
    sample="""
    %y = aten.unfold.default(%x, 1, 2, 1) : (tensor<3x?xf32, #stepwell.shape<[3, "s + 1"]>>) -> tensor<3x?x2xf32, #stepwell.shape<[3, "s", 2]>>
    """,
)
def unfold_to_slices(x: Value, dimension: int, size: int, step: int, *, op: Any, out: Out) -> Value:
    """Decompose windows that begin at every element of a dynamic axis: a slice for each place."""
    no_refusal(not_for_xnnpack(op))
    at = x.axis(dimension)
    if step != 1 or size > WIDEST_BORDER:
        refuse(
            f"windows of {size} elements with step {step}; at most {WIDEST_BORDER} and step 1 are supported"
        )
    shape, parts = (*out.shape[:-1], 1), list[Value]()
    for first in range(size):
        stop = first - size + 1 or TO_THE_END
        part = Value(emit(x.b, slice_op(x.ssa, at, first, stop, out.shape[at])), x.b)
        parts.append(part.view(*shape))
    return cat(parts, x.rank)


@lowers(
    "aten.expand.default",
    to="aten",
    phases=("xnnpack/decompose", "xnnpack/parts"),
    unless=lambda op: not any(isinstance(size, SSAValue) for size in op.arg("size")),
    bound=EXACT,
    sample="""
    %n = aten.sym_size.int(%z, 1) : (tensor<2x?xf32, #stepwell.shape<[2, "s"]>>) -> !stepwell.int<"s">
    %y = aten.expand.default(%x, [-1, %n]) : (tensor<3x1xf32>, !stepwell.int<"s">) -> tensor<3x?xf32, #stepwell.shape<[3, "s"]>>
    """,
)
def expand_by_line(x: Value, *, op: Any, out: Out) -> Value:
    """Expand axes of size 1 to dynamic sizes: multiply by lines of ones of those sizes."""
    no_refusal(not_floats((x.ssa, *op.results)))
    shape = (*[1] * (len(out.shape) - x.rank), *x.shape)
    open_ = [at for at, (old, new) in enumerate(zip(shape, out.shape, strict=True)) if old != new]
    open_ = [at for at in open_ if isinstance(out.shape[at], Size)]
    no_refusal(may_be_empty(op, [out.shape[at] for at in open_]))
    if not is_open_once(shape):
        refuse("several sizes are dynamic")
    sources = [next(_of_size(out.shape[at], op), None) for at in open_]
    x = x.view(*shape)
    for at, source in zip(open_, sources, strict=True):
        size = out.shape[at]
        if source is None:
            refuse(f"no float tensor has an axis of size {size}")
        held = Value(source, x.b)
        ones = _ones(held, held.shape.index(size))
        x = x * ones.view(*(size if axis == at else 1 for axis in range(len(shape))))
    return x.expand(*out.shape)


def _of_size(size: Size, op: Any) -> Iterator[SSAValue]:
    """Yield values defined before an op, inputs first, that have an axis of a certain size."""
    block = op.parent
    before = takewhile(lambda other: other is not op, block.ops)
    for value in chain(block.args, *(other.results for other in before)):
        type_ = value.type
        if isinstance(type_, TensorType) and size in dims(type_) and element(type_) == f32:
            yield value


RULES = lowerings_of(__name__)
