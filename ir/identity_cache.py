"""Memoization of functions of an attribute by identity: types and locations are interned."""

from __future__ import annotations

from collections.abc import Callable
from functools import wraps
from typing import TypeVar

from xdsl.ir import Attribute

_T = TypeVar("_T")
MOST_KNOWN = 100_000
"""The largest size of a cache. A program has few attributes; parsing many texts creates more."""


def once_each(function: Callable[[Attribute], _T]) -> Callable[[Attribute], _T]:
    """Memoize a function by the identity of its argument, because hashing a type costs more than
    most such functions. The cache keeps its arguments alive.
    """
    known: dict[int, tuple[Attribute, _T]] = {}

    @wraps(function)
    def memoized(attribute: Attribute) -> _T:
        held = known.get(id(attribute))
        if held is not None and held[0] is attribute:
            return held[1]
        if len(known) >= MOST_KNOWN:
            known.clear()
        found = function(attribute)
        known[id(attribute)] = (attribute, found)
        return found

    return memoized
