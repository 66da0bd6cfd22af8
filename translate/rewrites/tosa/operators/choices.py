"""Comparisons and choices between values and numbers, as lowerings of functions write them."""

from __future__ import annotations

from collections.abc import Callable

from xdsl.ir import SSAValue

from stepwell.dialects.tosa import generated as t
from stepwell.ir.dtypes import i1
from stepwell.translate.rewrites.tosa.operators.building import Builder


def _compare(cls: type[t.GreaterOp | t.GreaterEqualOp | t.EqualOp]) -> Callable[..., SSAValue]:
    """A comparison with numbers or values on either side."""

    def compare(a: SSAValue | float, other: SSAValue | float, b: Builder) -> SSAValue:
        like = a if isinstance(a, SSAValue) else other
        assert isinstance(like, SSAValue)
        left, right = (x if isinstance(x, SSAValue) else b.splat(x, like) for x in (a, other))
        return b.binary(cls, left, right, i1)

    return compare


greater, at_least, equal = map(_compare, (t.GreaterOp, t.GreaterEqualOp, t.EqualOp))


def select(
    condition: SSAValue, a: SSAValue | float, other: SSAValue | float, like: SSAValue, b: Builder
) -> SSAValue:
    """One of two values or numbers, element by element of `like`."""
    sides = (x if isinstance(x, SSAValue) else b.splat(x, like) for x in (a, other))
    return b.select(condition, *sides)
