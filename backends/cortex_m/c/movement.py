"""Code generation: data movement as loops in C, derived by running the operator on indices.

The operator runs once on the positions of its operands' elements, numbered in memory order. The
result, in memory order, is partitioned into boxes that nested loops can copy: a slice is one box, a
padding two, a concatenation one for each operand. Other positions are stored in a table.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import product
from math import prod
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from xdsl.ir import SSAValue

from stepwell.backends.cortex_m.c.elements import Loop, collapsed, index_text, nested
from stepwell.backends.cortex_m.c.operators import KernelOperator
from stepwell.backends.cortex_m.c.terms import constant, kind_of
from stepwell.backends.cortex_m.c.writer import MethodWriter
from stepwell.backends.executorch.container import strides
from stepwell.dialects.aten.op import SchemaOp
from stepwell.ir.declared.families import is_movement, is_of
from stepwell.ir.declared.interpretation import Interpreter
from stepwell.ir.types import element
from stepwell.ir.weights import WeightStore

_PICKS = frozenset(
    f"aten.{name}"
    for name in (
        "upsample_nearest1d.vec upsample_nearest1d.default upsample_nearest2d.vec "
        "upsample_nearest2d.default upsample_nearest3d.vec upsample_nearest3d.default "
        "reflection_pad1d.default reflection_pad2d.default reflection_pad3d.default "
        "replication_pad1d.default replication_pad2d.default replication_pad3d.default "
        "unfold_copy.default select_scatter.default slice_scatter.default tril.default "
        "triu.default"
    ).split()
)
"""Ops that select elements by their arguments only, besides data movement and pads."""
_FIRST = 1 << 40
"""The number of the first element; larger than any padding value."""
_APART = 1 << 32
"""The distance between the numbers of two operands."""
_BOXES = 8
"""The largest number of boxes along one axis; with more, its positions are stored in a table."""

Places = NDArray[np.int64]


def moves(op: SchemaOp) -> bool:
    """Whether an op only moves elements or inserts constants, at positions that its arguments
    determine.
    """
    return is_movement(op) or is_of(op, "padding") or op.name in _PICKS


def write_movement(w: MethodWriter, operator: KernelOperator) -> bool:
    """Write a call of a data movement op; return False for other ops."""
    if not moves(operator.op):
        return False
    numbered: dict[SSAValue, torch.Tensor] = {}
    operands: list[int] = []
    for value, index in zip(operator.op.operands, operator.operands, strict=True):
        if value not in numbered:
            held = w.tensor(index)
            first = _FIRST + len(operands) * _APART
            flat = torch.arange(first, first + prod(held.sizes), dtype=torch.float64)
            own = strides(held.sizes, held.dim_order)
            numbered[value] = flat.as_strided(held.sizes, own)
            operands.append(index)
    Interpreter(WeightStore()).step(operator.op, environment := dict[SSAValue, Any](numbered))
    for result, index in zip(operator.op.results, operator.results, strict=True):
        # A single result may be used as a part of a whole, which its other names do not show.
        if len(operator.results) == 1 or w.is_read(index):
            _write_result(w, operands, environment[result], index, element(result.type))
    return True


def _write_result(
    w: MethodWriter, operands: Sequence[int], moved: torch.Tensor, result: int, type_: Any
) -> None:
    value = w.tensor(result)
    if not moved.numel():
        return
    lying = moved.permute(value.dim_order).contiguous().numpy()
    is_fill = ~((lying >= _FIRST) & (lying < _FIRST + len(operands) * _APART))
    lines: list[str] = []
    used: list[tuple[str, int]] = []
    if is_fill.any():
        number = constant(float(lying[is_fill].flat[0]), kind_of(type_))
        loop = [("i0", Loop(lying.size, {"y": 1}))]
        lines += nested(loop, [f"y[{index_text('y', 0, loop)}] = {number};"])
    whole = np.where(is_fill, -1, lying - _FIRST).astype(np.int64)
    for number, index in enumerate(operands):
        mine = (whole >= number * _APART) & (whole < (number + 1) * _APART)
        if not mine.any():
            continue
        name = f"x{len(used)}"
        used.append((name, index))
        for box in _boxes(mine, whole - number * _APART):
            lines += _copied(w, name, box)
    # A number is converted to the element's type; what is only copied, to any of its size.
    w.function(lines, used, [("y", result)], bits=not is_fill.any())


@dataclass(frozen=True)
class _Box:
    """A copy of elements: loops from offsets `given` to `made`, or a table of source positions."""

    loops: tuple[Loop, ...]
    given: int
    made: int
    table: tuple[int, ...] | None = None


def _boxes(mine: NDArray[np.bool_], places: Places) -> Iterator[_Box]:
    """Yield the copies of one operand's elements: loops over boxes, or else a single table."""
    apart = strides(mine.shape, range(mine.ndim))
    if (steps := _steps(places.ravel())) is not None and mine.all():
        inner = [prod(n for n, _ in steps[at + 1 :]) for at in range(len(steps))]
        loops = [Loop(n, {"x": s, "y": m}) for (n, s), m in zip(steps, inner, strict=True)]
        yield _Box(tuple(collapsed(loops)), int(places.flat[0]), 0)
        return
    axes = [mine.any(axis=tuple(a for a in range(mine.ndim) if a != at)) for at in range(mine.ndim)]
    spans = [np.flatnonzero(axis) for axis in axes]
    inside = np.ix_(*spans)
    part = places[inside]
    along = [part[tuple(slice(None) if a == at else 0 for a in range(part.ndim))] for at in
             range(part.ndim)]  # fmt: skip
    origin = int(part.flat[0])
    rebuilt = sum(
        (line - origin).reshape([-1 if a == at else 1 for a in range(part.ndim)])
        for at, line in enumerate(along)
    )
    if mine[inside].all() and np.array_equal(np.asarray(rebuilt) + origin, part):
        runs = [list(_runs(line, span)) for line, span in zip(along, spans, strict=True)]
        if all(len(axis) <= _BOXES for axis in runs):
            for chosen in product(*runs):
                loops: list[Loop] = []
                given, made = origin, 0
                for (start, first, pairs), step in zip(chosen, apart, strict=True):
                    given += start - origin
                    made += first * step
                    for at, (count, by) in enumerate(pairs):
                        inner_size = prod(n for n, _ in pairs[at + 1 :])
                        loops.append(Loop(count, {"x": by, "y": inner_size * step}))
                yield _Box(tuple(collapsed(loops)), given, made)
            return
    table = np.where(mine, places, -1).ravel()
    yield _Box((), 0, 0, tuple(int(at) for at in table))


def _runs(line: Places, span: NDArray[np.intp]) -> Iterator[tuple[int, int, list[tuple[int, int]]]]:
    """Yield runs of regular steps: first position, its index, and (iterations, step) loops."""
    start = 0
    while start < len(line):
        stop = len(line)
        while (pairs := _steps(line[start:stop], span[start:stop])) is None:
            stop -= 1
        yield int(line[start]), int(span[start]), pairs
        start = stop


def _steps(line: Places, span: NDArray[np.intp] | None = None) -> list[tuple[int, int]] | None:
    """Express consecutive positions as nested loops of (iterations, step), outermost first; None if
    impossible.

    `span` are their indices, which must be consecutive within loops.
    """
    count = len(line)
    if span is not None and count and int(span[-1] - span[0]) != count - 1:
        return None
    if count == 1:
        return [(1, 0)]
    apart = np.diff(line)
    other = np.flatnonzero(apart != apart[0])
    if not len(other):
        return [(count, int(apart[0]))]
    longest = int(other[0]) + 1
    for length in range(longest, 0, -1):
        if count % length or (length == 1 and longest > 1):
            continue
        rows = line.reshape(-1, length)
        if length == 1 or (rows - rows[:, :1] == rows[0] - rows[0, 0]).all():
            if length == 1:
                return None
            outer = _steps(rows[:, 0])
            if outer is not None:
                return [*outer, (length, int(apart[0]))]
    return None


def _copied(w: MethodWriter, name: str, box: _Box) -> list[str]:
    if box.table is not None:
        return _by_table(w, name, box.table)
    loops = [
        (f"i{at}", Loop(loop.size, {name: loop.steps["x"], "y": loop.steps["y"]}))
        for at, loop in enumerate(box.loops)
    ]
    last = loops.pop()[1] if loops and loops[-1][1].steps == {name: 1, "y": 1} else None
    text, made = index_text(name, box.given, loops), index_text("y", box.made, loops)
    if last is None:
        return nested(loops, [f"y[{made}] = {name}[{text}];"])
    size = f"(size_t){last.size} * sizeof(*y)"
    return nested(loops, [f"memmove(&y[{made}], &{name}[{text}], {size});"])


def _by_table(w: MethodWriter, name: str, table: tuple[int, ...]) -> list[str]:
    kind = "int16_t" if max(table) < 1 << 15 else "int32_t"
    numbers = w.numbers(kind, table)
    body = [f"if ({numbers}[i0] >= 0) {{", f"    y[i0] = {name}[{numbers}[i0]];", "}"]
    return nested([("i0", Loop(len(table), {}))], body)
