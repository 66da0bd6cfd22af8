"""Maxima of windows whose places are read, by a table of the elements of each window.

The table is known: it is what is gathered, and where the greatest of a window stands. A window that
is cut off, or shorter than others, names its last element again, behind itself.

Before:
    %m, %y = aten.adaptive_max_pool1d.default(%x, [2]) : (tensor<1x1x4xf32>) -> (tensor<1x1x2xf32>, tensor<1x1x2xi64>)
    func.return %y : tensor<1x1x2xi64>
After:
    %0 = aten.view.default(%x, [1, 4]) : (tensor<1x1x4xf32>) -> tensor<1x4xf32>
    %1 = aten.index_select.default(%0, 1, dense<[0, 1, 2, 3]>) : (tensor<1x4xf32>, tensor<4xi64>) -> tensor<1x4xf32>
    %2 = aten.view.default(%1, [1, 2, 2]) : (tensor<1x4xf32>) -> tensor<1x2x2xf32>
    %m, %3 = aten.max.dim(%2, 2, false) : (tensor<1x2x2xf32>) -> (tensor<1x2xf32>, tensor<1x2xi64>)
    %4 = aten.add.Tensor(%3, dense<[0, 2]>) : (tensor<1x2xi64>, tensor<2xi64>) -> tensor<1x2xi64>
    %5 = aten.view.default(%4, [2]) : (tensor<1x2xi64>) -> tensor<2xi64>
    %6 = aten.index_select.default(dense<[0, 1, 2, 3]>, 0, %5) : (tensor<4xi64>, tensor<2xi64>) -> tensor<2xi64>
    %y = aten.view.default(%6, [1, 1, 2]) : (tensor<2xi64>) -> tensor<1x1x2xi64>
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import product
from math import prod
from typing import ClassVar

import torch
from xdsl.ir import Operation

from stepwell.dialects import aten
from stepwell.dialects.aten.op import SchemaOp
from stepwell.dialects.aten.registry import op_class
from stepwell.ir.dtypes import i64
from stepwell.ir.program import Program
from stepwell.ir.rewriting import EXACT, Bound, Refusal, Rewrite, Rewriter
from stepwell.ir.types import element, tensor
from stepwell.translate.rewrites.building import emit, static_dims, view

_ADAPTIVE = tuple(op_class(f"aten.adaptive_max_pool{space}d.default") for space in (1, 2, 3))
_PLAIN = tuple(op_class(f"aten.max_pool{space}d_with_indices.default") for space in (1, 2, 3))
MOST = 1 << 20
"""The most elements of a table: a 64-bit number each, and as many elements gathered of each plane."""


@dataclass(frozen=True)
class Windows:
    """A pool over the last axes, and the places of each window's elements in a plane of them.

    Attributes:
        op: the pool.
        held, made: the sizes of the last axes.
        spans: for each of these axes, the elements of it that each of its windows has.
    """

    op: SchemaOp
    held: tuple[int, ...]
    made: tuple[int, ...]
    spans: tuple[tuple[range, ...], ...]


@dataclass(frozen=True)
class MaximaWithPlaces(Rewrite[Windows]):
    """`max_pool` and `adaptive_max_pool` with indices to a gather, a maximum and a second gather."""

    name: ClassVar[str] = "maxima-with-places-to-tosa"
    takes_empty: ClassVar[bool] = False
    anchors: ClassVar[tuple[type[Operation], ...]] = (*_ADAPTIVE, *_PLAIN)
    bound: ClassVar[Bound] = EXACT

    def match(self, op: SchemaOp, program: Program) -> Windows | Refusal | None:
        """Known sizes, a table that is not too large; the places are read."""
        if not op.results[1].uses:
            return None
        held, made = static_dims(op.operands[0]), static_dims(op.results[0])
        if held is None or made is None:
            return Refusal("the shape is symbolic")
        space = _space(op)
        sizes, counts = held[-space:], made[-space:]
        spans = tuple(
            tuple(_spans(op, at, *pair)) for at, pair in enumerate(zip(sizes, counts, strict=True))
        )
        longest = prod(max(map(len, axis)) for axis in spans)
        if longest * prod(counts) > MOST:
            return Refusal(f"its windows hold {longest * prod(counts)} elements, more than {MOST}")
        return Windows(op, sizes, counts, spans)

    def build(self, match: Windows, rw: Rewriter) -> None:
        """The elements of each window side by side, the greatest, and what the table says of it."""
        x = match.op.operands[0]
        shape = static_dims(x)
        assert shape is not None
        table = _table(match.held, match.spans)
        planes, (windows, longest) = prod(shape) // prod(match.held), table.shape
        places = rw.constant(table.reshape(-1), "places")
        held = element(x.type)
        x = view(rw, x, (planes, prod(match.held)))
        type_ = tensor((planes, windows * longest), held)
        x = emit(rw, aten.IndexSelectDefault.make(x, 1, places, result_types=[type_]))
        x = view(rw, x, (planes, windows, longest))
        types = [tensor((planes, windows), kind) for kind in (held, i64)]
        greatest = rw.insert(aten.MaxDim.make(x, 2, False, result_types=types))
        rows = rw.constant(torch.arange(windows) * longest, "rows")
        at = emit(rw, aten.AddTensor.make(greatest.results[1], rows, result_types=[types[1]]))
        at = view(rw, at, (planes * windows,))
        flat = tensor((planes * windows,), i64)
        found = emit(rw, aten.IndexSelectDefault.make(places, 0, at, result_types=[flat]))
        made = static_dims(match.op.results[0]) or ()
        rw.replace(match.op, [view(rw, value, made) for value in (greatest.results[0], found)])


def _space(op: SchemaOp) -> int:
    """How many axes a pool runs over."""
    pools = _ADAPTIVE if isinstance(op, _ADAPTIVE) else _PLAIN
    return pools.index(type(op)) + 1


def _spans(op: SchemaOp, at: int, size: int, count: int) -> Iterator[range]:
    """The elements of an axis that each window has, without what is padded."""
    if isinstance(op, _ADAPTIVE):
        yield from (range(i * size // count, -(-(i + 1) * size // count)) for i in range(count))
        return
    kernel, stride, pad, dilation = (
        _number(op, name, at) for name in ("kernel_size", "stride", "padding", "dilation")
    )
    for i in range(count):
        start = i * stride - pad
        inside = [p for p in range(start, start + kernel * dilation, dilation) if 0 <= p < size]
        yield range(inside[0], inside[-1] + 1, dilation)


def _number(op: SchemaOp, name: str, at: int) -> int:
    given = list(op.arg(name) or op.arg("kernel_size"))
    return given[at if len(given) > 1 else 0]


def _table(sizes: tuple[int, ...], spans: tuple[tuple[range, ...], ...]) -> torch.Tensor:
    """A row a window: its places in the order torch looks at them, the last again to fill it up."""
    steps = [prod(sizes[at + 1 :]) for at in range(len(sizes))]
    rows = [
        [sum(i * step for i, step in zip(where, steps, strict=True)) for where in product(*window)]
        for window in product(*spans)
    ]
    longest = max(map(len, rows))
    return torch.tensor([row + [row[-1]] * (longest - len(row)) for row in rows])
