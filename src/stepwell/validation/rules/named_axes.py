"""Count the axes that the arguments of a rule name, if all values of the arguments are tried."""

from collections.abc import Iterator
from typing import Any, Protocol

from stepwell.ir.declared.families import families_of
from stepwell.translate.rules import predicates
from stepwell.translate.rules.notation import Hole, Rule
from stepwell.translate.rules.rewrite import RuleRewrite

AXES = frozenset("dim dim0 dim1 axis axis0 axis1 start_dim end_dim".split())
ORDERS = frozenset("dims perm perms".split())
POSITIONS = frozenset(
    "start end step index pad padding offsets sizes pre_paddings post_paddings".split()
)
"""Arguments that are positions along axes, or numbers of elements between them."""
_BY_AXIS = {"tosa.slice": ("start", "size")}
"""Operands that are lists of positions, as constants."""
_EXPANDED = frozenset(("aten.expand.default", "aten.expand_copy.default"))
"""Ops whose sizes are those of an operand's axes, or what axes of size 1 become."""
_REPEATED: dict[Any, list[int]] = {predicates.are_zeros: [0], predicates.are_ones: [1]}
"""Conditions by which a list is one number, repeated."""


class Arguments(Protocol):
    """What `instances.Instances` says about the arguments of a form."""

    rule: Rule
    example: dict[str, Any]
    repeated: dict[str, list[int]]
    positions: frozenset[str]

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
    """Return how many axes arguments name (orders none: an axis is left out of both; positions
    along axes none, and the sizes of views); None if not all values of one are tried.
    """
    count = 0
    states_sizes = has_views(form.rule) or {line.op for line in form.rule.before} & _EXPANDED
    for name, (parameter, argument, _, in_list) in form.arguments().items():
        if parameter.name in ORDERS or parameter.name in ("source", "destination"):
            continue
        if name in form.repeated or name in form.positions:
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
        if argument.name == "implicit" or (argument.name == "size" and states_sizes):
            continue
        is_axis = argument.name in AXES and not argument.type.is_list
        is_in_list = in_list and argument.name in AXES | ORDERS
        if is_axis or is_in_list or parameter.name in ("dim", "dims"):
            count += 1
        elif parameter.name != "normalized_shape":
            return None
    return count


def has_views(rule: Rule) -> bool:
    """Whether an op of the pattern states the shape in which it keeps the order of elements."""
    return any("reshape" in families_of(line.op) for line in rule.before if not line.is_again)


def holds_positions(op: str, name: str) -> bool:
    """Whether an operand or argument of an op is a position, or a list of positions."""
    return name in POSITIONS or name in _BY_AXIS.get(op, ())


def takes_orders(form: Arguments) -> bool:
    """Whether an argument is an order of axes, or two lists of axes that say how they move."""
    known = {*ORDERS, "dim", "source", "destination", "order"}
    return any(
        kind[0].name in known and isinstance(form.example.get(name), list)
        for name, kind in form.arguments().items()
    )


def lists_axes(form: Arguments) -> bool:
    """Whether an argument is a list of axes that ops reduce, or leave out."""
    if any(isinstance(form.example.get(name), list) for name in form.positions):
        return True
    kinds = form.arguments().values()
    return any(p.name in ("dim", "dims") and a and a.type.is_list for p, a, *_ in kinds)
