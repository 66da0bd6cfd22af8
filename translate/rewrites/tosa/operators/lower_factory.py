"""Factory functions of a size that only the run knows: `full`, `zeros`, `ones`, `arange`.

Of a known size they are constants. Numbers are a TILE; the numbers 0, 1, 2, … a slice of a constant
where the size has a bound, else the sums of a triangle's rows.

Before:
    %y = aten.full_like.default(%x, 2) : (tensor<?xf32, #stepwell.shape<["s"]>>) -> tensor<?xf32, #stepwell.shape<["s"]>>
After:
    %0 = tosa.dim %x {axis = 0 : i32} : (tensor<?xf32, #stepwell.shape<["s"]>>) -> !tosa.shape<1>
    %y = tosa.tile dense<2.0>, %0 : (tensor<1xf32>, !tosa.shape<1>) -> tensor<?xf32, #stepwell.shape<["s"]>>
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar

import torch
from xdsl.ir import Attribute, Operation, SSAValue

from stepwell.dialects import aten
from stepwell.dialects.aten.op import SchemaOp
from stepwell.dialects.tosa import generated as t
from stepwell.ir.dtypes import f32, i32, torch_dtype
from stepwell.ir.program import Program
from stepwell.ir.rewriting import EXACT, Bound, Refusal
from stepwell.ir.signature import ranges_around
from stepwell.ir.size import Dim
from stepwell.ir.size_ranges import interval
from stepwell.ir.types import dims, element, is_static
from stepwell.translate.lowerings.tosa.values import Value
from stepwell.translate.rewrites.tosa.operators.building import FLOATS, Builder, narrow, shape_of
from stepwell.translate.rewrites.tosa.operators.lower_triangle import triangle
from stepwell.translate.rewrites.tosa.operators.lowering import Lowerable, LowerToTosa, is_number

_FILLED: dict[type[Operation], float | str] = {
    aten.FullDefault: "fill_value",
    aten.FullLikeDefault: "fill_value",
    aten.NewFullDefault: "fill_value",
    aten.OnesDefault: 1,
    aten.OnesLikeDefault: 1,
    aten.NewOnesDefault: 1,
    aten.ZerosDefault: 0,
    aten.ZerosLikeDefault: 0,
    aten.NewZerosDefault: 0,
}
"""The number that a factory function repeats, or the argument that is it."""

_COUNTING = (aten.ArangeDefault, aten.ArangeStart, aten.ArangeStartStep)

LONGEST_COUNT = 1 << 16
"""Numbers of a constant that counts: 256 KiB of int32."""

COUNTED_AT_ONCE = 1 << 10
"""Numbers counted at once where a size has no bound."""


@dataclass(frozen=True)
class LowerFactory(LowerToTosa):
    """Factory functions of symbolic size to TILE, or to a SLICE of numbers that count."""

    name: ClassVar[str] = "lower-factory-to-tosa"
    anchors: ClassVar[tuple[type[Operation], ...]] = (*_FILLED, *_COUNTING)
    bound: ClassVar[Bound] = EXACT

    def match(self, op: SchemaOp, program: Program) -> Lowerable | Refusal | None:
        """Of a known size it is a constant, which other rewrites make."""
        return None if is_static(op.results[0].type) else super().match(op, program)

    def refuses(self, op: SchemaOp) -> Refusal | None:
        """Numbers known ahead of time; counting by whole numbers from a whole number."""
        if not isinstance(op, _COUNTING):
            held = _FILLED[type(op)]
            is_known = not isinstance(held, str) or is_number(op.arg(held))
            return None if is_known else Refusal("the value is known only at run time")
        steps = [_argument(op, name, default) for name, default in (("start", 0), ("step", 1))]
        if not all(isinstance(number, int) for number in steps):
            return Refusal("it does not count by whole numbers known ahead of time")
        if not isinstance(op.arg("end"), SSAValue | int):
            return Refusal("its end is a float")
        return None

    def lower(self, op: SchemaOp, b: Builder) -> SSAValue:
        """One TILE, or the numbers from 0 on, scaled and shifted."""
        result = op.results[0]
        shape, held = shape_of(result), element(result.type)
        if not isinstance(op, _COUNTING):
            given = _FILLED[type(op)]
            number = op.arg(given) if isinstance(given, str) else given
            one = b.number(number, len(shape), held)
            return b.op(t.TileOp, [one, b.sizes(shape)], shape, held)
        start, step = _argument(op, "start", 0), _argument(op, "step", 1)
        most = largest_size(result)
        if most is not None and most <= LONGEST_COUNT:
            numbers = torch.arange(most).mul(step).add(start).to(torch_dtype(held))
            return narrow(b.constant(numbers), 0, 0, shape[0], b)
        y = _counted(shape[0], held, b)
        y = y if step == 1 else b.scalar(t.MulOp, y, step)
        return y if start == 0 else b.scalar(t.AddOp, y, start)


def _argument(op: SchemaOp, name: str, default: int) -> Any:
    """An argument that not every overload has."""
    return op.arg(name) if name in {argument.name for argument in op.SCHEMA.arguments} else default


def largest_size(value: SSAValue) -> int | None:
    """The bound of the size of a vector, where that is a symbol of the program with one."""
    (size,) = dims(value.type)
    return None if isinstance(size, int) else interval(size, ranges_around(value))[1]


def _counted(size: Dim, held: Attribute, b: Builder) -> SSAValue:
    """0, 1, …, size - 1: in blocks, whose own numbers are sums of a triangle's rows."""
    blocks = (size + COUNTED_AT_ONCE - 1) // COUNTED_AT_ONCE
    below = triangle(blocks, blocks, b)
    ones = Value(below, b).to(f32).ssa
    row = b.scalar(t.SubOp, b.reduce(t.ReduceSumOp, ones, 1), 1.0)
    first = b.scalar(t.MulOp, row, float(COUNTED_AT_ONCE))
    inner = b.constant(torch.arange(COUNTED_AT_ONCE, dtype=torch.float32).reshape(1, -1))
    y = b.reshape(b.binary(t.AddOp, first, inner), (blocks * COUNTED_AT_ONCE,))
    y = narrow(y, 0, 0, size, b)
    if held in FLOATS:
        return Value(y, b).to(held).ssa
    return Value(b.op(t.CastOp, [y], (size,), i32), b).to(held).ssa
