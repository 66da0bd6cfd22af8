"""Functions that several rules use, on numbers and axes."""

from __future__ import annotations

from collections.abc import Sequence

from xdsl.ir import Attribute, SSAValue

from stepwell.dialects.quant.types import UniformQuantizedType, storage_element
from stepwell.ir.rewriting.rewrite import Rewriter
from stepwell.ir.types import Dim, dims


def negated(number: float) -> float:
    """Return −number."""
    return -float(number)


def reciprocal(number: float) -> float:
    """Return 1/number."""
    return 1 / number


def product(one: float, other: float) -> float:
    """Return the product of two numbers."""
    return float(one) * float(other)


def itself(rw: Rewriter, value: SSAValue) -> SSAValue:
    """Return a value that replaces another of equal type and provably equal sizes."""
    return value


def storage(quantized: Attribute) -> Attribute:
    """Return the integer element type in which a quantized element type is stored."""
    assert isinstance(quantized, UniformQuantizedType)
    return storage_element(quantized.data)


def sizes_of(value: SSAValue) -> tuple[Dim, ...]:
    """Return the sizes of a tensor."""
    return dims(value.type)


def composed(first: Sequence[Dim], second: Sequence[int]) -> list[Dim]:
    """Return sizes, or an axis order, permuted by another order."""
    return [first[axis] for axis in second]


def from_front(value: SSAValue, at: int) -> int:
    """Return an axis counted from the front; for a scalar, axis 0."""
    return at + max(len(dims(value.type)), 1) if at < 0 else at
