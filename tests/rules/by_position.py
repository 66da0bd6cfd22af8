"""Rules about positions along axes, sizes of views and repetitions, wrong ones and right twins."""

from collections.abc import Sequence
from typing import Any

from xdsl.ir import SSAValue

from stepwell.ir.types import dims

from .doubtful import Doubtful


def sums(first: Sequence[int], second: Sequence[int]) -> list[int]:
    """The begin of a part of a part."""
    return [a + b for a, b in zip(first, second, strict=True)]


def greater(first: Sequence[int], second: Sequence[int]) -> list[int]:
    """The greater begin."""
    return list(map(max, first, second))


def short_sums(first: Sequence[int], second: Sequence[int]) -> list[int]:
    """The sum, wrong if the second part begins behind the first element."""
    return [a + min(b, 1) for a, b in zip(first, second, strict=True)]


def sums_up_to_five(first: Sequence[int], second: Sequence[int]) -> list[int]:
    """The sum, wrong above five."""
    return [min(a + b, 5) for a, b in zip(first, second, strict=True)]


def sums_up_to_a_hundred(first: Sequence[int], second: Sequence[int]) -> list[int]:
    """The sum, wrong above a hundred."""
    return [min(a + b, 100) for a, b in zip(first, second, strict=True)]


def behind(order: Sequence[int], at: int) -> int:
    """The operand's axis of a result's axis."""
    return order[at] % len(order)


def stays_somewhere(order: Sequence[int]) -> bool:
    """Whether an axis stays in its place."""
    return any(axis % len(order) == at for at, axis in enumerate(order))


def cancels(amounts: Sequence[int]) -> bool:
    """Whether each axis gets as many elements as it loses, and all together none in front."""
    pairs = list(zip(amounts[::2], amounts[1::2], strict=True))
    return all(a == -b for a, b in pairs) and not sum(a for a, _ in pairs)


def is_far(end: int | None) -> bool:
    """Whether a slice ends behind a hundred elements."""
    return end is not None and end >= 100


def has_new_sizes(value: SSAValue, view: SSAValue) -> bool:
    """Whether the sizes of a view are numbers that a tensor has not, or 1."""
    shape = dims(value.type)
    return all(isinstance(s, int) and (s == 1 or s not in shape) for s in dims(view.type))


def changes(order: Sequence[int]) -> bool:
    """Whether an order is not that of the axes."""
    return [axis % len(order) for axis in order] != list(range(len(order)))


def squared(number: int | None) -> int | None:
    """The number times itself: the same for 0 and 1."""
    return None if number is None else number * number


def twice(value: SSAValue, spread: SSAValue) -> list[int]:
    """The sizes of a tensor that is repeated twice where it is repeated."""
    pairs = zip(dims(value.type), dims(spread.type), strict=True)
    return [-True if a == b else True + True for a, b in pairs]


def have_one_rank(one: SSAValue, other: SSAValue) -> bool:
    """Whether two tensors have as many axes."""
    return len(dims(one.type)) == len(dims(other.type))


def is_cube(value: SSAValue) -> bool:
    """Whether all sizes are equal."""
    return len(set(dims(value.type))) <= 1


def are_disjoint(first: Sequence[int], second: Sequence[int]) -> bool:
    """Whether no axis is moved by both of two orders."""
    pairs = zip(first, second, strict=True)
    return all(at in (a, b) for at, (a, b) in enumerate(pairs))


def sizes_of(value: SSAValue) -> list[Any]:
    """A shape."""
    return list(dims(value.type))


_PARTS = (
    "%a = xnnpack.static_slice(%x, offsets=$f, sizes=$s); "
    "%y = xnnpack.static_slice(%a, offsets=$g, sizes=$t)"
)
_OF_PARTS = (
    "where are_stated($t); where are_stated($s); for $f = [1, 0], $s = [3, 4], $g = [1, 2], "
)
_OF_PARTS += '$t = [2, 1], %x = "tensor<5x4xf32>"'
_CUT = "%p = aten.permute.default(%x, $o); %y = aten.slice.Tensor(%p, $d, $b, $e)"
_OF_CUT = "for $o = [1, 0], $d = 0, $b = 0, $e = 1, $x = [2, 3]"
_VIEWED = "%v = aten.view.default(%x, …); %y = aten.permute.default(%v, $p)"
_OF_VIEW = 'for $size = [1, 6], $p = [1, 0], %x = "tensor<2x3xf32>"'


def are_stated(sizes: Sequence[int]) -> bool:
    """Whether no size is that to the end."""
    return all(size != 0 for size in sizes)


def _merged(function: str, most: str = "") -> Doubtful:
    after = f"%y = xnnpack.static_slice(%x, offsets={function}($f, $g), sizes=$t)"
    return Doubtful("right" if most else "positions", _PARTS, after, _OF_PARTS, most)


WRONG_AT_ONCE: list[Doubtful] = [
    Doubtful("an absent bound", "%y = aten.clip.Tensor(%x, %t) : (tensor<$*S x $T>, "
             "tensor<$*S x $T>) -> tensor<$*S x $T>", "%y = aten.clip.Tensor(%x, max=%t)",
             "for $S = [2, 3], $T = f32"),
    Doubtful("signs of bytes", "; ".join((
                 "%a = aten._to_copy.default(%x, dtype=ui8) : "
                 "(tensor<$*S x i8>) -> tensor<$*S x ui8>",
                 "%b = aten._to_copy.default(%z, dtype=ui8) : "
                 "(tensor<$*S x i8>) -> tensor<$*S x ui8>",
                 "%y = aten.less.Tensor(%a, %b) : "
                 "(tensor<$*S x ui8>, tensor<$*S x ui8>) -> tensor<$*S x i1>")),
             "%y = aten.less.Tensor(%x, %z)", "for $S = [2, 3]"),
    Doubtful("an axis", "%y = aten.flip.default(%x, $d)", "%y = %x",
             "where are_zeros($d); for $d = [0], $x = [2, 3]"),
]  # fmt: skip
"""Wrong ones whose proof takes a second."""
WRONG: list[Doubtful] = [
    *map(_merged, ("greater", "short_sums", "sums_up_to_five", "sums_up_to_a_hundred")),
    Doubtful("positions", _CUT,
             "%s = aten.slice.Tensor(%x, $d, $b, $e); %y = aten.permute.default(%s, $o)", _OF_CUT),
    Doubtful("ranks above 2", _VIEWED, "%y = aten.view.default(%x, sizes_of(%y))",
             f"where stays_somewhere($p); {_OF_VIEW.replace('[1, 0]', '[0, 1]')}"),
    Doubtful("size 1", "%e = aten.expand.default(%z, …); %y = aten.add.Tensor(%x, %e)",
             "%y = aten.add.Tensor(%x, %z)",
             "for %x = \"tensor<2x3xf32>\", %z = \"tensor<1x3xf32>\", $size = [2, 3]"),
    Doubtful("positions", "%y = aten.constant_pad_nd.default(%x, $p, 0)", "%y = %x",
             "where cancels($p); for $p = [0, 0], $x = [2, 3]"),
    Doubtful("sizes above 100", "%y = aten.slice.Tensor(%x, $d, 0, $e)", "%y = %x",
             "where is_far($e); for $d = 0, $e = 9223372036854775807, $x = [2, 3]"),
    Doubtful("sizes", "%v = aten.view.default(%x, …); %y = aten.permute.default(%v, $p)",
             "%y = aten.view.default(%x, sizes_of(%y))",
             f"where has_new_sizes(%x, %v); {_OF_VIEW}"),
    Doubtful("positions", _CUT, "%s = aten.slice.Tensor(%x, behind($o, $d), squared($b), $e); "
             "%y = aten.permute.default(%s, $o)", f"where changes($o); {_OF_CUT}"),
    Doubtful("ranks above 3", "%a = xnnpack.static_transpose(%x, perm=$p); "
             "%b = xnnpack.static_transpose(%a, perm=$q); %y = xnnpack.add(%x, %b)",
             "%c = xnnpack.static_transpose(%x, perm=$p); "
             "%d = xnnpack.static_transpose(%x, perm=$q); %y = xnnpack.add(%c, %d)",
             "where is_cube(%x); where are_disjoint($p, $q); "
             "for $p = [1, 0], $q = [0, 1], %x = \"tensor<2x2xf32>\""),
    Doubtful("positions", "%p = aten.permute.default(%x, $o); "
             "%y = aten.slice.Tensor(%p, $d, $b, $e, $s)",
             "%s = aten.slice.Tensor(%x, behind($o, $d), $b, $e); "
             "%y = aten.permute.default(%s, $o)",
             "where changes($o); for $o = [1, 0], $d = 0, $b = 0, $e = 9223372036854775807, "
             "$s = 1, $x = [2, 3]"),
    Doubtful("repetitions", "%y = aten.expand.default(%z, …)",
             "%y = aten.expand.default(%z, twice(%z, %y))",
             "where have_one_rank(%z, %y); for $size = [2, 2], $z = [1, 2]"),
]  # fmt: skip
RIGHT: list[Doubtful] = [_merged("sums", "bits")]
POSITION_NAMES: dict[str, Any] = {n: held for n, held in globals().items() if callable(held)}
