"""Prove candidates, write them as rules, and weaken the conditions of the rules.

A candidate is decided as it is: for sizes that are symbols if its nodes take such, else for the
sizes of its grammar. As a rule, its numbers are replaced by placeholders: first any numbers, then
numbers under a condition (`CONDITIONS`), then the numbers that were enumerated. The first rule that
`stepwell prove` proves is kept.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from itertools import product
from typing import Any

from stepwell.cost_model.discovery.candidates import program_of
from stepwell.cost_model.discovery.enumeration import NAMES, Candidate, Tree
from stepwell.cost_model.discovery.grammar import RESULT, Grammar, Node, input_type
from stepwell.ir.declared.engine_behavior import changes_special_values
from stepwell.ir.diagnostics import StepwellError
from stepwell.ir.rewriting.rewrite import EXACT
from stepwell.ir.sizes.size import Size
from stepwell.translate.rewrites.xnnpack.nodes.clamp_of_absolute import is_at_most_zero
from stepwell.translate.rules import read_rules
from stepwell.validation.certificates.exhaustive import NotOfBytes, apart_on_all
from stepwell.validation.rules.decision import Proof, Question, decide
from stepwell.validation.rules.numbers import Path, Tokens
from stepwell.validation.rules.verdicts import Verdict, prove

_CLAIMS = {Proof.BITS: "bit for bit", Proof.ZEROS: "but for the sign of a zero"}


def is_at_least_zero(number: float) -> bool:
    """Whether a number is not negative."""
    return number >= 0


def is_normal(number: float) -> bool:
    """Whether a number is positive, and no denormal number in half precision: the product of a
    smaller one may round to 0.
    """
    return number >= 2**-14


CONDITIONS = (None, is_at_least_zero, is_at_most_zero, is_normal)
"""The conditions on one number that are tried, the weakest first; None is no condition."""


def decided(grammar: Grammar, nodes: Sequence[Node], pair: Candidate) -> str:
    """Return how a candidate is proved, `bit for bit, all sizes`; empty if it is not."""
    symbols: dict[str, Any] = {name: Size.symbol(name.lower()) for name in grammar.sizes[0]}
    small = [_small(sizes) for sizes in grammar.sizes]
    for choices, scope in (([symbols], "all sizes"), (small, "sizes that were tried")):
        with suppress(StepwellError):  # The nodes may take no symbols.
            proof = min(_decided(grammar, nodes, pair, sizes) for sizes in choices)
            program = program_of(grammar, nodes, [pair.after], small[0])
            if any(map(changes_special_values, program.method().body.block.ops)):
                scope += ", but for special values that engines change"
            return f"{_CLAIMS[proof]}, {scope}" if proof in _CLAIMS else ""
    return ""


def _decided(
    grammar: Grammar, nodes: Sequence[Node], pair: Candidate, sizes: Mapping[str, Any]
) -> Proof:
    program = program_of(grammar, nodes, [pair.before, pair.after], sizes)
    last = program.method().body.block.last_op
    assert last is not None
    one, other = last.operands
    if one.type != other.type:
        return Proof.NONE
    with suppress(NotOfBytes):
        if apart_on_all(program, pairs=[(one, other)]) is None:
            return Proof.BITS
    return decide(Question(one, other, program.weights, Tokens(), Path(), EXACT)).proof


def _small(sizes: Mapping[str, int]) -> dict[str, int]:
    return {name: size if size <= 6 else 4 for name, size in sizes.items()}


# -- rules as text -------------------------------------------------------------------------------


def _lines(
    tree: Tree, nodes: Sequence[Node], holes: Mapping[str, str], letters: Iterator[str]
) -> list[str]:
    """Return the lines of one side of a rule, the last of which defines `%result`."""
    lines: list[str] = []
    names: dict[Tree, str] = {}

    def name_of(part: Tree) -> str:
        if isinstance(part, int):
            return f"%{NAMES[part]}"
        if part not in names:
            node, operands = nodes[part[0]], ", ".join(map(name_of, part[1]))
            if any(parameter.is_list for parameter in node.reader.values):
                operands = f"[{operands}]"
            literals = {"True": "true", "False": "false"} | {n: f"${h}" for n, h in holes.items()}
            written = [f"{name}={literals.get(text, text)}" for name, text in node.arguments]
            names[part] = "%result" if part == tree else f"%{next(letters)}"
            lines.append(f"    {names[part]} = {node.op}({', '.join([operands, *written])})")
        return names[part]

    last = name_of(tree)
    return lines or [f"    %result = {last}"]


def _nodes_of(tree: Tree, nodes: Sequence[Node]) -> list[Node]:
    if isinstance(tree, int):
        return []
    return [nodes[tree[0]], *(node for part in tree[1] for node in _nodes_of(part, nodes))]


def _is_expressible(node: Node) -> bool:
    """Whether the notation of rules has all parts of a node: no constant operands, no arguments
    that depend on sizes, no stated type.
    """
    values = {parameter.name for parameter in node.reader.values}
    return not any(
        name in values or name == RESULT or ":" in text or re.search(r"\bs\d", text)
        for name, text in node.arguments
    )


def rule_text(
    name: str,
    grammar: Grammar,
    nodes: Sequence[Node],
    pair: Candidate,
    holes: Mapping[str, str],
    conditions: Sequence[Callable[[float], bool] | None],
) -> str:
    """Return a candidate as the text of a rule.

    Args:
        holes: the placeholder for some of the numbers, by their text.
        conditions: a predicate for each placeholder, or None.
    """
    before = _lines(pair.before, nodes, holes, iter("abcdefgh"))
    after = _lines(pair.after, nodes, holes, iter("pqrs"))
    where = [f"where {test.__name__}(${hole})"
             for hole, test in zip(holes.values(), conditions, strict=True) if test]  # fmt: skip
    example = [f"${hole} = {number}" for number, hole in holes.items()] + [
        f'%{letter} = "{input_type(kind, _small(grammar.sizes[0]))}"'
        for letter, kind in zip(NAMES, grammar.inputs, strict=False)
        if re.search(f"%{letter}\\b", " ".join(before))
    ]
    head = [f"rule {name}", "    Found by enumeration.", "Before:"]
    return "\n".join([*head, *before, "After:", *after, *where, f"for {', '.join(example)}", ""])


def proved_rule(
    name: str, grammar: Grammar, nodes: Sequence[Node], pair: Candidate
) -> tuple[str, Verdict] | None:
    """Return the most general rule of a candidate that is proved, with its verdict; None if none
    is, or the notation of rules cannot express it.
    """
    before = _nodes_of(pair.before, nodes)
    if not all(map(_is_expressible, (*before, *_nodes_of(pair.after, nodes)))):
        return None
    numbers = dict.fromkeys(text for node in before for _, text in node.arguments
                            if re.fullmatch(r"-?\d+\.\d+", text))  # fmt: skip
    holes = {number: f"n{at}" for at, number in enumerate(numbers)}
    choices = [
        each
        for each in product(CONDITIONS, repeat=len(holes))
        if all(test is None or test(float(n)) for test, n in zip(each, holes, strict=True))
    ]
    choices.sort(key=lambda each: sum(map(bool, each)))
    attempts = [(holes, each) for each in choices] if 0 < len(holes) <= 2 else []
    is_open = False
    for placeholders, conditions in [*attempts, ({}, ())]:
        if is_open and placeholders:
            continue  # The solver decides no stronger condition either, but perhaps the numbers.
        text = rule_text(name, grammar, nodes, pair, placeholders, conditions)
        verdict = _verdict(text)
        if verdict is not None and verdict.is_proved:
            return text, verdict
        is_open |= verdict is None or verdict.kind == "open"
    return None


def _verdict(text: str) -> Verdict | None:
    """Return the verdict on a rule; None if its text is no rule."""
    try:
        (rewrite,) = read_rules(text, globals())
        return prove(rewrite)  # pyright: ignore[reportArgumentType]
    except StepwellError:
        return None
