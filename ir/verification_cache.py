"""A cache of verification results, keyed by an op's content: equal ops are verified once.

Whether an op satisfies its constraints, its verifier and its inferred types is a function of its
class, types, properties and attributes, provided that it has no regions, is not a terminator and
has no symbolic size (the ranges of symbols are attributes of the method). Networks repeat their
blocks, and a program is verified before and after lowering, so that most ops are in the cache. A
class declares that this key suffices by deriving from `Verifies`; ops of other classes are verified
in full each time.
"""

from __future__ import annotations

from collections.abc import Hashable

from xdsl.dialects.builtin import TensorType
from xdsl.ir import Attribute, Operation

from stepwell.ir.compat.xdsl.xdsl_private import operands_of
from stepwell.ir.types import is_static

Key = tuple[Hashable, ...]


class Verifies:
    """A mixin for op classes whose verifier reads only the op and what `verdict_needs` returns."""

    def verdict_needs(self) -> tuple[Hashable, ...]:
        """Return other values that the verifier reads, in hashable form."""
        return ()


_SOUND: dict[Key, tuple[Attribute, ...]] = {}
"""The keys of valid ops, with the attributes whose identities are in the key, to keep these alive.
"""
_CAPACITY = 100_000


def verdict_key(op: Operation) -> Key | None:
    """Return the cache key of an op; None if it must be verified in full."""
    if not isinstance(op, Verifies) or op.regions or op.next_op is None:
        return None
    attributes = _attributes(op)
    return (
        type(op),
        op.verdict_needs(),
        len(operands_of(op)),
        len(op.results),
        len(op.properties),
        *op.properties,
        *op.attributes,
        *map(id, attributes),
    )


def is_sound(key: Key | None) -> bool:
    """Whether an op with this key was verified before without a problem."""
    return key in _SOUND


def remember_sound(op: Operation, key: Key) -> None:
    """Record that an op was verified without a problem."""
    values = (*op.operands, *op.results)
    if all(isinstance(value.type, TensorType) and is_static(value.type) for value in values):
        if len(_SOUND) >= _CAPACITY:
            _SOUND.clear()
        _SOUND[key] = _attributes(op)


def _attributes(op: Operation) -> tuple[Attribute, ...]:
    return (
        *[value.type for value in operands_of(op)],
        *[value.type for value in op.results],
        *op.properties.values(),
        *op.attributes.values(),
    )
