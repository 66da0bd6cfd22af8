"""Functions of an attribute that are asked once for each: types and locations are interned."""

from __future__ import annotations

from collections.abc import Callable
from functools import wraps
from typing import TypeVar

from xdsl.ir import Attribute

_T = TypeVar("_T")
MOST_KNOWN = 100_000
"""Of a program there are few; texts that are parsed, again and again, bring more."""


def once_each(function: Callable[[Attribute], _T]) -> Callable[[Attribute], _T]:
    """The function, with a memory of what it said of each attribute, which it holds so long.

    By identity, as hashing a type costs more than most questions about it.
    """
    known: dict[int, tuple[Attribute, _T]] = {}

    @wraps(function)
    def asked(attribute: Attribute) -> _T:
        held = known.get(id(attribute))
        if held is not None and held[0] is attribute:
            return held[1]
        if len(known) >= MOST_KNOWN:
            known.clear()
        found = function(attribute)
        known[id(attribute)] = (attribute, found)
        return found

    return asked
