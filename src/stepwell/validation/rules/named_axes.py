"""Count the axes that the arguments of a rule name, if all values of the arguments are tried."""

from collections.abc import Iterator
from typing import Any, Protocol

from stepwell.translate.rules import predicates
from stepwell.translate.rules.notation import Hole, Rule
from stepwell.translate.rules.rewrite import RuleRewrite

AXES = frozenset("dim dim0 dim1 axis axis0 axis1 start_dim end_dim".split())
ORDERS = frozenset("dims perm perms".split())
_REPEATED: dict[Any, list[int]] = {predicates.are_zeros: [0], predicates.are_ones: [1]}
"""Conditions by which a list is one number, repeated."""


class Arguments(Protocol):
    """What `instances.Instances` says about the arguments of a form."""

    rule: Rule
    example: dict[str, Any]
    repeated: dict[str, list[int]]

    def arguments(self) -> dict[str, Any]:
        """Return the arguments whose values a rule does not state."""
        ...


def repeated(rewrite: type[RuleRewrite], rule: Rule) -> Iterator[tuple[str, list[int]]]:
    """Yield the holes that conditions keep to one number, repeated, and that number."""
    known = {**vars(predicates), **rewrite.namespace}
    for clause in rule.where:
        number = None if clause.negated else _REPEATED.get(known.get(clause.predicate))
        if number is not None:
            yield from ((term.name, number) for term in clause.arguments if isinstance(term, Hole))


def named_axes(form: Arguments) -> int | None:
    """Return how many axes arguments name (orders none: an axis is left out of both); None if not
    all values of one are tried: numbers of elements, as the start of a slice.
    """
    count = 0
    for name, (parameter, argument, _, in_list) in form.arguments().items():
        if parameter.name in ORDERS or parameter.name in ("source", "destination"):
            continue
        if name in form.repeated:
            continue
        if argument is None:
            if not isinstance(form.example.get(name), bool | float | str | None):
                return None
            continue
        base = argument.type.base
        if base in ("Scalar", "float", "bool", "ScalarType", "MemoryFormat", "Layout", "Device"):
            continue
        if argument.name == "padding_idx":
            continue  # It acts on gradients alone.
        is_axis = argument.name in AXES and not argument.type.is_list
        is_in_list = in_list and argument.name in AXES | ORDERS
        if is_axis or is_in_list or parameter.name in ("dim", "dims"):
            count += 1
        elif parameter.name != "normalized_shape":
            return None
    return count


def lists_axes(form: Arguments) -> bool:
    """Whether an argument is a list of axes that ops reduce, or leave out."""
    kinds = form.arguments().values()
    return any(p.name in ("dim", "dims") and a and a.type.is_list for p, a, *_ in kinds)
