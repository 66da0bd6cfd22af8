"""Compile a rule's `Before:` to Python code that matches an op and its operands' producers.

The code is straight-line: first op classes, then arguments, types and conditions, each of which may
end the match. It is compiled when an op of the rule's class is first matched.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import combinations, count
from types import FunctionType
from typing import Any, cast

from xdsl.ir import Operation, SSAValue

from stepwell.ir import dtypes
from stepwell.ir.compat.xdsl.xdsl_private import operands_of
from stepwell.ir.core import WeightOp
from stepwell.ir.declared.families import FAMILIES, is_of
from stepwell.ir.diagnostics import StepwellError
from stepwell.ir.program import Program
from stepwell.ir.rewriting.rewrite import Refusal
from stepwell.ir.types import dims, element, is_known
from stepwell.translate.rules.notation import (
    WEIGHT,
    AnyType,
    Computed,
    Hole,
    Line,
    Rule,
    Term,
    TypePattern,
    ValueName,
    Where,
)
from stepwell.translate.rules.operators import (
    OperatorReader,
    Parameter,
    op_named,
    operator_of,
    plain,
    sizes_in_place,
)
from stepwell.translate.rules.terms import at_run_time, equal


@dataclass(frozen=True)
class Matched:
    """A match: the replaced op, the form of the rule, and the values of each `%x` and `$c`."""

    op: Operation
    rule: Rule
    found: Mapping[str, Any]


Matcher = Callable[[Operation, Program], "Matched | Refusal | None"]
Namespace = Mapping[str, Any]
"""Predicates, functions and families by name."""


def operator(line: Line, rule: Rule) -> OperatorReader:
    """Return the parameters of a line's op; the line names as many results as it has."""
    cls = op_named(line.op)
    if cls is None:
        raise StepwellError(f"rule {rule.name}: the op {line.op!r} does not exist")
    found = operator_of(cls)
    if found.results is not None and found.results != len(line.results):
        raise StepwellError(
            f"rule {rule.name}: {line.op} does not have {len(line.results)} results"
        )
    return found


def classes(line: Line, rule: Rule, namespace: Namespace) -> tuple[type[Operation], ...]:
    """Return the op classes that a line of the pattern matches; a family has several."""
    if line.op == WEIGHT:
        return (WeightOp,)
    if not line.is_again:
        return (operator(line, rule).cls,)
    if not (family := namespace.get(line.family)):
        raise StepwellError(f"rule {rule.name}: there is no family {line.family!r}")
    return tuple(family)


def named_arguments(line: Line, known: OperatorReader, rule: Rule) -> dict[str, Term]:
    """Return each written argument by its name."""
    positional = [p.name for p in known.parameters if not p.by_name]
    terms: dict[str, Term] = {}
    for index, (name, term) in enumerate(line.arguments):
        if name is None and index >= len(positional):
            raise StepwellError(f"rule {rule.name}: {line.op} has too many arguments")
        key = name or positional[index]
        if key not in known.by_name:
            raise StepwellError(f"rule {rule.name}: {line.op} has no argument {key!r}")
        terms[key] = term
    return terms


def compile_rule(
    rule: Rule, namespace: Namespace, options: Mapping[str, Any] | None = None
) -> Matcher:
    """Return the matcher of one form of a rule.

    Args:
        rule: the parsed rule.
        namespace: predicates, functions and families by name.
        options: the rewrite's options; defaults for omitted ones.

    Raises:
        StepwellError: the rule names an op, an argument or a predicate that does not exist.
    """
    unordered = [line.result for line in rule.before if line.unordered]
    orders = [frozenset(c) for n in range(len(unordered) + 1) for c in combinations(unordered, n)]
    if options is None:
        options = {option.name: namespace[option.default] for option in rule.options}
    matchers = [_Compiler(rule, namespace, swapped, options).compile() for swapped in orders]
    return first_of(matchers)


def first_of(matchers: Sequence[Matcher]) -> Matcher:
    """Return a matcher that returns the first match of several, else one of their refusals."""
    if len(matchers) == 1:
        return matchers[0]

    def first(op: Operation, program: Program) -> Matched | Refusal | None:
        refusal = None
        for matcher in matchers:
            found = matcher(op, program)
            if isinstance(found, Matched):
                return found
            refusal = found or refusal
        return refusal

    return first


class _Compiler:
    """Generates the code of one rule; the unordered arguments of some lines may be swapped."""

    def __init__(
        self, rule: Rule, namespace: Namespace, swapped: frozenset[str], options: Mapping[str, Any]
    ) -> None:
        self.rule, self.namespace, self.swapped = rule, namespace, swapped
        self.makers = {
            name: (line, index) for line in rule.before for index, name in enumerate(line.results)
        }
        self.shapes: list[str] = []
        self.numbers: list[str] = []
        self.types: list[str] = []
        self.known: set[str] = {f"${name}" for name in options}
        self.seen: dict[str, str] = {}
        self.patterns: dict[TypePattern, str] = {}
        self.used = _used_shapes(rule)
        self.globals: dict[str, Any] = {
            "Refusal": Refusal,
            "Matched": Matched,
            "SSAValue": SSAValue,
            "is_known": is_known,
            "dims": dims,
            "at": tuple.__getitem__,
            "operands_of": operands_of,
            "is_of": is_of,
            "element": element,
            "equal": equal,
            "plain": plain,
            "sizes_in_place": sizes_in_place,
            "at_run_time": at_run_time,
            "rule": rule,
            **{local(f"${name}"): value for name, value in options.items()},
        }
        self.fresh = count()

    def compile(self) -> Matcher:
        """Return the Python function that matches the rule."""
        root = self.rule.root
        self.known |= {f"%{name}" for name in root.results}
        self.seen[root.result] = "op"
        unread = [a for w in self.rule.where if w.predicate == "is_unread" for a in w.arguments]
        defined = {name for line in self.rule.after for name in line.results}
        if any(n not in defined and ValueName(n) not in unread for n in root.results):
            raise StepwellError(f"rule {self.rule.name}: a result is neither replaced nor unread")
        if root.op == WEIGHT:
            raise StepwellError(f"rule {self.rule.name}: a rule cannot replace a weight")
        names = [f"v_{name} = at(op.results, {at})" for at, name in enumerate(root.results)]
        if not root.is_again and operator(root, self.rule).results is None:
            names.insert(0, f"if len(op.results) != {len(root.results)}: return None")
        self.look("op", root)
        for line in self.rule.after:
            if line.forwards is not None and line.result in root.results:
                value, old = local(f"%{line.forwards.name}"), f"v_{line.result}"
                self.types.append(f"if {value}.type != {old}.type: return None")
                self.types.append(f"if not is_known({value}.type): return None")
        conditions = list(self.conditions())
        text = ", ".join(f"{name!r}: {local(name)}" for name in sorted(self.known))
        body = [*names, *self.shapes, *self.numbers, *self.types, *conditions]
        code = "def match(op, program):\n" + "".join(f"    {line}\n" for line in body)
        code += f"    return Matched(op, rule, {{{text}}})\n"
        exec(compile(code, f"<rule {self.rule.name}>", "exec"), self.globals)
        return cast(Matcher, self.globals["match"])

    def constant(self, value: Any) -> str:
        """Return a name in the code for a Python object."""
        name = f"c{next(self.fresh)}"
        self.globals[name] = value
        return name

    def look(self, op: str, line: Line) -> None:
        """Generate the code that matches one op and, through its operands, the ops before it."""
        if line.op == WEIGHT:
            if line.result_types:
                self.type(f"at({op}.results, 0)", line.result_types[0])
            return
        if line.is_again:
            values = [term for name, term in line.arguments if name is None]
            for index, term in enumerate(values):
                if not isinstance(term, ValueName):
                    raise StepwellError(f"rule {self.rule.name}: {line.op} takes only values")
                if line.is_open:
                    self.shapes.append(f"if len(operands_of({op})) <= {index}: return None")
                self.value(f"at(operands_of({op}), {index})", term, line, index)
            if fields := {name: term for name, term in line.arguments if name is not None}:
                known = operator_of(classes(line, self.rule, self.namespace)[0])
                for name, term in fields.items():
                    text = f"a{next(self.fresh)}"
                    self.numbers.append(f"{text} = {known.field(op, name)}")
                    self.term(text, term, name)
            if not line.is_open:
                count = len(values)
                self.shapes.append(f"if len(operands_of({op})) != {count}: return None")
            self.result_types(op, line)
            return
        known = operator(line, self.rule)
        written = named_arguments(line, known, self.rule)
        if line.result in self.swapped:
            first, second, *_ = written
            written[first], written[second] = written[second], written[first]
        for index, parameter in enumerate(known.values):
            self.tensor(known.operand(op, parameter), parameter, written, line, index)
        for parameter in known.parameters:
            if not parameter.is_value:
                self.number(op, known, parameter, written, line.is_open)
        self.result_types(op, line)

    def result_types(self, op: str, line: Line) -> None:
        """Generate the code that checks an op's result types."""
        for index, stated in enumerate(line.result_types[: len(line.results)]):
            self.type(f"at({op}.results, {index})", stated)

    def tensor(
        self, source: str, parameter: Parameter, written: dict[str, Term], line: Line, index: int
    ) -> None:
        """Generate the code that matches one operand, or a list of operands."""
        term = written.get(parameter.name)
        if term is None:
            if line.is_open and parameter.name not in written:
                return
            if not parameter.may_be_absent:
                raise StepwellError(
                    f"rule {self.rule.name}: {line.op}: {parameter.name} is missing"
                )
            self.shapes.append(f"if {source} is not None: return None")
            return
        if isinstance(term, Hole) and (parameter.may_be_absent or parameter.is_list):
            self.known.add(f"${term.name}")
            self.shapes.append(f"h_{term.name} = {source}")
            return
        if isinstance(term, list) and parameter.is_list:
            text = f"a{next(self.fresh)}"
            self.shapes += [
                f"{text} = {source}",
                f"if {text} is None or len({text}) != {len(term)}: return None",
            ]
            for at, item in enumerate(cast("list[Term]", term)):
                self.value(f"{text}[{at}]", item, line, index + at)
            return
        if isinstance(term, Hole | list) and not parameter.is_list:
            sizes = f"a{next(self.fresh)}"
            self.numbers += [
                f"{sizes} = sizes_in_place({source})",
                f"if {sizes} is None: return None",
            ]
            self.term(sizes, cast(Term, term), parameter.name)
            return
        self.value(source, term, line, index, parameter.may_be_absent)

    def value(
        self, source: str, term: Term, line: Line, index: int, may_be_absent: bool = False
    ) -> None:
        """Generate the code that matches one operand and the op that defines it."""
        if not isinstance(term, ValueName):
            raise StepwellError(f"rule {self.rule.name}: {line.op} takes a tensor, not {term!r}")
        name = f"v_{term.name}"
        stated = line.operand_types[index] if index < len(line.operand_types) else None
        if f"%{term.name}" in self.known:
            self.shapes.append(f"if {source} is not {name}: return None")
            self.type(name, stated)
            return
        self.known.add(f"%{term.name}")
        self.shapes.append(f"{name} = {source}")
        if may_be_absent:
            self.shapes.append(f"if {name} is None: return None")
        self.type(name, stated)
        if term.name in self.makers:
            self.maker(name, *self.makers[term.name])

    def maker(self, value: str, line: Line, index: int) -> None:
        """Generate the code that gets the op that defines a value as a certain result."""
        if line.result in self.seen:
            self.shapes.append(f"if {value}.owner is not {self.seen[line.result]}: return None")
        else:
            op = self.seen[line.result] = f"op_{line.result}"
            self.shapes += [f"{op} = {value}.owner", f"if {self.is_other(op, line)}: return None"]
            self.look(op, line)
        if len(line.results) > 1:
            self.shapes.append(f"if {value}.index != {index}: return None")

    def is_other(self, op: str, line: Line) -> str:
        """Return code that is true if a value's defining op is not the op of a line."""
        if line.family in FAMILIES and line.family not in self.namespace:
            return f"not is_of({op}, {line.family!r})"
        found = classes(line, self.rule, self.namespace)
        if len(found) == 1:
            return f"type({op}) is not {self.constant(found[0])}"
        return f"type({op}) not in {self.constant(frozenset(found))}"

    def number(
        self,
        op: str,
        known: OperatorReader,
        parameter: Parameter,
        written: dict[str, Term],
        is_open: bool,
    ) -> None:
        """Generate the code that matches one argument that is not a tensor."""
        name = parameter.name
        if name not in written:
            if not is_open:
                default = self.constant(parameter.default)
                self.shapes.append(
                    f"if {known.is_written(op, name)} and not "
                    f"equal({known.field(op, name)}, {default}): return None"
                )
            return
        text = f"a{next(self.fresh)}"
        self.numbers.append(f"{text} = {known.field(op, name)}")
        self.term(text, written[name], name)

    def term(self, found: str, term: Term, name: str) -> None:
        if isinstance(term, Hole):
            if f"${term.name}" in self.known:
                self.numbers.append(f"if not equal({found}, h_{term.name}): return None")
                return
            self.known.add(f"${term.name}")
            if not term.is_late:
                refusal = self.constant(Refusal(f"{name} is known only at run time"))
                self.numbers.append(f"if at_run_time({found}): return {refusal}")
            self.numbers.append(f"h_{term.name} = {found}")
        elif isinstance(term, list):
            self.numbers.append(
                f"if not isinstance({found}, list) or len({found}) != {len(term)}: return None"
            )
            for index, item in enumerate(term):
                inner = f"a{next(self.fresh)}"
                self.numbers.append(f"{inner} = {found}[{index}]")
                self.term(inner, item, name)
        elif isinstance(term, ValueName | Computed):
            raise StepwellError(f"rule {self.rule.name}: {name} cannot be {term!r} in the pattern")
        else:
            self.numbers.append(f"if not equal({found}, {self.constant(term)}): return None")

    def type(self, value: str, pattern: AnyType) -> None:
        if pattern is None:
            return
        if isinstance(pattern, Hole):
            self.same(pattern.name, f"{value}.type")
            return
        if pattern in self.patterns:  # Types are interned, so this usually succeeds.
            self.types.append(f"if {value}.type != {self.patterns[pattern]}.type: return None")
            return
        self.patterns[pattern] = value
        text = f"element({value}.type)"
        if isinstance(pattern.rest, Computed) or isinstance(pattern.element, Computed):
            raise StepwellError(f"rule {self.rule.name}: a type in the pattern cannot be computed")
        if isinstance(pattern.element, Hole):
            self.same(pattern.element.name, text)
        else:
            known = self.constant(element_named(pattern.element, self.rule))
            self.types.append(f"if {text} != {known}: return None")
        if pattern.rest is not None and not pattern.sizes and pattern.rest.name not in self.used:
            return
        shape = f"d{next(self.fresh)}"
        self.types.append(f"{shape} = dims({value}.type)")
        least = len(pattern.sizes)
        if pattern.rest is None:
            self.types.append(f"if len({shape}) != {least}: return None")
        else:
            self.types.append(f"if len({shape}) < {least}: return None")
            end = f"len({shape}) - {least}"
            self.same(pattern.rest.name, f"{shape}[:{end}]")
        for index, size in enumerate(pattern.sizes):
            at = f"{shape}[{index - least}]"
            if isinstance(size, Hole):
                self.same(size.name, at)
            else:
                self.types.append(f"if {at} != {size}: return None")

    def same(self, name: str, found: str) -> None:
        if f"${name}" in self.known:
            self.types.append(f"if {found} != h_{name}: return None")
        else:
            self.known.add(f"${name}")
            self.types.append(f"h_{name} = {found}")

    def conditions(self) -> Iterator[str]:
        for where in self.rule.where:
            call, test = self.call(where), "found" if where.negated else "not found"
            if where.binds:
                name = f"h_{where.binds}"
                yield f"{name} = {call}"
                yield f"if {name} is None or type({name}) is Refusal: return {name}"
                self.known.add(f"${where.binds}")
                continue
            yield f"found = {call}"
            if where.is_guard:
                yield "if found is not None: return found"
                continue
            yield "if type(found) is Refusal: return found"  # As an object, it is true.
            if where.refusal is None:
                yield f"if {test}: return None"
                continue
            names = (n for n in sorted(self.known) if n.startswith("$"))
            held = [n for n in names if f"{{{n[1:]}}}" in where.refusal]
            holes = ", ".join(f"{n[1:]}={local(n)}" for n in held)
            yield f"if {test}: return Refusal({where.refusal!r}.format({holes}))"

    def call(self, where: Where) -> str:
        """Return the code that calls a predicate."""
        predicate = self.namespace.get(where.predicate)
        if predicate is None:
            raise StepwellError(f"rule {self.rule.name}: there is no predicate {where.predicate!r}")
        arguments = [self.passed(term) for term in where.arguments]
        if takes_program(predicate):
            arguments.append("program=program")
        return f"{self.constant(predicate)}({', '.join(arguments)})"

    def passed(self, term: Term) -> str:
        if isinstance(term, ValueName | Hole):
            name = f"%{term.name}" if isinstance(term, ValueName) else f"${term.name}"
            if name not in self.known:
                raise StepwellError(f"rule {self.rule.name}: {name} is not defined by the pattern")
            return local(name)
        if isinstance(term, Computed):
            text = ", ".join(map(self.passed, term.arguments))
            return f"{self.constant(self.namespace[term.function])}({text})"
        return self.constant(term)


def takes_program(function: Any) -> bool:
    """Whether a function of a clause has a parameter `program`."""
    if not isinstance(function, FunctionType):
        return False
    code = function.__code__
    return "program" in code.co_varnames[: code.co_argcount + code.co_kwonlyargcount]


def _used_shapes(rule: Rule) -> set[str]:
    """Return the holes of shapes that are used by more than one type pattern."""
    before = {p for line in rule.before for p in (*line.operand_types, *line.result_types)}
    after = [p for line in rule.after for p in line.result_types if isinstance(p, TypePattern)]
    counted = Counter(
        p.rest.name for p in before if isinstance(p, TypePattern) and isinstance(p.rest, Hole)
    )
    asked = {name for name, times in counted.items() if times > 1}
    terms: list[Any] = [term for where in rule.where for term in where.arguments]
    terms += [term for line in rule.after for _, term in line.arguments]
    terms += [part for p in after for part in (p.rest, p.element, *p.sizes)]
    while terms:
        term = terms.pop()
        if isinstance(term, Hole):
            asked.add(term.name)
        elif isinstance(term, Computed):
            terms += term.arguments
        elif isinstance(term, list):
            terms += term
    return asked


def local(name: str) -> str:
    """Return the Python variable of `%x` or `$c`."""
    return ("v_" if name.startswith("%") else "h_") + name[1:]


def element_named(name: str, rule: Rule) -> Any:
    """Return the element type of a name (`f32`, `i1`)."""
    found = getattr(dtypes, name, None)
    if found is None:
        raise StepwellError(f"rule {rule.name}: there is no element type {name!r}")
    return found
