"""A rule as a rewrite: its compiled matcher, and the ops that it builds."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, make_dataclass, replace
from functools import cached_property
from typing import TYPE_CHECKING, Any, ClassVar, TypeVar, cast

from xdsl.ir import Operation, SSAValue

from stepwell.ir.declared.numerics import Deviation
from stepwell.ir.program import Program
from stepwell.ir.rewriting.rewrite import Bound, Refusal, Rewrite, Rewriter, Value
from stepwell.translate.rules import functions, predicates
from stepwell.translate.rules.checking import check
from stepwell.translate.rules.compiling import (
    Matched,
    Matcher,
    Namespace,
    classes,
    compile_rule,
    first_of,
)
from stepwell.translate.rules.notation import Rule, read
from stepwell.translate.rules.writing import EVERY, RuleWriter


@dataclass(frozen=True)
class RuleRewrite(Rewrite[Matched]):
    """A rewrite defined by its text. `read_rules` makes a class for each rule."""

    rule: ClassVar[Rule]
    namespace: ClassVar[Namespace]

    if TYPE_CHECKING:

        def __init__(self, *options: Any, **named: Any) -> None:
            """Set the options that a rule's text names, in their order."""

    @cached_property
    def _matchers(self) -> dict[type[Operation], Matcher]:
        """Return the matcher of the ops of each class, over all forms in order."""
        matchers: dict[type[Operation], list[Matcher]] = {}
        for rule in self.rule.forms:
            options = {option.name: getattr(self, option.name) for option in rule.options}
            matcher = compile_rule(rule, self.namespace, options)
            for cls in classes(rule.root, rule, self.namespace):
                matchers.setdefault(cls, []).append(matcher)
        return {cls: first_of(found) for cls, found in matchers.items()}

    @cached_property
    def _writers(self) -> dict[int, RuleWriter]:
        return {id(rule): RuleWriter(rule, self.namespace) for rule in self.rule.forms}

    def match(self, op: Operation, program: Program) -> Matched | Refusal | None:
        """Match the rule's pattern (`Before:`) at an op."""
        return self.asked_of(type(op))(op, program)

    def asked_of(self, cls: type[Operation]) -> Matcher:
        """Return the matcher for an op class, or for the class from which it was derived."""
        matcher = self._matchers.get(cls)
        return matcher or next(m for base, m in self._matchers.items() if issubclass(cls, base))

    def deviates(self, match: Matched, program: Program) -> Deviation | None:
        """Return the deviation of a match: that of the first `proven` clause that has no proof, if
        any.
        """
        writer = self._writers[id(match.rule)]
        for clause in match.rule.proven:
            values = (writer.value(term, match.found) for term in clause.arguments)
            proof = self.namespace[clause.predicate](*values, program)
            if lost := Deviation(clause.refusal or "").unless(proof):
                return lost
        return self.deviation

    def bound_at(self, match: Matched, value: Value) -> Bound:
        """Return the error bound for the values at hand, from the text's numbers or its
        function.
        """
        if match.rule.bound_by is not None:
            return self._writers[id(match.rule)].value(match.rule.bound_by, match.found)
        allowance: Any = None
        for factor, names in self.bound.magnitudes:
            for name in names:
                part = factor * value(match.found[name]).double().abs()
                allowance = part if allowance is None else allowance + part
        return replace(self.bound, allowance=allowance)

    def build(self, match: Matched, rw: Rewriter) -> None:
        """Build the rule's replacement (`After:`) for a match."""
        self.written(match, rw)

    def written(self, match: Matched, rw: Rewriter) -> Mapping[str, Any]:
        """Build the replacement, and return the values of all names."""
        values = self._writers[id(match.rule)].write(match.op, match.found, rw)
        defined = {name for line in match.rule.after for name in line.results}
        named = [values[f"%{n}"] if n in defined else None for n in match.rule.root.results]
        new_values: list[SSAValue | None] = values.get(EVERY, named)
        for new, old in zip(new_values, match.op.results, strict=True):
            if new is not None:
                assert old.type == new.type, f"rule {self.name}: {old.type} becomes {new.type}"
                rw.replace_value(old, new)
        rw.erase(match.op)
        return values


R = TypeVar("R", bound=Rewrite[Any])


class RuleSet(tuple[type[R], ...]):
    """The rewrites of one module, in the order of its text; each is also accessible by its name."""

    def named(self, *names: str) -> tuple[R, ...]:
        """Return an instance of each rule, in the order of `names`.

        Raises:
            KeyError: no rule of the module has one of the names.
        """
        rules = {rule.name: rule for rule in self}
        return tuple(rules[name]() for name in names)

    def without(self, *names: str) -> tuple[R, ...]:
        """Return an instance of every other rule, in order.

        Raises:
            KeyError: no rule of the module has one of the names.
        """
        left_out = {type(rule) for rule in self.named(*names)}
        return tuple(rule() for rule in self if rule not in left_out)


def read_rules(
    text: str | None, namespace: Mapping[str, Any], phases: Sequence[str] = ()
) -> RuleSet[RuleRewrite]:
    """Return the rules of a text as rewrites, in order.

    Args:
        text: a module's docstring.
        namespace: the module's `globals()`, with predicates and functions.
        phases: the phases of pipelines to which the rules belong (`Rewrite.phases`).

    Raises:
        ParseFailure: the text does not parse, or uses an undefined name.
    """
    known = {**vars(functions), **vars(predicates), **namespace}
    name = str(namespace["__name__"])
    return RuleSet(_class_of(rule, known, name, phases) for rule in read(text or ""))


def _class_of(
    rule: Rule, namespace: Mapping[str, Any], module: str, phases: Sequence[str]
) -> type[RuleRewrite]:
    for form in rule.forms:
        check(form, namespace)
    anchors = dict.fromkeys(
        cls for form in rule.forms for cls in classes(form.root, form, namespace)
    )
    body: dict[str, Any] = {
        "__doc__": rule.prose or rule.text,
        "__module__": module,
        "name": rule.name,
        "anchors": tuple(anchors),
        "bound": rule.bound,
        "takes_empty": rule.takes_empty,
        "phases": {phase: {} for phase in phases},
        "deviation": namespace[rule.loses] if rule.loses else None,
        "rule": rule,
        "namespace": namespace,
    }
    name = "".join(word.title() for word in rule.name.split("-"))
    if not rule.options:
        return cast("type[RuleRewrite]", type(name, (RuleRewrite,), body))
    fields = [(o.name, Any, field(default=namespace[o.default])) for o in rule.options]
    made = make_dataclass(name, fields, bases=(RuleRewrite,), namespace=body, frozen=True)
    made.__module__ = module
    return cast("type[RuleRewrite]", made)
