"""A rule's `Before:` as Python code that looks at an op and the ops its operands come from.

The code is straight-line: classes of ops first, then arguments, types and conditions, each of which
ends the look. It is compiled when an op of the rule's class is first met.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import count
from typing import Any, cast

from xdsl.ir import Operation, SSAValue

from stepwell.dialects.aten.op import SchemaOp, stated_default
from stepwell.dialects.aten.registry import find
from stepwell.dialects.aten.schema import Argument
from stepwell.ir import dtypes
from stepwell.ir.diagnostics import StepwellError
from stepwell.ir.rewriting import Refusal
from stepwell.ir.types import dims, element
from stepwell.translate.rules.notation import (
    Computed,
    Hole,
    Line,
    Rule,
    Term,
    TypePattern,
    ValueName,
)


@dataclass(frozen=True)
class Matched:
    """What a rule found: the op it replaces, the form of the rule, each `%x` and each `$c`."""

    op: SchemaOp
    rule: Rule
    found: Mapping[str, Any]


Matcher = Callable[[Operation], "Matched | Refusal | None"]


def op_class(line: Line, rule: Rule) -> type[SchemaOp]:
    """The class of the op that a line names, which gives as many results as the line names."""
    cls = find(line.op)
    if cls is None:
        raise StepwellError(f"rule {rule.name}: there is no op {line.op!r}")
    if len(cls.SCHEMA.returns) != 1 + len(line.more):
        raise StepwellError(
            f"rule {rule.name}: {line.op} does not give {1 + len(line.more)} results"
        )
    return cls


def named_arguments(line: Line, cls: type[SchemaOp], rule: Rule) -> dict[str, Term]:
    """Each written argument by its name in the schema."""
    positional = [a.name for a in cls.SCHEMA.arguments if not a.keyword_only]
    found: dict[str, Term] = {}
    for index, (name, term) in enumerate(line.arguments):
        if name is None and index >= len(positional):
            raise StepwellError(f"rule {rule.name}: {line.op} has too many arguments")
        known = name or positional[index]
        if known not in cls.SCHEMA.by_name:
            raise StepwellError(f"rule {rule.name}: {line.op} has no argument {known!r}")
        found[known] = term
    return found


def compile_rule(rule: Rule, namespace: Mapping[str, Any]) -> Matcher:
    """The matcher of one form of a rule.

    Args:
        rule: as it was read.
        namespace: predicates and functions by name.

    Raises:
        StepwellError: the rule names an op, an argument or a predicate that there is not.
    """
    orders = [False, True] if any(line.unordered for line in rule.before) else [False]
    matchers = [_Compiler(rule, namespace, swapped).compile() for swapped in orders]
    return first_of(matchers)


def first_of(matchers: Sequence[Matcher]) -> Matcher:
    """What the first of some matchers finds, else a refusal of one of them."""
    if len(matchers) == 1:
        return matchers[0]

    def first(op: Operation) -> Matched | Refusal | None:
        refusal = None
        for matcher in matchers:
            found = matcher(op)
            if isinstance(found, Matched):
                return found
            refusal = found or refusal
        return refusal

    return first


class _Compiler:
    """Writes the code of one rule, with unordered arguments as written or swapped."""

    def __init__(self, rule: Rule, namespace: Mapping[str, Any], swapped: bool) -> None:
        self.rule, self.namespace, self.swapped = rule, namespace, swapped
        self.lines = {line.result: line for line in rule.before}
        self.shapes: list[str] = []
        self.numbers: list[str] = []
        self.types: list[str] = []
        self.known: set[str] = set()
        self.patterns: dict[TypePattern, str] = {}
        self.used = _used_shapes(rule)
        self.globals: dict[str, Any] = {
            "Refusal": Refusal,
            "Matched": Matched,
            "SSAValue": SSAValue,
            "dims": dims,
            "element": element,
            "equal": equal,
            "at_run_time": at_run_time,
            "rule": rule,
        }
        self.fresh = count()

    def compile(self) -> Matcher:
        """The compiled function."""
        root = self.rule.root
        self.known |= {f"%{name}" for name in (root.result, *root.more)}
        unread = [a for w in self.rule.where if w.predicate == "is_unread" for a in w.arguments]
        if any(ValueName(name) not in unread for name in root.more):
            raise StepwellError(f"rule {self.rule.name}: nothing says that no other result is read")
        self.look("op", self.rule.root)
        if forwards := self.rule.after[-1].forwards:
            self.types.append(f"if v_{forwards.name}.type != op.results[0].type: return None")
            self.types.append(f"if '?' in dims(v_{forwards.name}.type): return None")
        conditions = list(self.conditions())
        root = f"v_{self.rule.root.result} = op.results[0]"
        for index, name in enumerate(self.rule.root.more, 1):
            root += f"; v_{name} = op.results[{index}]"
        names = ", ".join(f"{name!r}: {local(name)}" for name in sorted(self.known))
        body = [root, *self.shapes, *self.numbers, *self.types, *conditions]
        code = "def match(op):\n" + "".join(f"    {line}\n" for line in body)
        code += f"    return Matched(op, rule, {{{names}}})\n"
        exec(compile(code, f"<rule {self.rule.name}>", "exec"), self.globals)
        return cast(Matcher, self.globals["match"])

    def constant(self, value: Any) -> str:
        """A name in the code for a Python object."""
        name = f"c{next(self.fresh)}"
        self.globals[name] = value
        return name

    def look(self, op: str, line: Line) -> None:
        """The code for one op and, through its operands, those before it."""
        cls = op_class(line, self.rule)
        written = named_arguments(line, cls, self.rule)
        if self.swapped and line.unordered:
            first, second, *_ = written
            written[first], written[second] = written[second], written[first]
        tensors = [a for a in cls.SCHEMA.arguments if a.type.is_tensor]
        for index, argument in enumerate(tensors):
            plain = not any(a.type.is_list or a.type.nullable for a in tensors[: index + 1])
            source = f"{op}.operands[{index}]" if plain else f"{op}.arg({argument.name!r})"
            self.tensor(source, argument, written, line, index)
        for argument in cls.SCHEMA.arguments:
            if not argument.type.is_tensor:
                self.number(op, argument, written, line.is_open)
        self.type(f"{op}.results[0]", line.result_type)

    def tensor(
        self, source: str, argument: Argument, written: dict[str, Term], line: Line, index: int
    ) -> None:
        term = written.get(argument.name)
        if term is None:
            if line.is_open and argument.name not in written:
                return
            if not argument.type.nullable:
                raise StepwellError(f"rule {self.rule.name}: {line.op}: {argument.name} is missing")
            self.shapes.append(f"if {source} is not None: return None")
            return
        if isinstance(term, Hole) and argument.type.nullable:
            self.known.add(f"${term.name}")
            self.shapes.append(f"h_{term.name} = {source}")
            return
        if not isinstance(term, ValueName):
            raise StepwellError(f"rule {self.rule.name}: {argument.name} is a tensor, not {term!r}")
        name = f"v_{term.name}"
        if f"%{term.name}" in self.known:
            self.shapes.append(f"if {source} is not {name}: return None")
            if index < len(line.operand_types):
                self.type(name, line.operand_types[index])
            return
        self.known.add(f"%{term.name}")
        self.shapes.append(f"{name} = {source}")
        if argument.type.nullable:
            self.shapes.append(f"if {name} is None: return None")
        if index < len(line.operand_types):
            self.type(name, line.operand_types[index])
        inner = self.lines.get(term.name)
        if inner is not None:
            cls = self.constant(op_class(inner, self.rule))
            self.shapes += [
                f"op_{term.name} = {name}.owner",
                f"if type(op_{term.name}) is not {cls}: return None",
            ]
            self.look(f"op_{term.name}", inner)

    def number(self, op: str, argument: Argument, written: dict[str, Term], is_open: bool) -> None:
        if argument.name not in written:
            if is_open:
                return
            name = argument.name
            default = self.constant(stated_default(argument))
            self.shapes.append(
                f"if {name!r} in {op}.properties and not equal({op}.arg({name!r}), {default}): "
                "return None"
            )
            return
        found = f"a{next(self.fresh)}"
        self.numbers.append(f"{found} = {op}.arg({argument.name!r})")
        self.term(found, written[argument.name], argument.name)

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
            raise StepwellError(f"rule {self.rule.name}: {name} cannot be {term!r} before")
        else:
            self.numbers.append(f"if not equal({found}, {self.constant(term)}): return None")

    def type(self, value: str, pattern: TypePattern | None) -> None:
        if pattern is None:
            return
        if pattern in self.patterns:  # Types are interned: mostly one look.
            self.types.append(f"if {value}.type != {self.patterns[pattern]}.type: return None")
            return
        self.patterns[pattern] = value
        held = f"element({value}.type)"
        if isinstance(pattern.element, Hole):
            self.same(pattern.element.name, held)
        else:
            known = self.constant(element_named(pattern.element, self.rule))
            self.types.append(f"if {held} != {known}: return None")
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
            predicate = self.namespace.get(where.predicate)
            if predicate is None:
                raise StepwellError(
                    f"rule {self.rule.name}: there is no predicate {where.predicate!r}"
                )
            arguments = ", ".join(self.passed(term) for term in where.arguments)
            call = f"{self.constant(predicate)}({arguments})"
            test = call if where.negated else f"not {call}"
            if where.is_guard:
                yield f"refusal = {call}"
                yield "if refusal is not None: return refusal"
            elif where.refusal is None:
                yield f"if {test}: return None"
            else:
                holes = ", ".join(
                    f"{name[1:]}={local(name)}"
                    for name in sorted(self.known)
                    if name.startswith("$") and f"{{{name[1:]}}}" in where.refusal
                )
                yield f"if {test}: return Refusal({where.refusal!r}.format({holes}))"

    def passed(self, term: Term) -> str:
        if isinstance(term, ValueName | Hole):
            name = f"%{term.name}" if isinstance(term, ValueName) else f"${term.name}"
            if name not in self.known:
                raise StepwellError(f"rule {self.rule.name}: {name} stands nowhere before")
            return local(name)
        return self.constant(term)


def _used_shapes(rule: Rule) -> set[str]:
    """The holes of shapes that more asks for than one pattern of types."""
    lines = (*rule.before, *rule.after)
    patterns = {p for line in lines for p in (*line.operand_types, line.result_type) if p}
    after = [line.result_type for line in rule.after if line.result_type]
    counted = Counter(p.rest.name for p in patterns if p.rest)
    asked = {name for name, times in counted.items() if times > 1}
    asked |= {p.rest.name for p in after if p.rest}
    terms = [term for where in rule.where for term in where.arguments]
    terms += [term for line in rule.after for _, term in line.arguments]
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
    """The variable of `%x` or `$c`."""
    return ("v_" if name.startswith("%") else "h_") + name[1:]


def at_run_time(value: Any) -> bool:
    """Whether an argument, or a number in it, is known only at run time."""
    if isinstance(value, list):
        return any(isinstance(item, SSAValue) for item in cast("list[Any]", value))
    return isinstance(value, SSAValue)


def equal(one: Any, other: Any) -> bool:
    """Whether two arguments are the same: 2 is 2.0, 0.0 is not -0.0, true is not 1, NaN is NaN."""
    if isinstance(one, bool) or isinstance(other, bool):
        return one is other
    if isinstance(one, int | float) and isinstance(other, int | float):
        signs = math.copysign(1, one) == math.copysign(1, other)
        return (one == other and signs) or (one != one and other != other)
    if isinstance(one, list) and isinstance(other, list):
        ours, theirs = cast("list[Any]", one), cast("list[Any]", other)
        return len(ours) == len(theirs) and all(map(equal, ours, theirs))
    return one is other if isinstance(one, SSAValue) else bool(one == other)


def element_named(name: str, rule: Rule) -> Any:
    """The element type of a name (`f32`, `i1`)."""
    found = getattr(dtypes, name, None)
    if found is None:
        raise StepwellError(f"rule {rule.name}: there is no element type {name!r}")
    return found
