"""What the text of a rule calls, and which numbers it states."""

from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import replace
from itertools import permutations
from types import FunctionType
from typing import Any

from stepwell.ir.declared.families import families_of
from stepwell.translate.rules import functions, predicates
from stepwell.translate.rules.examples import lists_of
from stepwell.translate.rules.notation import WEIGHT, Computed, Hole, Line, Rule, Term, TypePattern
from stepwell.translate.rules.rewrite import RuleRewrite
from stepwell.validation.rules.hashes import names_in
from stepwell.validation.rules.named_axes import AXES
from stepwell.validation.rules.patterns import holes_of, is_list_of_ints
from stepwell.validation.rules.reviewed import reached

_MOST_USES = 2
"""The uses of an order of axes in a replacement from which a law of its powers may decide."""


def named_callables(
    rewrite: type[RuleRewrite], forms: Iterable[Rule] | None = None
) -> dict[str, Any]:
    """Return what the forms of a rule call, by name."""
    texts = {text for form in forms or rewrite.rule.forms for text in calls(form)}
    known = {**vars(functions), **vars(predicates), **rewrite.namespace}
    return {text: known[text] for text in texts if callable(known.get(text))}


def reads_producers(rewrite: type[RuleRewrite], forms: tuple[Rule, ...]) -> bool:
    """Whether functions of some forms may look at the ops that make or read a value."""
    held = reached(named_callables(rewrite, forms).values())
    return any(
        not isinstance(value, FunctionType) or {"owner", "uses"} & {*names_in(value.__code__)}
        for value in held
    )


def computed_terms(form: Rule) -> Iterator[Computed]:
    """Yield the computed terms of a form: in lines after, and in conditions."""
    waiting: list[Any] = [term for line in form.after for _, term in line.arguments]
    waiting += [t for line in form.after for t in (*line.operand_types, *line.result_types)]
    for clause in form.where:
        waiting += clause.arguments
        yield Computed(clause.predicate, tuple(clause.arguments))
    if isinstance(form.bound_by, Computed):
        waiting.append(form.bound_by)
    while waiting:
        term = waiting.pop()
        if isinstance(term, list | tuple):
            waiting += term
        elif isinstance(term, TypePattern):
            waiting += [*term.sizes, term.rest, term.element]
        elif isinstance(term, Computed):
            yield term
            waiting += term.arguments


def is_pointwise(rule: Rule) -> bool:
    """Whether every op of a rule is elementwise."""
    for line in (*rule.before, *rule.after):
        if line.forwards is not None:
            continue
        families = families_of(line.op)
        if "elementwise" not in families or line.family or line.recipe:
            return False
    return not lists_of(rule)


def calls(form: Rule) -> Iterator[str]:
    """Yield the names of functions and recipes in lines after, and of conditions."""
    for term in computed_terms(form):
        yield term.function
    for line in form.after:
        yield line.op
        yield line.recipe


def literals(form: Rule) -> Iterator[int]:
    """Yield the integers in a form's computed terms and in its lists of axes."""
    terms: list[Any] = [list(term.arguments) for term in computed_terms(form)]
    for line in (*form.before, *form.after):
        terms += [term for name, term in line.arguments if isinstance(term, list) or name in AXES]
    while terms:
        term = terms.pop()
        if isinstance(term, list | tuple):
            terms += term
        elif isinstance(term, int) and not isinstance(term, bool):
            yield term


def repeats(form: Rule) -> bool:
    """Whether lines after may compose an order with itself: laws such as p¹² = 1 hold at low ranks
    only.
    """
    counted = Counter[Hole]()
    others = {hole for line in form.before for hole in _of_no_order(line)}
    for line in form.after:
        for _, term in line.arguments:
            within = Counter(hole for hole in holes_of(term) if hole not in others)
            if isinstance(term, Computed) and any(count > 1 for count in within.values()):
                return True
            counted += within
    return any(count > _MOST_USES for count in counted.values())


def _of_no_order(line: Line) -> Iterator[Hole]:
    """Yield the holes of a line of the pattern that are no orders of axes."""
    if line.op == WEIGHT or ("permutation" not in families_of(line.op) and not line.is_again):
        for _, term in line.arguments:
            yield from holes_of(term)


def in_all_orders(form: Rule) -> Iterator[Rule]:
    """Yield a form with each order in which the axes of a program's input or output may lie in
    memory, up to rank 4; the form itself, if none is stated.
    """
    if not form.lies:
        yield form
        return
    (stated,) = {len(order) for order in form.lies.values() if isinstance(order, list)}
    for rank in range(1, 5):
        shape = list(range(2, 2 + rank))
        held = {
            n: shape for n, v in form.example.items() if is_list_of_ints(v) and len(v) == stated
        }
        for order in permutations(range(rank)):
            lies: dict[str, Term] = {name: [*order] for name in form.lies}
            yield replace(form, lies=lies, example=form.example | held)
