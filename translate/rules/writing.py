"""Build a rewrite rule's replacement (its `After:`) from the values and numbers that it matched."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, cast

from xdsl.ir import Attribute, Operation, SSAValue

from stepwell.ir.compat.xdsl.xdsl_private import put_before
from stepwell.ir.core import weight_key
from stepwell.ir.diagnostics import StepwellError
from stepwell.ir.rewriting.rewrite import Rewriter
from stepwell.ir.rewriting.rewriter import remade
from stepwell.ir.types import Dim, tensor
from stepwell.translate.rules.compiling import (
    Namespace,
    element_named,
    named_arguments,
    operator,
)
from stepwell.translate.rules.notation import (
    WEIGHT,
    AnyType,
    Computed,
    Hole,
    Line,
    Rule,
    Term,
    ValueName,
)
from stepwell.translate.rules.operators import operator_of

Found = Mapping[str, Any]
"""The value of each `%x` and each `$c`."""


EVERY = "*"
"""The name under which the replacements of all results are stored."""
MATCHED = ""
"""The name under which the matched values are stored: a line may redefine one."""


class RuleWriter:
    """Builds the replacement of one form of a rule."""

    def __init__(self, rule: Rule, namespace: Namespace) -> None:
        self.rule, self.namespace = rule, namespace
        self.alike = {other.op: f"%{other.result}" for other in reversed(rule.before)}
        self.steps = [self._step(line) for line in rule.after]
        self.again = {f"%{name}" for line in rule.before[:-1] for name in line.results}
        self.turns = any(f"%{line.result}" in self.again for line in rule.after)

    def write(self, root: Operation, found: Found, rw: Rewriter) -> dict[str, Any]:
        """Insert the replacement before `root`, and return the values of all names."""
        values: dict[str, Any] = {**found, MATCHED: found}
        is_strict = not self.rule.root.is_every
        results = dict(zip(self.rule.root.results, root.results, strict=is_strict))
        for line, step in zip(self.rule.after, self.steps, strict=True):
            replaced = [results.get(name) for name in line.results]
            stood = values[f"%{line.result}"].owner if f"%{line.result}" in self.again else None
            made = step(values, [old and old.type for old in replaced], rw)
            if line.is_every:
                values[EVERY], replaced = made, list(root.results)
            if stood is not None:
                new = cast(Operation, made[0].owner)
                new.detach()
                put_before(new, stood)
                new.location = stood.location
            names = [line.result] * len(made) if line.is_every else line.results
            for name, new, old in reversed([*zip(names, made, replaced, strict=True)]):
                if old is not None and ("." in line.op or new.owner in rw.inserted):
                    new.name_hint = old.name_hint
                values[f"%{name}"] = new
            if self.turns and line.op in self.alike:  # Each op keeps its name and location.
                like = self.alike[line.op]
                cast(Operation, made[0].owner).location = found[like].owner.location
                made[0].name_hint = found[like].name_hint
        return values

    def _step(
        self, line: Line
    ) -> Callable[[Found, Sequence[Attribute | None], Rewriter], Sequence[SSAValue]]:
        """Return a function that builds one line; its results have the types that they replace."""
        if line.forwards is not None:
            source = f"%{line.forwards.name}"
            return lambda values, _, rw: [values[source]]
        if line.op == WEIGHT:
            return lambda values, _, rw: [self._derived(line, values, rw)]
        if line.is_again:
            return lambda values, types, rw: rw.insert(self._again(line, values, types)).results
        if "." not in line.op:
            function, terms = self.namespace[line.op], [term for _, term in line.arguments]
            if line.is_every:
                return lambda values, _, rw: function(
                    rw, *(self.value(term, values) for term in terms)
                )
            return lambda values, _, rw: [
                function(rw, *(self.value(term, values) for term in terms))
            ]
        known = operator(line, self.rule)
        written = named_arguments(line, known, self.rule)
        like = self._like(line) if line.is_open else None
        in_place = [p.name for p in known.values if not _is_value(written.get(p.name))]

        def write(
            values: Found, types: Sequence[Attribute | None], rw: Rewriter
        ) -> Sequence[SSAValue]:
            given = {} if like is None else known.present(values[MATCHED][like].owner)
            for name, term in written.items():
                given[name] = self.value(term, values)
            for name in in_place:
                given[name] = self._in_place(given.get(name), rw)
            return rw.insert(known.make(given, self._types(line, values, types))).results

        return write

    def _like(self, line: Line) -> str:
        """Return the result of the pattern's op that has the same name as the line's op."""
        if line.op not in self.alike:
            what = f"there is no {line.op} before for the arguments `…`"
            raise StepwellError(f"rule {self.rule.name}: {what}")
        return self.alike[line.op]

    def _again(self, line: Line, values: Found, types: Sequence[Attribute | None]) -> Operation:
        """Return a copy of the matched op with other operands."""
        old = cast(Operation, values[MATCHED][self._like(line)].owner)
        given = [
            cast(SSAValue, self.value(term, values))
            for name, term in line.arguments
            if name is None
        ]
        stated = self._types(line, values, types) or [result.type for result in old.results]
        fields = {name: self.value(term, values) for name, term in line.arguments if name}
        if not fields:
            return remade(old, [*given, *old.operands[len(given) :]], stated)
        known = operator_of(type(old))
        operands = dict(zip((p.name for p in known.values), given, strict=False))
        return known.make(known.present(old) | operands | fields, stated)

    def _derived(self, line: Line, values: Found, rw: Rewriter) -> SSAValue:
        """Return the weight that a recipe derives from others."""
        sources: list[str] = []
        parameters: dict[str, Any] = {}
        for name, term in line.arguments:
            value = self.value(term, values)
            if isinstance(value, Mapping):
                parameters |= cast("Mapping[str, Any]", value)
            elif name is None:
                key = weight_key(value) if isinstance(value, SSAValue) else value
                assert isinstance(key, str), f"rule {self.rule.name}: {value} is no weight"
                sources.append(key)
            else:
                parameters[name] = value
        return rw.weight(rw.weights.derive(line.recipe, sources, **parameters))

    def _in_place(self, value: Any, rw: Rewriter) -> Any:
        """Convert an operand that is a list of sizes to a constant."""
        if isinstance(value, list | tuple) and all(isinstance(item, int) for item in value):
            from stepwell.dialects.tosa.constants import const_shape

            return rw.insert(const_shape(cast("list[int]", value))).results[0]
        return value

    def _types(
        self, line: Line, values: Found, replaced: Sequence[Attribute | None]
    ) -> list[Attribute] | None:
        """Return the types of a line's results: replaced ones, stated ones, or None."""
        stated = [*line.result_types, *[None] * (len(replaced) - len(line.result_types))]
        types = [
            old or (pattern and self.type(pattern, values))
            for old, pattern in zip(replaced, stated, strict=False)
        ]
        return None if None in types else cast("list[Attribute]", types)

    def value(self, term: Term, values: Found) -> Any:
        """Return the value of a term."""
        if isinstance(term, ValueName | Hole):
            return values[f"%{term.name}" if isinstance(term, ValueName) else f"${term.name}"]
        if isinstance(term, Computed):
            function = self.namespace[term.function]
            return function(*(self.value(item, values) for item in term.arguments))
        if isinstance(term, list):
            return [self.value(item, values) for item in cast("list[Term]", term)]
        return term

    def type(self, pattern: AnyType, values: Found) -> Attribute:
        """Return the concrete type of a pattern."""
        assert pattern is not None
        if isinstance(pattern, Hole):
            return self.value(pattern, values)
        shape: list[Dim] = list(self.value(pattern.rest, values)) if pattern.rest else []
        for size in pattern.sizes:
            shape.append(size if isinstance(size, int) else self.value(size, values))
        element = pattern.element
        if isinstance(element, str):
            return tensor(shape, element_named(element, self.rule))
        return tensor(shape, self.value(element, values))


def _is_value(term: Any) -> bool:
    return isinstance(term, ValueName)
