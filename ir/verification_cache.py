"""Verdicts that hold for twins: an op that verified once verifies wherever it stands again.

Whether an op keeps its constraints, its own rule and its inferred types is a function of its
class, types, properties and attributes, provided that it holds no region, ends no block and has no
symbolic size (what symbols mean is written on the method). Networks repeat their blocks, and a
program is verified before and after it is lowered, so most verdicts are known by then. Classes say
whether that is all of it: an op of a class without `Verifies` is checked in full each time.
"""

from __future__ import annotations

from collections.abc import Hashable

from xdsl.dialects.builtin import TensorType
from xdsl.ir import Attribute, Operation

from stepwell.ir.compat.xdsl.xdsl_private import operands_of
from stepwell.ir.types import is_static

Key = tuple[Hashable, ...]


class Verifies:
    """Mixed into op classes whose verifier reads nothing but the op, and what `verdict_needs`."""

    def verdict_needs(self) -> tuple[Hashable, ...]:
        """What else the verifier looks at, in a form that can be compared."""
        return ()


_SOUND: dict[Key, tuple[Attribute, ...]] = {}
"""Keys of sound ops, with the attributes whose identities stand in the key, held so."""
_CAPACITY = 100_000


def verdict_key(op: Operation) -> Key | None:
    """What names the verdict on an op; None if it must be looked at."""
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
    """Whether an op with this key was found sound before."""
    return key in _SOUND


def remember_sound(op: Operation, key: Key) -> None:
    """Every rule was tried on the op and none is broken."""
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
