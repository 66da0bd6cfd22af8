"""A rule as a rewrite: the matcher that its text compiles to, and what it builds."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any, ClassVar, cast

from xdsl.ir import Attribute, Operation, SSAValue

from stepwell.dialects.aten.op import SchemaOp
from stepwell.ir.diagnostics import StepwellError
from stepwell.ir.numerics import Deviation
from stepwell.ir.program import Program
from stepwell.ir.rewriting import Refusal, Rewrite, Rewriter
from stepwell.ir.types import Dim, tensor
from stepwell.translate.rules import functions, predicates
from stepwell.translate.rules.compiling import (
    Matched,
    Matcher,
    compile_rule,
    element_named,
    first_of,
    named_arguments,
    op_class,
)
from stepwell.translate.rules.notation import (
    Computed,
    Hole,
    Line,
    Rule,
    Term,
    TypePattern,
    ValueName,
    read,
)


@dataclass(frozen=True)
class RuleRewrite(Rewrite[Matched]):
    """A rewrite that is its own text. Made by `read_rules`; each rule is a class of its own."""

    rule: ClassVar[Rule]
    namespace: ClassVar[Mapping[str, Any]]

    @cached_property
    def _match(self) -> Matcher:
        matchers: dict[type[Operation], list[Matcher]] = {}
        for rule in self.rule.forms:
            cls = op_class(rule.root, rule)
            matchers.setdefault(cls, []).append(compile_rule(rule, self.namespace))
        if len(matchers) == 1:
            return first_of(*matchers.values())
        by_class = {cls: first_of(found) for cls, found in matchers.items()}
        return lambda op: by_class[type(op)](op)

    def match(self, op: SchemaOp, program: Program) -> Matched | Refusal | None:
        """What the text says stands before."""
        return self._match(op)

    def deviates(self, match: Matched, program: Program) -> Deviation | None:
        """The class of numbers whose `proven` clause does not hold."""
        for clause in match.rule.proven:
            given = (self._value(term, match.found) for term in clause.arguments)
            if not self.namespace[clause.predicate](*given, program):
                return Deviation(clause.refusal or "")
        return None

    def build(self, match: Matched, rw: Rewriter) -> None:
        """What the text says stands after."""
        values = dict(match.found)
        after, result = match.rule.after, match.op.results[0]
        for line in after:
            if line.forwards is not None:
                value: SSAValue = values[f"%{line.forwards.name}"]
            else:
                last = line is after[-1]
                op = self.made(line, values, result.type if last else None)
                op.results[0].name_hint = result.name_hint if last else None
                value = rw.insert(op).results[0]
            values[f"%{line.result}"] = value
        rw.replace_value(result, values[f"%{match.rule.root.result}"])
        rw.erase(match.op)

    def made(self, line: Line, values: dict[str, Any], type_: Attribute | None) -> SchemaOp:
        """The op that a line becomes.

        Args:
            line: of the rule.
            values: what stands for each `%x` and `$c`.
            type_: the result's type; stated by the line or inferred if None.
        """
        cls = op_class(line, self.rule)
        written = named_arguments(line, cls, self.rule)
        given = {name: self._value(term, values) for name, term in written.items()}
        stated = type_
        if stated is None and not line.more and line.result_type is not None:
            stated = self._type(line.result_type, values)
        return cls.make(**given, result_types=None if stated is None else [stated])

    def _value(self, term: Term, values: Mapping[str, Any]) -> Any:
        if isinstance(term, ValueName | Hole):
            name = f"%{term.name}" if isinstance(term, ValueName) else f"${term.name}"
            if name not in values:
                raise StepwellError(f"rule {self.rule.name}: {name} stands nowhere before")
            return values[name]
        if isinstance(term, Computed):
            function = self.namespace[term.function]
            return function(*(self._value(item, values) for item in term.arguments))
        if isinstance(term, list):
            return [self._value(item, values) for item in cast("list[Term]", term)]
        return term

    def _type(self, pattern: TypePattern, values: Mapping[str, Any]) -> Attribute:
        shape: list[Dim] = list(values[f"${pattern.rest.name}"]) if pattern.rest else []
        shape += [values[f"${s.name}"] if isinstance(s, Hole) else s for s in pattern.sizes]
        held = pattern.element
        found = (
            values[f"${held.name}"] if isinstance(held, Hole) else element_named(held, self.rule)
        )
        return tensor(shape, found)


def read_rules(text: str | None, namespace: Mapping[str, Any]) -> tuple[type[RuleRewrite], ...]:
    """The rules of a text as rewrites, in order.

    Args:
        text: a module's docstring.
        namespace: where its predicates and functions stand: the module's `globals()`.

    Raises:
        ParseFailure: the text is no rule, or names what there is not.
    """
    known: dict[str, Callable[..., Any]] = {**vars(functions), **vars(predicates), **namespace}
    return tuple(_class_of(rule, known, str(namespace["__name__"])) for rule in read(text or ""))


def _class_of(rule: Rule, namespace: Mapping[str, Any], module: str) -> type[RuleRewrite]:
    anchors = dict.fromkeys(op_class(form.root, form) for form in rule.forms)
    body = {
        "__doc__": rule.prose or rule.text,
        "__module__": module,
        "name": rule.name,
        "anchors": tuple(anchors),
        "bound": rule.bound,
        "takes_empty": rule.takes_empty,
        "rule": rule,
        "namespace": namespace,
    }
    name = "".join(word.title() for word in rule.name.split("-"))
    return cast("type[RuleRewrite]", type(name, (RuleRewrite,), body))
