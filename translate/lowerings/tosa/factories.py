"""Lowerings of triangles, and of `full`, `zeros` and `arange` with dynamic sizes.

For static sizes, other rewrites create constants. A filled tensor of dynamic size is a TILE. The
numbers 0, 1, 2, … are a slice of a constant if the size has a bound, else the row sums of a
triangle.
"""

from __future__ import annotations

from typing import Any

from xdsl.ir import SSAValue

from stepwell.dialects.tosa import generated as t
from stepwell.ir.compat.torch.lazy_imports import torch
from stepwell.ir.dtypes import f32, i1, i32, torch_dtype
from stepwell.ir.rewriting.rewrite import EXACT
from stepwell.ir.signature import ranges_around
from stepwell.ir.sizes.size import Dim
from stepwell.ir.sizes.size_ranges import interval
from stepwell.ir.types import dims
from stepwell.translate.lowerings.lowering import Out, lowerings_of, lowers, refuse
from stepwell.translate.lowerings.tosa.values import Value, concat, where
from stepwell.translate.rewrites.tosa.operators.building import FLOATS, Builder
from stepwell.translate.rewrites.tosa.operators.sizes import is_known

TRIANGLES = {"aten.tril.default": True, "aten.triu.default": False}


@lowers(TRIANGLES, to="tosa", bound=EXACT, sample=("3x3xf32",))
def triangle(x: Value, diagonal: Any, *, form: bool, b: Builder) -> Value:
    """Lower `tril` and `triu` to a SELECT by a mask: a constant, or built by shape operators."""
    if not isinstance(diagonal, int):
        refuse("the diagonal is known only at run time")
    rows, columns = x.shape[-2:]
    if not is_known((rows, columns)):
        mask = triangle_of(rows, columns, b, diagonal if form else diagonal - 1).of_rank(x.rank)
        return where(mask, x, 0) if form else where(mask, 0, x)
    most = b.level.bytes
    if rows * columns > most:
        refuse(f"a mask of {rows} × {columns} is above {most} bytes")
    ones = torch.ones(rows, columns, dtype=torch.bool)
    mask = x.tensor((ones.tril if form else ones.triu)(diagonal))
    return where(mask.of_rank(x.rank), x, 0)


def triangle_of(rows: Dim, columns: Dim, b: Builder, diagonal: int = 0) -> Value:
    """Return booleans `[rows, columns]`, true on and below a diagonal, of dynamic sizes.

    The mask is read from a repeated line that is one element longer than a row, so that each row
    starts one element further to the left. The line is true at position 0 and at its last `rows`
    positions, which stand for -1, -2, …
    """
    first = (max(diagonal, 0), max(-diagonal, 0))
    rows, columns = rows + first[0], columns + first[1]  # It contains any other diagonal.
    runs = [(True, 1), (False, columns), (True, rows)]
    parts = [_repeated(Value(b.number(truth, 1, i1), b), count) for truth, count in runs]
    period = rows + columns + 1
    line = _repeated(concat(parts, 0), rows)
    wide = line.narrow(0, 0, rows * (period - 1)).reshape(rows, period - 1)
    shape = (rows - first[0], columns - first[1])
    return wide.made(t.SliceOp, shape, b.sizes(first), b.sizes(shape))


def _repeated(line: Value, count: Dim) -> Value:
    """Repeat a line of booleans."""
    if count == 1:
        return line
    return line.made(t.TileOp, (line.shape[0] * count,), line.b.sizes((count,)))


NUMBERS: dict[str, float | str | None] = {
    "aten.full_like.default": "fill_value",
    "aten.full.default": "fill_value",
    "aten.new_full.default": "fill_value",
    "aten.ones.default": 1,
    "aten.ones_like.default": 1,
    "aten.new_ones.default": 1,
    "aten.zeros.default": 0,
    "aten.zeros_like.default": 0,
    "aten.new_zeros.default": 0,
    "aten.arange.default": None,
    "aten.arange.start": None,
    "aten.arange.start_step": None,
}
"""The fill value of a factory function, or the argument that has it; None if it counts."""

LONGEST_COUNT = 1 << 16
"""The length of a constant that counts: 256 KiB of int32."""

COUNTED_AT_ONCE = 1 << 10
"""The block length of counting where a size has no bound."""


@lowers(NUMBERS, to="tosa", bound=EXACT, sample=("sxf32", 2))
def factory(*, form: Any, op: Any, out: Out, b: Builder) -> Value | None:
    """Lower a factory op of symbolic size to a TILE of a number, or to the numbers 0, 1, 2, …"""
    if is_known(out.shape):
        return None
    if form is None:
        return _counting(op, out, b)
    number = op.arg(form) if isinstance(form, str) else form
    if not isinstance(number, int | float):
        refuse("the value is known only at run time")
    return Value(b.number(number, len(out.shape), out.dtype), b).tile(out.shape)


def _counting(op: Any, out: Out, b: Builder) -> Value:
    """Lower `arange` to a SLICE of a constant, or to the numbers from 0 on, scaled and shifted."""
    stated = op.SCHEMA.by_name
    start, step = (
        op.arg(name) if name in stated else default for name, default in (("start", 0), ("step", 1))
    )
    if not (isinstance(start, int) and isinstance(step, int)):
        refuse("start and step are not constant integers")
    most = largest_size(op.results[0])
    if most is not None and most <= LONGEST_COUNT:
        numbers = torch.arange(most).mul(step).add(start).to(torch_dtype(out.dtype))
        return Value(b.constant(numbers), b).narrow(0, 0, out.shape[0])
    y = _counted(out.shape[0], b)
    y = y.to(out.dtype) if out.dtype in FLOATS else y.cast(i32).to(out.dtype)
    y = y if step == 1 else y * step
    return y if start == 0 else y + start


def largest_size(value: SSAValue) -> int | None:
    """Return the upper bound of a vector's size, if it is a bounded symbol of the program."""
    (size,) = dims(value.type)
    return None if isinstance(size, int) else interval(size, ranges_around(value))[1]


def _counted(size: Dim, b: Builder) -> Value:
    """Return 0, 1, …, size - 1 in f32, in blocks whose numbers are row sums of a triangle."""
    blocks = (size + COUNTED_AT_ONCE - 1) // COUNTED_AT_ONCE
    row = triangle_of(blocks, blocks, b).to(f32).sum(1) - 1.0
    first = row * float(COUNTED_AT_ONCE)
    inner = torch.arange(COUNTED_AT_ONCE, dtype=torch.float32).reshape(1, -1)
    y = (first + first.tensor(inner)).reshape(blocks * COUNTED_AT_ONCE)
    return y.narrow(0, 0, size)


RULES = lowerings_of(__name__)
