"""Rules that are right at every rank up to 3 or 4, and wrong at some rank above: by a function that
counts axes, by an axis that a literal names, or by a law of permutations of few elements.
"""

from collections.abc import Sequence
from typing import Any

from xdsl.ir import SSAValue

from stepwell.ir.types import dims

from .doubtful import Doubtful

_MOST = 4


def axis(number: int, rank: int) -> int:
    """An axis counted from the front."""
    return number + rank if number < 0 else number


def from_front_all(order: Sequence[int]) -> list[int]:
    """The order, with axes counted from the front."""
    return [axis(at, len(order)) for at in order]


def turned_if_long(order: Sequence[int]) -> list[int]:
    """The order, backwards if it has more than four axes."""
    held = [axis(at, len(order)) for at in order]
    return held[::-1] if len(order) > 4 else held


def turned_if_above_a_limit(order: Sequence[int]) -> list[int]:
    """The same by a constant of the module."""
    held = [axis(at, len(order)) for at in order]
    return held[::-1] if len(order) > _MOST else held


def exchanged_behind(order: Sequence[int]) -> list[int]:
    """The order with its fifth and sixth axes exchanged."""
    held = [axis(at, len(order)) for at in order]
    return [*held[:4], *held[4:][::-1]]


def has_the_axis(order: Sequence[int]) -> list[int]:
    """The order, backwards if there is an axis 4."""
    held = [axis(at, len(order)) for at in order]
    return held[::-1] if 4 in held else held


def are_few(order: Sequence[int]) -> bool:
    """Whether there are fewer than six axes, or the order is the identity."""
    return len(order) < 6 or list(order) == list(range(len(order)))


def are_inverse_or_many(first: Sequence[int], second: Sequence[int]) -> bool:
    """Whether two orders are inverse, or of more than four axes."""
    rank = len(first)
    held = [axis(first[axis(at, rank)], rank) for at in second]
    return held == list(range(rank)) or rank > 4


def composed(first: Sequence[int], second: Sequence[int]) -> list[int]:
    """One order after another."""
    rank = len(first)
    return [axis(first[axis(at, rank)], rank) for at in second]


def thirteenth_power(order: Sequence[int]) -> list[int]:
    """The order composed with itself thirteen times, which is the order of up to four axes."""
    held = [axis(at, len(order)) for at in order]
    made = held
    for _ in "abcdefghijkl":
        made = [held[at] for at in made]
    return made


def last_of_halves(value: SSAValue) -> int:
    """The last axis of ranks up to 4, by the half of the rank."""
    rank = len(dims(value.type))
    return rank - 1 if rank // 2 // 2 < 2 and rank != 6 else 0


def last_or_fifth(value: SSAValue, at: int) -> int:
    """An axis; the first one in place of the fifth."""
    rank = len(dims(value.type))
    return at if axis(at, rank) != 4 else 0


def twice_if_deep(value: SSAValue, number: float) -> float:
    """A number, doubled for tensors of more than five axes."""
    return number * 2 if len(dims(value.type)) > 5 else number


def is_small(value: SSAValue) -> bool:
    """Whether a tensor has at most five axes."""
    return not dims(value.type)[5:]


_PERMUTE = "%y = aten.permute.default(%x, $p)"
_TWO = "%p = aten.permute.default(%x, $p); %y = aten.permute.default(%p, $q)"
_AGAIN = "composed($p, " * 12 + "$p" + ")" * 12
BY_RANK: list[Doubtful] = [
    *(
        Doubtful("ranks above 4", _PERMUTE, f"%y = aten.permute.default(%x, {name}($p))",
                 "for $p = [1, 2, 0], $x = [2, 3, 4]")
        for name in ("turned_if_long", "turned_if_above_a_limit", "exchanged_behind",
                     "has_the_axis", "thirteenth_power")
    ),
    Doubtful("ranks above 4", _PERMUTE, f"%y = aten.permute.default(%x, {_AGAIN})",
             "for $p = [1, 2, 0], $x = [2, 3, 4]"),
    Doubtful("ranks above 4", _TWO, "%y = %x",
             "where are_inverse_or_many($p, $q); "
             "for $p = [1, 2, 0], $q = [2, 0, 1], $x = [2, 3, 4]"),
    Doubtful("ranks above 4", "%y = aten._softmax.default(%x, $d, false)",
             "%y = aten._softmax.default(%x, last_or_fifth(%x, $d), false)", "for $d = -1"),
    Doubtful("ranks above 4", "%y = aten._softmax.default(%x, -1, false)",
             "%y = aten._softmax.default(%x, last_of_halves(%x), false)"),
    Doubtful("ranks above 4", "%y = aten.mul.Scalar(%x, $c)",
             "%y = aten.mul.Scalar(%x, twice_if_deep(%x, $c))", "for $c = 0.5"),
]  # fmt: skip
"""Wrong at ranks that are not enumerated: they may be proved up to a rank, never for any."""
LIMITED: list[Doubtful] = [
    Doubtful("right", _PERMUTE, "%y = aten.permute.default(%x, from_front_all($p))",
             "where are_few($p); for $p = [1, 2, 0], $x = [2, 3, 4]", "bits"),
    Doubtful("right", "%y = aten.mul.Scalar(%x, $c)", "%y = aten.mul.Scalar(%x, $c)",
             "where is_small(%x); for $c = 0.5", "bits"),
]  # fmt: skip
"""Right, with a condition on the number of axes that is not followed."""
ANY: list[Doubtful] = [
    Doubtful("right", _PERMUTE, "%y = aten.permute.default(%x, from_front_all($p))",
             "for $p = [1, 2, 0], $x = [2, 3, 4]", "bits"),
    Doubtful("right", _TWO, "%y = aten.permute.default(%x, composed($p, $q))",
             "for $p = [1, 2, 0], $q = [0, 2, 1], $x = [2, 3, 4]", "bits"),
    Doubtful("right", "%y = aten._softmax.default(%x, $d, false)",
             "%y = aten.softmax.int(%x, from_front(%x, $d))", "for $d = -1", "bits"),
    Doubtful("right", "%v = aten.view.default(%x, $s); %y = aten.relu.default(%v)",
             "%r = aten.relu.default(%x); %y = aten.view.default(%r, $s)",
             "for $s = [6], %x = \"tensor<2x3xf32>\"", "bits"),
]  # fmt: skip
NAMES: dict[str, Any] = {name: held for name, held in globals().items() if callable(held)}
