"""Tables and patterns from which instances are enumerated: types, sizes, orders of axes."""

from collections.abc import Iterator, Sequence
from itertools import permutations, product
from random import Random
from typing import Any, cast

from xdsl.ir import Attribute

from stepwell.ir.dtypes import bf16, f16, f32, f64, i1, i8, i16, i32, i64, ui8
from stepwell.ir.sizes.size import Dim, Size
from stepwell.translate.rules.notation import Computed, Hole

_MOST_ORDERED = 4
FAR: tuple[tuple[Dim, ...], ...] = tuple((2, 4, 2, 1, 2, 2, 1, 2)[:rank] for rank in (5, 6, 7, 8))
"""Shapes of ranks that are only run: of a rule that is not proved for any rank."""
ELEMENTS: tuple[Attribute, ...] = (f32, f16, bf16, f64, i32, i64, i16, i8, ui8, i1)
MIXED = ((f32, f16), (f32, f64), (f32, i32), (f16, bf16), (i32, i64), (i8, ui8), (i32, i8),
         (i32, f32), (i1, i32), (f16, i1), (f32, i1))  # fmt: skip
"""Element types of most inputs, and of one that has another."""


def kinds_of(keys: list[str]) -> Iterator[dict[str, Attribute]]:
    """Yield element types: the same one for all inputs, then pairs in which one input differs."""
    for of in ELEMENTS:
        yield dict.fromkeys(keys, of)
    if len(keys) > 1:
        for key, (rest, of) in product(keys, MIXED):
            yield {**dict.fromkeys(keys, rest), key: of}


SIZES = ((), (1,), (0,), (1, 2), (1, 1), (0, 1), (1, 2, 3), (1, 1, 1), (0, 1, 1), (1, 2, 1),
          (1, 0, 2), (1, 1, 2, 2), (0, 2, 0, 1))  # fmt: skip
"""Patterns of equal sizes that are tried as numbers: for each axis the number of its size, 0 for
size 1.
"""
MOST_SIGNED = 2
"""The number of axes up to which each is counted from the front and from the back."""


def symbolic(blocks: Sequence[int]) -> tuple[Dim, ...]:
    """Return the symbolic sizes of a pattern."""
    return tuple(Size.symbol(f"n{b}") if b else 1 for b in blocks)


def patterns(rank: int) -> Iterator[tuple[int, ...]]:
    """Yield all patterns of equal sizes and sizes of 1."""
    if not rank:
        yield ()
        return
    for blocks in patterns(rank - 1):
        for number in range(max(blocks, default=0) + 2):
            yield (*blocks, number)


def signed(axes: Sequence[int], rank: int | None = None) -> list[list[int]]:
    """Return a list of axes with each of them counted from the front or from the back."""
    count = len(axes) if rank is None else rank
    return [list(each) for each in product(*((axis, axis - count) for axis in axes))]


def some_orders(count: int) -> Iterator[list[int]]:
    """Yield all orders of a few axes; of more than 4 the simplest ones, and some at random."""
    if count <= _MOST_ORDERED:
        yield from map(list, permutations(range(count)))
        return
    order, draw = list(range(count)), Random(count)
    yield from (order, order[::-1], [*order[1:], 0], [*order[:-2], *order[:-3:-1]])
    for _ in range(4):
        yield draw.sample(order, count)


def holes_of(term: Any) -> Iterator[Hole]:
    """Yield the holes of a term of a rule."""
    if isinstance(term, Hole):
        yield term
    parts = term.arguments if isinstance(term, Computed) else term if isinstance(term, list) else ()
    for part in parts:  # pyright: ignore[reportUnknownVariableType]
        yield from holes_of(part)


def is_tensor(value: Any) -> bool:
    """Whether a value of an example is a tensor's type."""
    return isinstance(value, Attribute) and hasattr(value, "element_type")


def is_list_of_ints(value: Any) -> bool:
    """Whether a value of an example is a list of axes, sizes or other integers."""
    return isinstance(value, list) and all(isinstance(item, int) for item in cast(list[Any], value))
