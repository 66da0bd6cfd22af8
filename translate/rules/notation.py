"""The notation of rules: pattern, replacement, conditions and error bound as text.

    rule silu-to-sigmoid
        What silu is, for targets that have no such op.
    Before:
        %y = aten.silu.default(%x) : (tensor<$*S x $E>) -> tensor<$*S x $E>
    After:
        %s = aten.sigmoid.default(%x)
        %y = aten.mul.Tensor(%x, %s)
    where is_single_or_double($E) else "torch computes the silu of this dtype in float32"
    bound 1e-6 relative, 1e-7 absolute: "two roundings for one"
    for   $S = [2, 3]

`%name` is a value. `$name` is a hole: an element type, a size or an argument that is no tensor;
`$*S` is any number of sizes. A hole that occurs twice must match the same thing twice; so must a
value. A hole for an optional tensor matches the tensor or its absence. An argument written `$?c`
before may be a number known only at run time, which `$c` refuses.
`{%a, %b}` in an argument list matches the two in either order. An omitted argument must have its
default; after `…` it may be anything. `f32` is that element type. A type may be omitted: before,
it matches anything; after, it is inferred. The last line before defines the value that the last
line after replaces; `%y = %x` forwards an existing value. Its op may have more results,
`%y, %m = op(…)`, which a clause `where is_unread(%m)` must name.

An op may be of any dialect. Ops without a PyTorch schema take values first and then fields by name;
an omitted field is absent. `%w = weight` before is a weight of the program;
`%v = weight recipe-name(%w, axis=$a)` after is a weight that a recipe derives from it; a mapping
among the arguments is expanded to parameters.
`$op of family(%x, …, field=$c)` before matches an op of one of the classes that the module lists
under the name `family`, or, except in the last line, of that family of ops
(`ir/declared/families.py`). After, `$op(%z, …, field=$d)` is a copy of that op with other operands
or fields. A line after that redefines a value of a line before is inserted in its position. The
last line before may be an op without results, which is erased: the replacement is `nothing`.
`option $c = NAME: "description"` is a field of the rewrite, whose default the module has under that
name. After `…` in a line after, an op's arguments are those of the op of that name before.
`%y = function(%x, $c)` after is a value that a function of the module writes; its first parameter
is the rewriter. `$xs` for a list of tensors is that list, and `[%a, %b]` a list of two.
`-> $T` is a whole type, and after, `tensor<*sizes($S) x of($E)>` a computed one. Several results
of the op before may be replaced: those that lines after define under their names. `%*y` in both
last lines is every result of an op of a family, and the function's result for each; `%y` is the
first of them.

A `where` clause names a predicate of the rule's module. If it does not hold, the rule refuses with
the text after `else` (in this line or the next), in which `{c}` is the value of `$c`; without a
text the rule does not match. Arguments after may be `function($c, …)`, computed by a function of
the module.
`where p($c) for termination` (`cost`, `overflow`, `target`, `accuracy`, `choice`) states the
purpose of a condition without which the rule would also be correct
(`src/stepwell/validation/rules/guards.py`).
`unless guard(%y)` calls a guard that states its own reason: it returns a `Refusal`, or None.
`with $p = function(%x, $c)` computes once what later conditions and lines need. If it returns None,
the rule does not match; if it returns a `Refusal`, the rule refuses. A function of a clause may
take the program as a parameter `program`.
`loses NAME` names a class of numbers, a `Deviation` of the module, that every application may lose.
`proven is_never_nan(%x) else "sentence"` is about classes of numbers (NaN, infinities, zeros): the
predicate takes the program too. If it does not hold, the contract of the lowering decides whether
the rule may lose what the sentence states. `not of empty tensors` excludes empty tensors.
`bound 2.4e-7 of |%x| + |%y|: "reason"` states that a result may move by this multiple of these
magnitudes, element by element; `relative` is of the result, `absolute` is a number. The rounding of
both sides is derived from the text (`src/stepwell/validation/derived.py`) and used by `check`. It
may not exceed the stated bound, unless the numbers are followed by `as stated`: the rule then
computes something else on purpose. `bound of roundings: "reason"` states no numbers.
`bound by function(%y): "reason"` computes the bound of each application by a function of the
module.
`for` gives the values of holes in the example for documentation and tests, the types of values, and
the keys of weights; it may name arguments that `…` matches.
`for %x lies as $order` states the memory order of the port of an argument or result in the example.
`for %x = op(…)` is an additional op of the example: it defines a value, or reads one besides the
others.
`not for $k = [3, 3]; %x = op(…)` is a program that the rule does not match, which shows that a
condition is needed: the example with these changes; `%w = "tensor<4xf32>"` is no weight.

`for each $op, $form of (clone, alias), (detach, alias)` (`for each $op of clone, detach`) expands
one rule to several, by replacing the names in the text word for word.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, TypeAlias

from stepwell.ir.declared.bounds import roundings
from stepwell.ir.diagnostics import ParseFailure
from stepwell.ir.rewriting.rewrite import EXACT, Bound
from stepwell.translate.rules.terms import Computed, Hole, Term, Terms, ValueName


@dataclass(frozen=True)
class TypePattern:
    """The pattern `tensor<$*S x 4 x $E>`: sizes and the element type, each a hole or a literal."""

    sizes: tuple[int | Hole | Computed, ...]
    rest: Hole | Computed | None
    """The hole of any number of sizes in front of `sizes`, if there is one."""
    element: Hole | Computed | str


AnyType: TypeAlias = "TypePattern | Hole | None"
"""A tensor type, a hole for a whole one, or nothing that is stated."""

NOTHING = "nothing"
"""The replacement of an op without results."""
WEIGHT = "weight"
"""The op of a line that is a weight of the program."""


@dataclass(frozen=True)
class Line:
    """A line of a rule, `%result = op(arguments) : (types) -> type`; `forwards`: a value, no op.

    `is_open` states that omitted arguments may be anything. `family` is the name under which a
    module lists the classes that `op`, the name of a hole, matches. `recipe` derives a weight.
    """

    result: str
    op: str
    arguments: tuple[tuple[str | None, Term], ...]
    unordered: bool = False
    operand_types: tuple[AnyType, ...] = ()
    result_types: tuple[AnyType, ...] = ()
    forwards: ValueName | None = None
    more: tuple[str, ...] = ()
    is_open: bool = False
    family: str = ""
    recipe: str = ""
    is_every: bool = False
    """Whether it represents every result, of any number."""

    @property
    def results(self) -> tuple[str, ...]:
        """Return the names of the line's results."""
        return (self.result, *self.more) if self.result else ()

    @property
    def is_again(self) -> bool:
        """Whether the line copies an op of a family."""
        return self.op.startswith("$")


@dataclass(frozen=True)
class Where:
    """`where predicate(…) else "sentence"`, `unless guard(…)` or `with $binds = …`: a condition."""

    predicate: str
    arguments: tuple[Term, ...]
    refusal: str | None = None
    negated: bool = False
    is_guard: bool = False
    binds: str = ""
    label: str = ""
    """Its purpose (one of `LABELS`), if the rule is correct without it."""


@dataclass(frozen=True)
class Option:
    """`option $name = default: "meaning"`: a field of the rewrite, and the name of its default."""

    name: str
    default: str
    meaning: str


@dataclass(frozen=True)
class Miss:
    """A counterexample, `not for …`: the rule's example with these holes, types and ops changed."""

    text: str
    example: dict[str, Any]
    beside: tuple[Line, ...]


@dataclass(frozen=True)
class Rule:
    """A rule that was parsed from its text."""

    name: str
    text: str
    prose: str
    before: tuple[Line, ...]
    after: tuple[Line, ...]
    where: tuple[Where, ...] = ()
    proven: tuple[Where, ...] = ()
    takes_empty: bool = True
    bound: Bound = EXACT
    example: dict[str, Any] = field(default_factory=dict[str, Any])
    loses: str = ""
    options: tuple[Option, ...] = ()
    beside: tuple[Line, ...] = ()
    """Additional lines of the example."""
    bound_by: Computed | None = None
    """The function that computes the error bound of an application."""
    lies: Mapping[str, Term] = field(default_factory=dict[str, Term])
    """The order of axes in memory that a port declares in the example."""
    misses: tuple[Miss, ...] = ()
    """Variants of the example that the rule does not match."""
    others: tuple[Rule, ...] = ()
    """The other rules that `for each` expands the text to."""

    @property
    def forms(self) -> tuple[Rule, ...]:
        """Return the rule, and the other rules to which `for each` expands its text."""
        return (self, *self.others)

    @property
    def root(self) -> Line:
        """Return the line whose op the rule replaces."""
        return self.before[-1]


LABELS = ("termination", "cost", "overflow", "target", "accuracy", "choice")
"""Purposes of conditions without which a rule is also correct (`validation/rules/guards.py`)."""
_LABEL = rf"(?: for (?P<label>{'|'.join(LABELS)}))?"
_START = re.compile(r"^rule (?P<name>[a-z0-9]+(?:-[a-z0-9]+)*)$", re.M)
_LINE = re.compile(
    r"^%(?P<every>\*?)(?P<result>\w+)(?P<more>(?:, %\w+)*) = "
    r"(?:%(?P<value>\w+)|(?P<weight>weight)(?P<type> :.*)?"
    r"|(?:weight (?P<recipe>[\w.-]+)|(?P<op>[\w.]+|\$\w+)(?: of (?P<family>\w+))?)\((?P<rest>.*))$"
)
_EACH = re.compile(r"^for each (?P<names>\$\w+(?:, \$\w+)*) of (?P<forms>(?:.+,\n)*.+)$", re.M)
_WHERE = re.compile(
    r"^(?P<kind>where|proven) (?P<not>not )?(?P<call>\w+\(.*\))"
    rf'{_LABEL}(?: else "(?P<refusal>[^"]*)")?$'
)
_WITH = re.compile(r"^with \$(?P<name>\w+) = (?P<call>\w+\(.*\))$")
_WITHOUT_RESULT = re.compile(r"^(?P<op>[\w.]+)\((?P<rest>.*)$")
_BESIDE = re.compile(r"^for (%\w+, )*%\w+ = \w[\w.]*[( :]")
_LIES = re.compile(r"^for %(?P<name>\w+) lies as (?P<order>.+)$")
_NOT_FOR = "not for "
_OPTION = re.compile(r'^option \$(?P<name>\w+) = (?P<default>\w+): "(?P<meaning>[^"]*)"$')
_UNLESS = re.compile(rf"^unless (?P<call>\w+\(.*\)){_LABEL}$")
_AS_STATED = " as stated"
_BOUND = re.compile(r'^bound (?P<terms>[^:]+): "(?P<reason>[^"]*)"$')
_BOUND_BY = re.compile(r'^bound by (?P<call>\w+\(.*\)): "(?P<reason>[^"]*)"$')
_TYPE = re.compile(r"^tensor<(?P<parts>[^<>]*)>$")


def read(text: str) -> Iterator[Rule]:
    """Parse the rules in a text, in order; the text before the first is prose.

    Raises:
        ParseFailure: names the rule and the line that cannot be parsed.
    """
    starts = list(_START.finditer(text))
    for start, following in zip(starts, [*starts[1:], None], strict=True):
        end = following.start() if following else len(text)
        written = text[start.start() : end].rstrip() + "\n"
        first, *others = (_read_rule(start["name"], form) for form in _forms(written))
        yield replace(first, text=written, others=tuple(others))


def _forms(text: str) -> Iterator[str]:
    """Yield the texts to which `for each` expands a rule's text."""
    match = _EACH.search(text)
    if match is None:
        yield text
        return
    names = [name.strip()[1:] for name in match["names"].split(",")]
    listed = re.findall(r"\(([^()]*)\)", match["forms"]) if len(names) > 1 else [match["forms"]]
    words = [word.strip() for form in listed for word in re.split(r",(?![^\[]*\])", form)]
    if len(words) % len(names):
        raise ParseFailure("`for each` names too few", f"the line {match[0]!r}")
    rest = text.replace(match[0] + "\n", "")
    for at in range(0, len(words), len(names)):
        given = dict(zip(names, words[at:], strict=False))
        yield re.sub(r"\$(\w+)", lambda hole: given.get(hole[1], hole[0]), rest)  # noqa: B023


def _read_rule(name: str, text: str) -> Rule:
    before: list[Line] = []
    after: list[Line] = []
    where: list[Where] = []
    proven: list[Where] = []
    takes_empty, loses = True, ""
    prose: list[str] = []
    bound, bound_by, example = EXACT, None, dict[str, Any]()
    options: list[Option] = []
    beside: list[Line] = []
    lies: dict[str, Term] = {}
    misses: list[Miss] = []
    block: list[Line] | None = None
    for line in _joined(text.replace("\n    else ", " else ").splitlines()[1:]):
        stripped = line.strip()
        try:
            if stripped in ("Before:", "After:"):
                block = before if stripped == "Before:" else after
            elif line.startswith("    ") and block is not None:
                if stripped != NOTHING:
                    block.append(_read_line(stripped))
            elif line.startswith("    "):
                prose.append(stripped)
            elif match := _WHERE.match(stripped):
                call = Terms(match["call"]).one()
                assert isinstance(call, Computed)
                (where if match["kind"] == "where" else proven).append(
                    Where(
                        call.function,
                        call.arguments,
                        match["refusal"],
                        bool(match["not"]),
                        label=match["label"] or "",
                    )
                )
            elif match := _UNLESS.match(stripped):
                call = Terms(match["call"]).one()
                assert isinstance(call, Computed)
                where.append(
                    Where(call.function, call.arguments, is_guard=True, label=match["label"] or "")
                )
            elif match := _WITH.match(stripped):
                call = Terms(match["call"]).one()
                assert isinstance(call, Computed)
                where.append(Where(call.function, call.arguments, binds=match["name"]))
            elif match := _OPTION.match(stripped):
                options.append(Option(match["name"], match["default"], match["meaning"]))
            elif stripped.startswith("loses "):
                loses = stripped.removeprefix("loses ")
            elif match := _BOUND_BY.match(stripped):
                call = Terms(match["call"]).one()
                assert isinstance(call, Computed)
                bound_by, bound = call, Bound(varies=True, reason=match["reason"])
            elif match := _BOUND.match(stripped):
                bound = _read_bound(match["terms"], match["reason"])
            elif stripped == "not of empty tensors":
                takes_empty = False
            elif stripped.startswith(_NOT_FOR):
                misses.append(_read_miss(stripped.removeprefix(_NOT_FOR)))
            elif _BESIDE.match(stripped):
                beside.append(_read_line(stripped.removeprefix("for ")))
            elif match := _LIES.match(stripped):
                lies[match["name"]] = Terms(match["order"]).one()
            elif stripped.startswith("for "):
                example.update(_read_example(stripped.removeprefix("for ")))
            elif stripped:
                raise ParseFailure("it is no valid line of a rule")
        except ParseFailure as error:
            raise ParseFailure(
                f"rule {name}: {error.problems[0].fact}", f"the line {stripped!r}"
            ) from None
    if not before or not (after or before[-1].result == ""):
        raise ParseFailure(f"rule {name} has nothing before or nothing after")
    if any(not line.result for line in (*before[:-1], *after)) or (after and not before[-1].result):
        raise ParseFailure(f"rule {name}: a line is no `%y = op(…)`")
    if after and after[-1].result not in before[-1].results:
        raise ParseFailure(f"rule {name}: the last lines define different values")
    return Rule(
        name,
        text,
        " ".join(prose),
        tuple(before),
        tuple(after),
        tuple(where),
        tuple(proven),
        takes_empty,
        bound,
        example,
        loses,
        tuple(options),
        tuple(beside),
        bound_by,
        lies,
        tuple(misses),
    )


def _joined(lines: Sequence[str]) -> Iterator[str]:
    """Join lines with an open bracket, and `not for` after a comma, with the next one."""
    text = ""
    for line in lines:
        text = f"{text} {line.strip()}" if text else line
        if text.count("(") + text.count("[") > text.count(")") + text.count("]"):
            continue
        if text.startswith(_NOT_FOR) and text.endswith((",", ";")):
            continue
        yield text
        text = ""
    if text:
        yield text


def _read_line(text: str) -> Line:
    match = _LINE.match(text)
    if match is None and (bare := _WITHOUT_RESULT.match(text)):
        terms = Terms(bare["rest"])
        given = tuple(terms.until(")"))
        return Line("", bare["op"], given, is_open=terms.is_open)
    if match is None:
        raise ParseFailure("it is no `%y = op(…)`")
    if match["value"]:
        return Line(match["result"], "", (), forwards=ValueName(match["value"]))
    if match["weight"]:
        stated = _read_type(match["type"].strip().removeprefix(":")) if match["type"] else None
        return Line(match["result"], WEIGHT, (), result_types=(stated,))
    more = tuple(name.strip()[1:] for name in match["more"].split(",")[1:])
    terms = Terms(match["rest"])
    unordered = terms.take("{")
    arguments = list(terms.until("}" if unordered else ")"))
    if unordered:
        terms.take(",")
        arguments += terms.until(")")
    operand_types: tuple[AnyType, ...] = ()
    result_types: tuple[AnyType, ...] = ()
    rest = terms.rest()
    if rest:
        if not rest.startswith(":") or "->" not in rest:
            raise ParseFailure("behind the arguments stands no `: (types) -> type`")
        given, result = rest[1:].split("->")
        operand_types = tuple(_read_type(part) for part in _split_types(given))
        result_types = tuple(_read_type(part) for part in _split_types(result))
    return Line(
        match["result"],
        match["op"] or WEIGHT,
        tuple(arguments),
        unordered,
        operand_types,
        result_types,
        more=more,
        is_open=terms.is_open,
        family=match["family"] or "",
        recipe=match["recipe"] or "",
        is_every=bool(match["every"]),
    )


def _split_types(text: str) -> list[str]:
    inner = text.strip()
    if inner.startswith("(") and inner.endswith(")"):
        inner = inner[1:-1]
    return [part.strip() for part in re.split(r",(?![^<]*>)", inner) if part.strip()]


def _read_type(text: str) -> AnyType:
    text = text.strip()
    if text in ("…", ""):
        return None
    if re.fullmatch(r"\$\w+", text):
        return Hole(text[1:])
    match = _TYPE.match(text)
    if match is None:
        raise ParseFailure(f"{text!r} is no tensor type")
    parts = [part.strip() for part in match["parts"].split(" x ")]
    rest = None
    if parts[0].startswith("$*"):
        rest = Hole(parts.pop(0)[2:])
    elif parts[0].startswith("*"):
        rest = _part(parts.pop(0)[1:])
        assert isinstance(rest, Computed)
    sizes = [int(part) if part.isdigit() else _part(part) for part in parts[:-1]]
    element = _part(parts[-1]) if parts[-1].startswith("$") or "(" in parts[-1] else parts[-1]
    return TypePattern(tuple(sizes), rest, element)


def _part(text: str) -> Hole | Computed:
    """Parse a size or an element type that is not a literal."""
    part = Terms(text).one()
    if not isinstance(part, Hole | Computed):
        raise ParseFailure(f"{text!r} is no part of a type")
    return part


def _read_bound(terms: str, reason: str) -> Bound:
    if terms == "of roundings":
        return roundings(reason)
    is_stated = terms.endswith(_AS_STATED)
    terms = terms.removesuffix(_AS_STATED)
    values = {"relative": 0.0, "absolute": 0.0}
    magnitudes: list[tuple[float, tuple[str, ...]]] = []
    for term in terms.split(","):
        number, _, kind = term.strip().partition(" ")
        if kind.startswith("of "):
            magnitudes.append((float(number), tuple(re.findall(r"\|(%\w+)\|", kind))))
        elif kind in values:
            values[kind] = float(number)
        else:
            raise ParseFailure(f"a bound is relative or absolute, or of magnitudes, not {kind!r}")
    return Bound(
        values["relative"],
        values["absolute"],
        reason,
        magnitudes=tuple(magnitudes),
        derived=bool(magnitudes or values["relative"]) and not is_stated,
    )


def _read_miss(text: str) -> Miss:
    parts = text.split("; ")
    ops = [part for part in parts if _BESIDE.match(f"for {part}")]
    holes = [_read_example(part) for part in parts if part not in ops]
    return Miss(text, {k: v for each in holes for k, v in each.items()}, (*map(_read_line, ops),))


def _read_example(text: str) -> dict[str, Any]:
    found: dict[str, Any] = {}
    for part in re.split(r",\s*(?=[$%]\w+ =)", text):
        name, _, value = part.partition("=")
        held = value.strip()
        bare = re.fullmatch(r"[A-Za-z][\w.]*", held) and held not in ("none", "true", "false")
        found[name.strip()[1:]] = held if bare else Terms(held).one()
    return found
