"""Prove candidates, write them as rules, and weaken the conditions of the rules.

A candidate is decided as it is: for sizes that are symbols if its nodes take such, else for the
sizes of its grammar. As a rule, its numbers are replaced by placeholders: first any numbers, then
numbers under a condition (`CONDITIONS`), then the numbers that were enumerated. The first rule that
`stepwell prove` proves is kept.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from functools import partial
from itertools import product
from typing import Any

from stepwell.cost_model.discovery.candidates import program_of
from stepwell.cost_model.discovery.enumeration import NAMES, Candidate, Tree
from stepwell.cost_model.discovery.evaluation import FAILS, shape_of
from stepwell.cost_model.discovery.grammar import RESULT, Choice, Grammar, Node, input_type
from stepwell.ir.declared.engine_behavior import changes_special_values
from stepwell.ir.rewriting.rewrite import EXACT
from stepwell.ir.sizes.size import Size
from stepwell.translate.rules import read_rules
from stepwell.validation.certificates.exhaustive import NotOfBytes, apart_on_all
from stepwell.validation.rules.decision import Proof, Question, decide
from stepwell.validation.rules.numbers import Path, Tokens
from stepwell.validation.rules.verdicts import Verdict, prove

_SAID = {Proof.BITS: "bit for bit", Proof.ZEROS: "but for the sign of a zero"}


def is_at_least_zero(number: float) -> bool:
    """Whether a number is not negative."""
    return number >= 0


def is_at_most_zero(number: float) -> bool:
    """Whether a number is not positive."""
    return number <= 0


def is_normal(number: float) -> bool:
    """Whether a number is positive, and no denormal number in half precision: the product of a
    smaller one may round to 0.
    """
    return number >= 2**-14


ENGINES = ", but for special values that engines change"
CONDITIONS = ("", "is_at_least_zero", "is_at_most_zero", "is_normal")
"""The conditions on one number that are tried, the weakest first."""


def decided(grammar: Grammar, nodes: Sequence[Node], found: Candidate) -> str:
    """Return how a candidate is proved, `bit for bit, all sizes`; empty if it is not."""
    symbols: dict[str, Any] = {name: Size.symbol(name.lower()) for name in grammar.sizes[0]}
    small = [_small(sizes) for sizes in grammar.sizes]
    for choices, said in (([symbols], "all sizes"), (small, "sizes that were tried")):
        with suppress(*FAILS):  # The nodes may take no symbols.
            least = min(_decided(grammar, nodes, found, sizes) for sizes in choices)
            return (
                f"{_SAID[least]}, {said}{_special(grammar, nodes, found)}" if least in _SAID else ""
            )
    return ""


def _special(grammar: Grammar, nodes: Sequence[Node], found: Candidate) -> str:
    """Return the exception for nodes of the second term whose engines change special values."""
    program = program_of(grammar, nodes, [found.after], _small(grammar.sizes[0]))
    ops = program.method().body.block.ops
    return ENGINES if any(map(changes_special_values, ops)) else ""


def _decided(
    grammar: Grammar, nodes: Sequence[Node], found: Candidate, sizes: Mapping[str, Any]
) -> Proof:
    program = program_of(grammar, nodes, [found.before, found.after], sizes)
    last = program.method().body.block.last_op
    assert last is not None
    one, other = last.operands
    if one.type != other.type:
        return Proof.NONE
    with suppress(NotOfBytes):
        if apart_on_all(program, pairs=[(one, other)]) is None:
            return Proof.BITS
    asked = Question(one, other, program.weights, Tokens(), Path(), EXACT)
    return decide(asked).proof


# -- rules as text -------------------------------------------------------------------------------


@dataclass
class _Text:
    """The lines of one side of a rule."""

    grammar: Grammar
    nodes: Sequence[Node]
    holes: Mapping[Any, str]
    lines: list[str] = field(default_factory=list[str])
    names: dict[Tree, str] = field(default_factory=dict[Tree, str])

    def written(self, tree: Tree, letters: Iterator[str]) -> str:
        """Add the lines of a term; return the name of its value."""
        if isinstance(tree, int):
            return f"%{NAMES[tree]}"
        if tree not in self.names:
            operands = [self.written(part, letters) for part in tree[1]]
            self.names[tree] = f"%{next(letters)}"
            self.lines.append(f"{self.names[tree]} = {self._call(tree, operands)}")
        return self.names[tree]

    def _call(self, tree: tuple[int, tuple[Tree, ...]], operands: Sequence[str]) -> str:
        node = self.nodes[tree[0]]
        sizes = _small(self.grammar.sizes[0])
        program = program_of(self.grammar, self.nodes, [tree[1][0]], sizes)
        last = program.method().body.block.last_op
        assert last is not None
        fields = node.fields(shape_of(last.operands[0].type)) or {}
        given, parts = iter(operands), list[str]()
        for parameter in node.reader.parameters:
            if parameter.is_value and parameter.is_list:
                parts.append(f"[{', '.join(given)}]")
            elif parameter.is_value and parameter.name not in fields:
                operand = next(given, None)
                parts += [] if operand is None else [operand]
            elif parameter.name in fields:
                held = fields[parameter.name]
                text = str(held).lower() if isinstance(held, bool) else str(held)
                if isinstance(held, float) and held in self.holes:
                    text = f"${self.holes[held]}"
                is_named = parameter.by_name or not node.op.startswith("aten.")
                parts.append(f"{parameter.name}={text}" if is_named else text)
        return f"{node.op}({', '.join(parts)})"


def _numbers(nodes: Sequence[Node], tree: Tree) -> list[Any]:
    if isinstance(tree, int):
        return []
    own = [v for _, v in nodes[tree[0]].arguments if isinstance(v, float)]
    return [*own, *(each for part in tree[1] for each in _numbers(nodes, part))]


def is_expressible(nodes: Sequence[Node], tree: Tree) -> bool:
    """Whether the notation of rules has all parts of a term: no constant operands, no arguments
    that depend on sizes.
    """
    if isinstance(tree, int):
        return True
    node = nodes[tree[0]]
    values = {parameter.name for parameter in node.reader.values}
    for name, held in node.arguments:
        of_sizes = isinstance(held, Choice) and held.label[:1] not in "[-0123456789"
        if name in values or name == RESULT or of_sizes or ":" in str(held):
            return False
    return all(is_expressible(nodes, part) for part in tree[1])


def rule_text(
    name: str,
    grammar: Grammar,
    nodes: Sequence[Node],
    found: Candidate,
    holes: Mapping[Any, str],
    conditions: Mapping[str, str],
) -> str:
    """Return a candidate as the text of a rule, with placeholders for some numbers."""
    before = _Text(grammar, nodes, holes)
    after = _Text(grammar, nodes, holes)
    last = before.written(found.before, iter("abcdefgh"))
    new = after.written(found.after, iter("pqrs"))
    lines = [f"rule {name}", "    Found by enumeration.", "Before:"]
    lines += [f"    {line}" for line in _renamed(before.lines, last)]
    lines += ["After:"]
    lines += [f"    {line}" for line in _renamed(after.lines, new)]
    lines += [] if not isinstance(found.after, int) else [f"    %y_ = {new}"]
    lines += [f"where {predicate}(${hole})" for hole, predicate in conditions.items() if predicate]
    example = [f"${hole} = {number}" for number, hole in holes.items()]
    example += [
        f'%{NAMES[number]} = "{input_type(text, _small(grammar.sizes[0]))}"'
        for number, text in enumerate(grammar.inputs)
        if f"%{NAMES[number]}" in " ".join(before.lines)
    ]
    return "\n".join([*lines, f"for {', '.join(example)}"]).replace("%y_", "%result") + "\n"


def _small(sizes: Mapping[str, int]) -> dict[str, int]:
    return {name: size if size <= 6 else 4 for name, size in sizes.items()}


def _renamed(lines: Sequence[str], last: str) -> Iterator[str]:
    for at, line in enumerate(lines):
        is_last = at == len(lines) - 1 and line.startswith(f"{last} =")
        yield f"%result{line[len(last) :]}" if is_last else line


@dataclass(frozen=True)
class FoundRule:
    """A rule that was found, with its verdict."""

    text: str
    verdict: Verdict


def proved_rule(
    name: str, grammar: Grammar, nodes: Sequence[Node], found: Candidate
) -> FoundRule | None:
    """Return the most general rule of a candidate that is proved; None if none is, or the notation
    of rules cannot express it.
    """
    if not is_expressible(nodes, found.before) or not is_expressible(nodes, found.after):
        return None
    numbers = list(dict.fromkeys([*_numbers(nodes, found.before)]))
    holes = {number: f"n{at}" for at, number in enumerate(numbers)}
    write = partial(rule_text, name, grammar, nodes, found)
    choices = [dict(zip(holes.values(), picked, strict=True))
               for picked in product(CONDITIONS, repeat=len(holes))]  # fmt: skip
    choices.sort(key=lambda each: sum(map(bool, each.values())))
    for conditions in choices if holes and len(holes) <= 2 else ():
        if all(_holds(conditions[hole], number) for number, hole in holes.items()):
            text = write(holes, conditions)
            verdict = _verdict(text)
            if verdict is None or verdict.kind == "open":
                break  # The solver decides no stronger condition either, but perhaps the numbers.
            if verdict.is_proved:
                return FoundRule(text, verdict)
    text = write({}, {})
    verdict = _verdict(text)
    return FoundRule(text, verdict) if verdict is not None and verdict.is_proved else None


def _holds(predicate: str, number: float) -> bool:
    return not predicate or globals()[predicate](number)


def _verdict(text: str) -> Verdict | None:
    """Return the verdict on a rule; None if its text is no rule."""
    try:
        (rewrite,) = read_rules(text, globals())
        return prove(rewrite)  # pyright: ignore[reportArgumentType]
    except FAILS:
        return None
