"""The sizes that a check tries for symbolic dimensions.

A rewrite that is correct only for even sizes, or only for 1, may be correct at the size of the
example by chance. The check therefore tries the smallest size, its neighbor, odd, prime, near a
power of two, and the largest, within each range. Sizes that depend on one another (`2*s77 + 1`)
follow their symbols.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from math import prod
from typing import Any

import torch
from xdsl.dialects.builtin import TensorType
from xdsl.dialects.func import FuncOp
from xdsl.ir import Attribute

from stepwell.backends.executorch.bounds import upper_bound
from stepwell.ir.signature import get_signature
from stepwell.ir.sizes.size import UNKNOWN, Computed, Dim, Size
from stepwell.ir.types import IntType, dims

UNBOUNDED_EXTRA = 12
"""The distance from the lower bound at which a dimension without an upper bound is tried."""
MOST_ELEMENTS = 1 << 24
"""The limit of elements up to which inputs are created at an upper bound."""

Point = Mapping[str, int]
"""A value for each symbol."""


def usual_sizes(func: FuncOp, example: Sequence[Any] | None) -> dict[str, int]:
    """Return the sizes of the example, or ordinary ones."""
    return {
        symbol: min(low + 1, top) if given is None else given
        for symbol, (low, top, given) in _symbols(func, example).items()
    }


def telling_sizes(func: FuncOp, example: Sequence[Any] | None) -> list[tuple[str, Point]]:
    """Return sizes that reveal wrong rewrites, with labels, the ends of all ranges first."""
    symbols = _symbols(func, example)
    if not symbols:
        return []
    types = func.function_type.inputs.data
    usual = usual_sizes(func, example)
    found: list[tuple[str, Point]] = [
        ("smallest shapes", {name: low for name, (low, _, _) in symbols.items()}),
        ("largest shapes", {name: top for name, (_, top, _) in symbols.items()}),
    ]
    each = {name: _telling(low, top, usual[name]) for name, (low, top, _) in symbols.items()}
    for at in range(max(map(len, each.values()))):
        point = {
            name: sizes[(at + shift) % len(sizes)] if sizes else usual[name]
            for shift, (name, sizes) in enumerate(each.items())
        }
        spelt = ", ".join(f"{name}={size}" for name, size in point.items())
        found.append((f"sizes {spelt}", point))
    seen: list[Point] = [usual]
    kept: list[tuple[str, Point]] = []
    for label, point in found:
        if point not in seen and elements(types, point) <= MOST_ELEMENTS:
            seen.append(point)
            kept.append((label, point))
    return kept


def _telling(low: int, top: int, usual: int) -> list[int]:
    """Return a few sizes strictly between the ends and near `usual`, the most revealing first."""
    power = 4
    while power < usual and power * 2 + 1 < top:
        power *= 2
    odd = next((n for n in range(max(usual, low) + 1, top) if n % 2), low | 1)
    prime = next((n for n in range(odd + 1, top) if all(n % by for by in range(2, n))), 3)
    wanted = (low + 1, odd, prime, power - 1, power, power + 1, top - 1)
    return list(dict.fromkeys(n for n in wanted if low < n < top and n != usual))


def _symbols(func: FuncOp, example: Sequence[Any] | None) -> dict[str, tuple[int, int, int | None]]:
    """Return the smallest and largest value to try for each input symbol, and the example's."""
    ranges = dict(get_signature(func).ranges)
    symbols: dict[str, tuple[int, int, int | None]] = {}
    for index, type_ in enumerate(func.function_type.inputs.data):
        sizes: list[tuple[Dim, int | None]] = []
        given = example[index] if example is not None else None
        if isinstance(type_, TensorType):
            shape = list(given.shape) if isinstance(given, torch.Tensor) else None
            sizes = [(dim, shape[axis] if shape else None) for axis, dim in enumerate(dims(type_))]
        elif isinstance(type_, IntType):
            sizes = [(type_.size, given if isinstance(given, int) else None)]
        for expression, size in sizes:
            if isinstance(expression, int) or expression == UNKNOWN:
                continue
            for symbol in sorted(expression.symbols):
                low, high = ranges.get(symbol, (2, None))
                low = max(low, 1)
                top = low + UNBOUNDED_EXTRA if high is None else max(high, low)
                usual = None if size is None else _solved(expression, symbol, size)
                before = symbols.get(symbol, (low, top, None))[2]
                symbols[symbol] = (low, top, before if usual is None else usual)
    return symbols


def _solved(expression: Size, symbol: str, size: int) -> int | None:
    """Return the value of a symbol for which its expression (`2*s77 + 1`) is `size`; None if
    unknown.
    """
    if len(expression.symbols) > 1 or any(isinstance(a, Computed) for a in expression.atoms):
        return None
    at_zero, at_one = (expression.evaluate({symbol: value}) for value in (0, 1))
    if at_zero == at_one:
        return None
    value = (size - at_zero) // (at_one - at_zero)
    return value if expression.evaluate({symbol: value}) == size else None


def shape_at(type_: Attribute, point: Point) -> tuple[int, ...]:
    """Return the shape of a tensor type for values of its symbols."""
    ranges = {name: (value, value) for name, value in point.items()}
    return tuple(d if isinstance(d, int) else upper_bound(str(d), ranges) for d in dims(type_))


def elements(types: Sequence[Attribute], point: Point) -> int:
    """Return the number of elements of all tensors among some types."""
    return sum(prod(shape_at(type_, point)) for type_ in types if isinstance(type_, TensorType))
