"""Families of ops: the kinds of computation, declared with the op and queried everywhere else.

    movement       each element of a result is an element of an operand, unchanged; its position
                   depends on arguments only. Such an op also belongs to one of these:
      reshape        the elements of one tensor in their order, in another shape
      permutation    the axes of one tensor in another order
      rearrangement  every element of one tensor once, in any order: includes the two above
      repetition     every element of one tensor, once or several times
      part           some elements of one tensor
      join           the elements of several tensors
    lookup         elements of one tensor, unchanged, at indices in another tensor
    padding        elements of one tensor, unchanged, and a constant around them
    elementwise    each element is computed from the corresponding operand elements (broadcast)
    cast           elementwise: the nearest representable number in another type
    comparison     elementwise: a bool
    choice         elementwise: an element of one of two tensors, selected by a bool
    reduction      one element from all elements along some axes
    product        sums of products of elements of two tensors
    normalization  elements along axes scaled by a statistic of them: divided by their deviation,
                   exponentials over their sum, or the logarithm of that
      probabilities  elements along an axis that are not negative and sum to 1, or are all 0
      distribution   elements along an axis that are not negative and sum to 1
    factory        elements that do not depend on elements of operands
    uninitialized  elements are uninitialized memory
    random         elements are random numbers
    write          a tensor with some elements replaced by those of another

Ops are registered by name, like axis maps, so that a query imports nothing. An op whose family
depends on its arguments (dropout is a data movement unless it is training) says so in
`does_as_family`.
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
    "normalization",
    "probabilities",
    "distribution",
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
    "probabilities": "normalization",
    "distribution": "probabilities",
    "uninitialized": "factory",
}
"""The family that contains a family."""

_NOTHING: frozenset[Family] = frozenset()
_OF: dict[str, frozenset[Family]] = {}


def belong(family: Family, *names: str) -> None:
    """Register ops, by name, as members of a family and of the families that contain it."""
    families: set[Family] = {family}
    while family in WIDER:
        family = WIDER[family]
        families.add(family)
    for name in names:
        _OF[name] = _OF.get(name, _NOTHING) | families


def families_of(name: str) -> frozenset[Family]:
    """Return the families of an op by its name."""
    return _OF.get(name, _NOTHING)


def ops_of(family: Family, dialect: str) -> tuple[str, ...]:
    """List a dialect's ops of a family, in the order of declaration."""
    start = f"{dialect}."
    return tuple(name for name, held in _OF.items() if family in held and name.startswith(start))


class HasFamilies:
    """A mixin for op classes: `FAMILY` is the family of a class and its subclasses."""

    FAMILY: ClassVar[Family | None] = None

    def __init_subclass__(cls, **given: object) -> None:
        """Register a subclass that has its own op name as a member of its family."""
        super().__init_subclass__(**given)
        name = cls.__dict__.get("name")
        if isinstance(name, str) and cls.FAMILY is not None:
            belong(cls.FAMILY, name)

    def does_as_family(self, family: Family) -> bool:
        """Whether this op, with its arguments, behaves as a family that its class declares."""
        return True


def is_of(op: object, *families: Family) -> bool:
    """Whether an op belongs to one of these families; a block (the owner of an argument) belongs to
    none.
    """
    held = _OF.get(getattr(op, "name", ""))
    if held is None:
        return False
    for family in families:  # A generator would be slower, and this is called for every op.
        if family in held and (not isinstance(op, HasFamilies) or op.does_as_family(family)):
            return True
    return False


def is_movement(op: object) -> bool:
    """Whether an op only moves elements of its operands."""
    return is_of(op, "movement")


def moves_one(op: object) -> bool:
    """Whether an op only moves elements of its first operand."""
    return is_of(op, "rearrangement", "repetition", "part")


def lays_out(op: object) -> bool:
    """Whether an op returns every element of one tensor, in another layout or several times."""
    return is_of(op, "reshape", "permutation", "repetition")
