"""Tables and patterns from which instances are enumerated: types, sizes, orders of axes."""

from collections.abc import Iterator, Sequence
from functools import reduce
from itertools import chain, permutations, product
from math import prod
from random import Random
from typing import Any, cast

from xdsl.ir import Attribute

from stepwell.ir.dtypes import bf16, f16, f32, f64, i1, i8, i16, i32, i64, ui8
from stepwell.ir.sizes.size import Dim, Size, settled
from stepwell.ir.types import IntType
from stepwell.translate.decompositions.values import broadcast
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


_END = 2**63 - 1
_ALONG_ONE: dict[str, list[Any]] = {
    "start": [-4, -1, 0, 1, 2, 3, None],
    "end": [-4, -1, 0, 1, 2, 3, None, _END],
    "step": [1, 2],
    "index": [*range(-4, 4)],
}
"""All positions along one axis of 3 elements or fewer."""
_ALONG_MORE: dict[str, list[Any]] = {"start": [0, 1], "end": [2, _END], "step": [1]}
_AROUND: dict[int, list[tuple[int, ...]]] = {
    1: list(product(range(-1, 3), repeat=2)),
    2: [(0, 0), (1, 0), (0, 1), (1, -1), (-1, 1)],
}
"""Amounts of padding before and after one axis, and before and after each of two."""


def positions(name: str, rank: int, is_list: bool) -> list[Any]:
    """Return the positions to try: all along one axis, and a few along one or each of several."""
    if name in ("pad", "padding"):
        counts = range(rank + 1)
        axes = (product(_AROUND.get(n, [(n - 1, n - 1)]), repeat=n) for n in counts)
        return [list(chain(*each)) for held in axes for each in held]
    if is_list:
        few = range(4) if rank == 1 else range(1, 3) if "size" in name else range(2)
        return [list(each) for each in product(few, repeat=rank)]
    return (_ALONG_ONE if rank == 1 else _ALONG_MORE).get(name, [0, -1])


def with_units(shape: Sequence[Dim]) -> Iterator[tuple[Dim, ...]]:
    """Yield a shape with each choice of its axes of size 1 in place of their sizes."""
    yield from product(*((size, 1) if size != 1 else (1,) for size in shape))


def repetitions(shapes: Sequence[tuple[Dim, ...]]) -> Iterator[tuple[Dim, ...]]:
    """Yield the sizes to which ops repeat a tensor of one of some shapes, for a result that
    broadcasts with the others: with each axis of size 1, or repeated two or three times; with fewer
    axes, or one more.
    """
    shape = joined(shapes)
    for part in ((2, *shape), (1, *shape), *(shape[at:] for at in range(len(shape) + 1))):
        for sizes in product(*((size, 1) if size != 1 else (1, 2, 3) for size in part)):
            if any(joined((each, sizes)) == sizes for each in shapes):
                yield sizes


def views_of(shape: Sequence[Dim]) -> Iterator[tuple[Dim, ...]]:
    """Yield shapes of as many elements, of one axis more at most: all of numbers; of symbolic sizes
    those with axes in another order, with two neighbors merged, and with an axis of size 1.
    """
    if not any(isinstance(size, Size) for size in shape):
        total = prod(size for size in shape if isinstance(size, int))
        divisors = [number for number in range(1, total + 1) if total % number == 0]
        for count in range(len(shape) + 2):
            yield from (held for held in product(divisors, repeat=count) if prod(held) == total)
        return
    for held in permutations(size for size in shape if size != 1):
        merged = [
            (*held[:at], settled(Size.of(held[at]) * Size.of(held[at + 1])), *held[at + 2 :])
            for at in range(len(held) - 1)
        ]
        for sizes in (held, *merged):
            yield sizes
            yield from ((*sizes[:at], 1, *sizes[at:]) for at in range(len(sizes) + 1))


def as_arguments(sizes: Sequence[Dim]) -> list[int | IntType]:
    """Return sizes as an op's arguments: a symbolic one is a value, of this type."""
    return [size if isinstance(size, int) else IntType(str(size)) for size in sizes]


def broadcasting(count: int, most: int) -> Iterator[tuple[tuple[Dim, ...], ...]]:
    """Yield the shapes of some tensors that broadcast to one shape, of each rank up to one."""
    for rank in range(most + 1):
        for blocks in patterns(rank):
            shape = symbolic(blocks)
            parts = [part for at in range(rank + 1) for part in with_units(shape[at:])]
            yield from (p for p in product(parts, repeat=count) if joined(p) == shape)


def joined(shapes: Sequence[tuple[Dim, ...]]) -> tuple[Dim, ...]:
    """Return the shape to which some shapes broadcast."""
    return reduce(broadcast, shapes, ())


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
