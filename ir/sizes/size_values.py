"""Evaluate a size from operations (sum, product, quotient, …) on two values each."""

from __future__ import annotations

import operator
from collections.abc import Callable
from functools import reduce
from typing import Final, TypeVar

from stepwell.ir.sizes.size import (
    Atom,
    Extreme,
    Monomial,
    Quotient,
    Size,
    maximum,
    minimum,
    remainder,
)

Value = TypeVar("Value")

OF_TWO: Final[dict[str, Callable[[Size, Size], Size]]] = {
    "add": operator.add,
    "mul": operator.mul,
    "floordiv": operator.floordiv,
    "mod": operator.mod,
    "min": minimum,
    "max": maximum,
}
"""The binary functions from which sizes are composed."""


def computed(
    size: Size,
    leaf: Callable[[Size], Value | None],
    apply: Callable[[str, Value, Value], Value],
) -> Value | None:
    """Evaluate a size; return None if a required value is not available.

    Args:
        size: the size.
        leaf: returns the value of a size, or None if it is not available; called for numbers, too,
            and for whole expressions before their parts.
        apply: applies a function of `OF_TWO`, by its name, to two values.
    """

    def value(size: Size) -> Value | None:
        known = leaf(size)
        if known is not None or not size.symbols:
            return known
        if (held := remainder(size)) is not None:
            factor, dividend, divisor, rest = held
            times = [leaf(Size.of(factor))] if factor != 1 else []
            left = combined("mul", [*times, combined("mod", [value(dividend), value(divisor)])])
            return combined("add", [value(rest), left]) if rest.terms else left
        # Constants first, then by rising degree.
        return combined("add", [term(*one) for one in reversed(size.terms)])

    def term(monomial: Monomial, coefficient: int) -> Value | None:
        number = [leaf(Size.of(coefficient))] if coefficient != 1 or not monomial else []
        factors = [atom_value(atom) for atom, power in monomial for _ in range(power)]
        return combined("mul", [*number, *factors])

    def atom_value(atom: Atom) -> Value | None:
        known = leaf(Size(((((atom, 1),), 1),)))
        if known is not None:
            return known
        if isinstance(atom, Quotient):
            return combined("floordiv", [value(atom.dividend), value(atom.divisor)])
        if isinstance(atom, Extreme):
            return combined(atom.kind.lower(), [value(one) for one in atom.sizes])
        return None

    def combined(name: str, values: list[Value | None]) -> Value | None:
        present = [one for one in values if one is not None]
        if len(present) < len(values):
            return None
        return reduce(lambda one, other: apply(name, one, other), present)

    return value(size)
