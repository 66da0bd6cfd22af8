"""Checks the names in a rule when its text is read.

Names refer to ops and their arguments, values, holes, predicates, functions, families, recipes and
deviations. Nothing is compiled here.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, cast

from stepwell.ir.declared.families import FAMILIES
from stepwell.ir.diagnostics import StepwellError
from stepwell.ir.weights import is_recipe
from stepwell.translate.rules.compiling import (
    Namespace,
    classes,
    element_named,
    named_arguments,
    operator,
)
from stepwell.translate.rules.notation import (
    WEIGHT,
    Computed,
    Hole,
    Line,
    Rule,
    Term,
    TypePattern,
    ValueName,
)
from stepwell.translate.rules.operators import OperatorReader, operator_of


def check(rule: Rule, namespace: Namespace) -> None:
    """Check the names in one form of a rule (one expansion of its `for each`).

    Raises:
        StepwellError: the rule uses an undefined name.
    """
    _Check(rule, namespace).run()


class _Check:
    def __init__(self, rule: Rule, namespace: Namespace) -> None:
        self.rule, self.namespace = rule, namespace
        self.known: set[str] = set()

    def run(self) -> None:
        self.known |= {f"${option.name}" for option in self.rule.options}
        for line in self.rule.before:
            self.before(line)
        self.reached()
        for option in self.rule.options:
            if option.default not in self.namespace:
                raise self.error(f"there is no default {option.default!r}")
        for clause in self.rule.where:
            self.call(clause.predicate, clause.arguments, "predicate")
            if clause.binds:
                self.known.add(f"${clause.binds}")
        for clause in self.rule.proven:
            self.call(clause.predicate, clause.arguments, "predicate")
        if self.rule.bound_by is not None:
            self.is_known(self.rule.bound_by)
        if self.rule.loses and self.rule.loses not in self.namespace:
            raise self.error(f"there is no deviation {self.rule.loses!r}")
        for line in self.rule.after:
            self.after(line)
            self.again(line)
            self.known |= {f"%{name}" for name in line.results}

    def reached(self) -> None:
        """Check that the pattern's last line depends on every other line, directly or
        indirectly.
        """
        makers = {name: line for line in self.rule.before for name in line.results}
        led, lines = set[str](), [self.rule.root]
        while lines:
            terms = [term for _, term in lines.pop().arguments]
            while terms:
                term = terms.pop()
                if isinstance(term, list):
                    terms += term
                elif isinstance(term, ValueName) and term.name in makers and term.name not in led:
                    led |= {*makers[term.name].results}
                    lines.append(makers[term.name])
        if lost := [n for n in makers if n not in led and n not in self.rule.root.results]:
            raise self.error(f"the last line does not depend on %{lost[0]}")

    def before(self, line: Line) -> None:
        """Check the names in a line of the pattern, and the facts stated about them."""
        if line.forwards is not None or line.recipe:
            raise self.error("a line before names an op")
        if line is self.rule.root or line.family not in FAMILIES:
            classes(line, self.rule, self.namespace)
        if line.is_again:
            self.fields(line)
        elif line.op != WEIGHT:
            self.complete(line, operator(line, self.rule))
        self.known |= {f"%{name}" for name in line.results}
        terms = list(self.terms(line))
        while terms:
            term = terms.pop()
            if isinstance(term, ValueName | Hole):
                self.known.add(_spelled(term))
            elif isinstance(term, list):
                terms += term

    def after(self, line: Line) -> None:
        """Check the names in a line of the replacement, and its arguments."""
        if line.forwards is not None:
            self.is_known(line.forwards)
            return
        if line.recipe and not is_recipe(line.recipe):
            raise self.error(f"there is no recipe {line.recipe!r}")
        if line.is_again:
            self.before_of(line)
            self.fields(line)
        elif "." not in line.op and line.op != WEIGHT:
            self.function(line.op, "function")
        elif line.op != WEIGHT:
            known = operator(line, self.rule)
            if line.is_open:
                named_arguments(line, known, self.rule)
                self.before_of(line)
            else:
                self.complete(line, known)
        for term in self.terms(line):
            self.is_known(term)

    def again(self, line: Line) -> None:
        """Check that a redefined value has no other user, which would read the new value."""
        alone = [w.arguments for w in self.rule.where if w.predicate == "reads_once"]
        for name in line.results:
            stood = any(name in other.results for other in self.rule.before[:-1])
            if stood and (ValueName(name),) not in alone:
                raise self.error(f"%{name} is defined again, and `reads_once(%{name})` not asked")

    def fields(self, line: Line) -> None:
        """Check that every op of a family has the named fields."""
        of = line if line.family else next(o for o in self.rule.before if o.op == line.op)
        for name in filter(None, (name for name, _ in line.arguments)):
            for cls in classes(of, self.rule, self.namespace):
                if name not in operator_of(cls).by_name:
                    raise self.error(f"{cls.name} has no argument {name!r}")

    def before_of(self, line: Line) -> None:
        if not any(other.op == line.op for other in self.rule.before):
            raise self.error(f"there is no {line.op} before")

    def complete(self, line: Line, known: OperatorReader) -> None:
        """Check that an op's argument names exist, and that none is missing."""
        written = named_arguments(line, known, self.rule)
        if line.is_open:
            return
        for parameter in known.values:
            if parameter.name not in written and not (parameter.may_be_absent or parameter.is_list):
                raise self.error(f"{line.op}: {parameter.name} is missing")

    def terms(self, line: Line) -> Iterator[Any]:
        """Yield the terms of a line, including those of its types."""
        yield from (term for _, term in line.arguments)
        for pattern in (*line.operand_types, *line.result_types):
            if isinstance(pattern, Hole):
                yield pattern
            elif isinstance(pattern, TypePattern):
                yield from (part for part in (pattern.rest, *pattern.sizes) if part is not None)
                if isinstance(pattern.element, str):
                    element_named(pattern.element, self.rule)
                else:
                    yield pattern.element

    def call(self, name: str, arguments: tuple[Term, ...], kind: str) -> None:
        self.function(name, kind)
        for term in arguments:
            self.is_known(term)

    def function(self, name: str, kind: str) -> None:
        if not callable(self.namespace.get(name)):
            raise self.error(f"there is no {kind} {name!r}")

    def is_known(self, term: Term) -> None:
        """Check that values and holes in a term are defined before, and that functions exist."""
        if isinstance(term, ValueName | Hole):
            if _spelled(term) not in self.known:
                raise self.error(f"{_spelled(term)} is not defined before")
        elif isinstance(term, Computed):
            self.call(term.function, term.arguments, "function")
        elif isinstance(term, list):
            for item in cast("list[Term]", term):
                self.is_known(item)

    def error(self, fact: str) -> StepwellError:
        return StepwellError(f"rule {self.rule.name}: {fact}")


def _spelled(term: ValueName | Hole) -> str:
    return f"%{term.name}" if isinstance(term, ValueName) else f"${term.name}"
