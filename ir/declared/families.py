"""Families of ops: what kind of thing an op does, said where it is declared, asked everywhere else.

    movement       each element of a result is an element of an operand, unchanged, at a place that
                   arguments alone decide. It is of one of these as well:
      reshape        the elements of one tensor in their order, under another shape
      permutation    the axes of one tensor in another order
      rearrangement  every element of one tensor once, in any way: the two above too
      repetition     every element of one tensor, once or more often
      part           some elements of one tensor
      join           the elements of several tensors
    lookup         elements of one tensor, unchanged, at places that another tensor names
    padding        elements of one tensor, unchanged, and one number around them
    elementwise    each element is computed of the operands' in its place, which broadcast
    cast           elementwise: the same number in another type, as near as that has it
    comparison     elementwise: a truth value
    choice         elementwise: an element of one of two, by truth values
    reduction      one element of all along some axes
    product        sums of products of elements of two tensors
    softmax        exponentials along an axis over their sum (or the logarithm of that)
    normalization  elements less their mean over their spread
    factory        elements that do not hang on elements of operands
    uninitialized  elements are whatever memory holds
    random         elements are drawn
    write          a tensor with elements of another at some of its places

Ops are registered by name, as axis maps are, so that asking imports nothing. What hangs on an op's
arguments too (a dropout moves, unless it is training) its class says in `does_as_family`.
"""

from __future__ import annotations

from typing import ClassVar, Literal, get_args

Family = Literal[
    "movement",
    "reshape",
    "permutation",
    "rearrangement",
    "repetition",
    "part",
    "join",
    "lookup",
    "padding",
    "elementwise",
    "cast",
    "comparison",
    "choice",
    "reduction",
    "product",
    "softmax",
    "normalization",
    "factory",
    "uninitialized",
    "random",
    "write",
]
FAMILIES: tuple[Family, ...] = get_args(Family)
WIDER: dict[Family, Family] = {
    "reshape": "rearrangement",
    "permutation": "rearrangement",
    "rearrangement": "movement",
    "repetition": "movement",
    "part": "movement",
    "join": "movement",
    "cast": "elementwise",
    "comparison": "elementwise",
    "choice": "elementwise",
    "uninitialized": "factory",
}
"""The family that all ops of a family are of too."""

_NOTHING: frozenset[Family] = frozenset()
_OF: dict[str, frozenset[Family]] = {}


def belong(family: Family, *names: str) -> None:
    """Say that ops, by name, are of a family, and so of the wider ones."""
    families: set[Family] = {family}
    while family in WIDER:
        family = WIDER[family]
        families.add(family)
    for name in names:
        _OF[name] = _OF.get(name, _NOTHING) | families


def families_of(name: str) -> frozenset[Family]:
    """The families of the op of a name."""
    return _OF.get(name, _NOTHING)


def ops_of(family: Family, dialect: str) -> tuple[str, ...]:
    """The names of a dialect's ops of a family, in the order in which they were declared."""
    start = f"{dialect}."
    return tuple(name for name, held in _OF.items() if family in held and name.startswith(start))


class HasFamilies:
    """Mixed into op classes: `FAMILY` is what a class and those made of it are of."""

    FAMILY: ClassVar[Family | None] = None

    def __init_subclass__(cls, **given: object) -> None:
        """Register a class that has a name of its own."""
        super().__init_subclass__(**given)
        name = cls.__dict__.get("name")
        if isinstance(name, str) and cls.FAMILY is not None:
            belong(cls.FAMILY, name)

    def does_as_family(self, family: Family) -> bool:
        """Whether this op does what its family does, with the arguments that it has."""
        return True


def is_of(op: object, *families: Family) -> bool:
    """Whether an op is of one of the families; a block is of none."""
    held = _OF.get(getattr(op, "name", ""))
    if held is None:
        return False
    for family in families:  # No generator: it is asked of every op, many times.
        if family in held and (not isinstance(op, HasFamilies) or op.does_as_family(family)):
            return True
    return False


def is_movement(op: object) -> bool:
    """Whether an op moves elements of its operands and computes nothing."""
    return is_of(op, "movement")


def moves_one(op: object) -> bool:
    """Whether an op moves elements of its first operand alone."""
    return is_of(op, "rearrangement", "repetition", "part")


def lays_out(op: object) -> bool:
    """Whether an op gives every element of one tensor, in another layout or more often."""
    return is_of(op, "reshape", "permutation", "repetition")
