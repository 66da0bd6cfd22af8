"""Between which numbers floats lie: what says that integers made of them need no 64 bits.

Places that floats compute (`grid_sample`) are compared with the image's edges, and only what lies
inside names a pixel: `0 <= x and x < w ? x : 0`. A NaN fails every comparison.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass, field

from xdsl.ir import Operation, SSAValue

from stepwell.dialects.tosa import generated as t
from stepwell.ir.core import weight_key
from stepwell.ir.families import moves_one
from stepwell.ir.weights import WeightStore

FloatInterval = tuple[float, float]
ANY: FloatInterval = (-math.inf, math.inf)


@dataclass
class FloatIntervals:
    """What is known of each float; each is looked at once."""

    weights: WeightStore
    known: dict[SSAValue, FloatInterval] = field(default_factory=dict[SSAValue, FloatInterval])

    def of(self, value: SSAValue) -> FloatInterval:
        """The least and the largest number that a float may be, NaNs aside."""
        if value not in self.known:
            self.known[value] = self._found(value)
        return self.known[value]

    def picked(self, cast: t.CastOp) -> FloatInterval:
        """Between which numbers a cast float lies wherever its integer is picked.

        Every use is a choice under a condition that compares the float; elsewhere another value is
        chosen, and what the cast made of the float is of no account.
        """
        source = cast.input
        found = (math.inf, -math.inf)
        for use in cast.results[0].uses:
            op = use.operation
            if not isinstance(op, t.SelectOp) or use.index != 1:
                return ANY
            under = [self._under(op.operands[0], v) for v in (source, _whole_part_of(source))]
            found = _hull(found, _both(*under))
        return found

    def _found(self, value: SSAValue) -> FloatInterval:
        key = weight_key(value)
        if key is not None:
            held = self.weights.get(key)
            return (float(held.min()), float(held.max())) if held.numel() else (0.0, 0.0)
        match value.owner:
            case t.SelectOp() as op:
                condition, one, other = op.operands
                return _hull(_both(self._under(condition, one), self.of(one)), self.of(other))
            case t.ClampOp() as op:
                return float(op.min_val.value.data), float(op.max_val.value.data)
            case t.FloorOp() | t.CeilOp() as op:
                low, high = self.of(op.operands[0])
                return _down(low), -_down(-high)
            case t.MinimumOp() | t.MaximumOp() as op:
                (low, high), (least, most) = map(self.of, op.operands)
                pick = min if isinstance(op, t.MinimumOp) else max
                return pick(low, least), pick(high, most)
            case Operation() as op if moves_one(op):
                return self.of(op.operands[0])
            case _:
                return ANY

    def _under(self, condition: SSAValue, value: SSAValue) -> FloatInterval:
        """What a condition says of a value where it holds."""
        found = ANY
        for op in _conjuncts(condition):
            more, less = op.operands
            if more is value:
                found = _both(found, (self.of(less)[0], math.inf))
            if less is value:
                found = _both(found, (-math.inf, self.of(more)[1]))
        return found


def _whole_part_of(value: SSAValue) -> SSAValue:
    """X of `x > 0 ? floor(x) : ceil(x)`, which is between 0 and x; another value as it is."""
    if not isinstance(value.owner, t.SelectOp):
        return value
    below, above = (operand.owner for operand in value.owner.operands[1:])
    if not isinstance(below, t.FloorOp) or not isinstance(above, t.CeilOp):
        return value
    return below.operands[0] if below.operands[0] is above.operands[0] else value


def _conjuncts(condition: SSAValue) -> Iterator[t.GreaterOp | t.GreaterEqualOp]:
    """Comparisons that all hold where a condition does."""
    match condition.owner:
        case t.LogicalAndOp() | t.BitwiseAndOp() as op:
            for operand in op.operands:
                yield from _conjuncts(operand)
        case t.GreaterOp() | t.GreaterEqualOp() as op:
            yield op
        case _:
            pass


def _both(one: FloatInterval, other: FloatInterval) -> FloatInterval:
    return max(one[0], other[0]), min(one[1], other[1])


def _hull(one: FloatInterval, other: FloatInterval) -> FloatInterval:
    return min(one[0], other[0]), max(one[1], other[1])


def _down(number: float) -> float:
    return math.floor(number) if math.isfinite(number) else number
