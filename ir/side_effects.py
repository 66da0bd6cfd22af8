"""Queries of side effects: whether an op is dead, pure or empty. They are fast because every op is
queried many times.
"""

from __future__ import annotations

from functools import cache
from typing import Any

from xdsl.dialects.builtin import TensorType
from xdsl.ir import Operation
from xdsl.traits import Pure

from stepwell.ir.compat.xdsl.xdsl_private import operands_of
from stepwell.ir.types import dims


def is_dead(op: Operation) -> bool:
    """Whether an op is pure and none of its results is used."""
    results = op.results
    for result in results:  # A generator would cost more than the loop.
        if result.first_use is not None:
            return False
    return bool(results) and _is_pure_class(type(op))


def is_pure(op: Operation) -> bool:
    """Whether an op without uses may be removed."""
    return _is_pure_class(type(op))


def is_empty(op: Operation) -> bool:
    """Whether an op has an operand or a result without elements."""
    for value in (*operands_of(op), *op.results):
        type_ = value.type
        if isinstance(type_, TensorType) and 0 in dims(type_):
            return True
    return False


@cache
def _is_pure_class(cls: type[Operation]) -> bool:
    return cls.has_trait(Pure)


@cache
def is_one_of(cls: type[Any], anchors: tuple[type[Any], ...]) -> bool:
    """Memoized `issubclass`, which is slow for abstract classes."""
    return issubclass(cls, anchors)
