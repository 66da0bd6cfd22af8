"""What rules that share it compute: numbers from numbers, axes from axes."""

from __future__ import annotations

from collections.abc import Sequence

from xdsl.ir import Attribute, SSAValue

from stepwell.dialects.quant.types import UniformQuantizedType, storage_element
from stepwell.ir.rewriting.rewrite import Rewriter
from stepwell.ir.types import Dim, dims


def negated(number: float) -> float:
    """−number."""
    return -float(number)


def reciprocal(number: float) -> float:
    """1/number."""
    return 1 / number


def product(one: float, other: float) -> float:
    """one·other."""
    return float(one) * float(other)


def itself(rw: Rewriter, value: SSAValue) -> SSAValue:
    """A value in place of one that is of its type and provably of its sizes, known or not."""
    return value


def storage(quantized: Attribute) -> Attribute:
    """The element type of the integers that a quantized element type is stored as."""
    assert isinstance(quantized, UniformQuantizedType)
    return storage_element(quantized.data)


def sizes_of(value: SSAValue) -> tuple[Dim, ...]:
    """The sizes of a tensor."""
    return dims(value.type)


def composed(first: Sequence[Dim], second: Sequence[int]) -> list[Dim]:
    """Sizes, or an order of axes, in another order."""
    return [first[axis] for axis in second]


def from_front(value: SSAValue, at: int) -> int:
    """An axis counted from the front; a scalar has the axis 0 too."""
    return at + max(len(dims(value.type)), 1) if at < 0 else at
