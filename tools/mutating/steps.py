"""Steps: a rule that is proved, a direction, a place."""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cache, cached_property, lru_cache
from typing import Any

from tools.mutating.programs import case, name_of
from xdsl.ir import Operation

from stepwell.ir.core import WeightOp
from stepwell.ir.diagnostics import StepwellError
from stepwell.ir.rewriting.cleanup import RemoveDeadCode
from stepwell.ir.rewriting.rewrite import History
from stepwell.ir.rewriting.rewriter import Rewriter
from stepwell.proving.known import known
from stepwell.proving.verdicts import hash_of, rules
from stepwell.translate.rules.compiling import Matched, Matcher, compile_rule
from stepwell.translate.rules.notation import Rule
from stepwell.translate.rules.rewrite import RuleRewrite
from stepwell.translate.rules.writing import Writer

MOST_STEPS = 6
DIALECTS = ("aten.", "quant.")
"""Of the program's level."""
_FAILS = (StepwellError, RuntimeError, ValueError, TypeError, IndexError, KeyError, AttributeError,
          AssertionError, NotImplementedError)  # fmt: skip


@dataclass(frozen=True, eq=False)
class Way:
    """A proved rule in one direction."""

    name: str
    rewrite: RuleRewrite
    form: Rule
    backwards: bool

    @cached_property
    def turned(self) -> Rule:
        """The rule from behind, without what it asks."""
        return replace(
            self.form, before=self.form.after, after=self.form.before, where=(), proven=()
        )

    @cached_property
    def matcher(self) -> Matcher:
        """What looks at an op."""
        if self.backwards:
            return compile_rule(self.turned, self.rewrite.namespace)
        return lambda op, program: (
            self.rewrite.match(op, program) if isinstance(op, self.rewrite.anchors) else None
        )

    @property
    def root(self) -> str:
        """The operator at which it is looked for."""
        return (self.turned if self.backwards else self.form).root.op

    def apply(self, op: Operation, program: Any) -> bool:
        """Write what it makes of an op; whether it could be."""
        match = self.matcher(op, program)
        if not isinstance(match, Matched):
            return False
        rw = Rewriter(op, program)
        if not self.backwards:
            self.rewrite.written(match, rw)
            return True
        values = Writer(self.turned, self.rewrite.namespace).write(op, match.found, rw)
        for name, old in zip(self.turned.root.results, op.results, strict=True):
            new = values[f"%{name}"]
            owner = new.owner
            if old.type != new.type or not isinstance(owner, self.rewrite.anchors):
                return False
            if not isinstance(self.rewrite.match(owner, program), Matched):
                return False
            rw.replace_value(old, new)
        rw.erase(op)
        return True


def _names(lines: Any) -> set[str]:
    """The values and holes that lines speak of, but for types."""
    return {str(term) for line in lines for _, term in line.arguments for term in _terms(term)}


def _terms(term: Any) -> list[Any]:
    return [each for item in term for each in _terms(item)] if isinstance(term, list) else [term]


def _is_plain(rule: Rule) -> bool:
    """Whether what stands after is ops alone, which name all that stands before."""
    ops = all("." in line.op and not line.recipe and not line.is_again for line in rule.after)
    reads = {name for name in _names(rule.before) if name[:1] in "%$"}
    made = {f"%{name}" for line in rule.before for name in line.results}
    return ops and reads - made <= _names(rule.after) and len(rule.before) > 0


@cache
def ways() -> list[Way]:
    """Rules of the program's level that are proved, forwards, and backwards where they can be."""
    every: list[Way] = []
    for name, rewrite in rules().items():
        verdict = known().get(hash_of(rewrite.rule))
        if verdict is None or not verdict.is_proved:
            continue
        for form in rewrite.rule.forms:
            lines = (*form.before, *form.after)
            if not all(line.op.startswith(DIALECTS) for line in lines):
                continue
            every.append(Way(name, rewrite(), form, False))
            if _is_plain(form):
                every.append(Way(name, rewrite(), form, True))
    return every


@cache
def _by_root() -> dict[str, list[Way]]:
    by_root: dict[str, list[Way]] = {}
    for way in ways():
        by_root.setdefault(way.root, []).append(way)
    return by_root


def _ops(program: Any) -> Sequence[Operation]:
    return [op for op in program.method().body.block.ops if not isinstance(op, WeightOp)]


@lru_cache(maxsize=8)
def mutated(
    kind: str, seed: int, left_out: frozenset[int] = frozenset()
) -> tuple[Any, tuple[str, ...]]:
    """A variant of the program of a seed, and its steps."""
    draw = random.Random(seed)
    program = case(kind, name_of(kind, seed)).program
    steps: list[str] = []
    for at in range(draw.randint(1, MOST_STEPS)):
        picks = random.Random(draw.random())
        if at not in left_out and (step := _step(program, picks)) is not None:
            program, text = step
            steps.append(f"{at}: {text}")
    return program, tuple(steps)


def _step(program: Any, picks: random.Random) -> tuple[Any, str] | None:
    places = _ops(program)
    tries = [(at, way) for at, op in enumerate(places) for way in _by_root().get(op.name, ())]
    picks.shuffle(tries)
    for at, way in tries[:24]:
        try:
            if not isinstance(way.matcher(places[at], program), Matched):
                continue
            copy = program.clone()
            if way.apply(_ops(copy)[at], copy):
                RemoveDeadCode().apply(copy, History())
                copy.verify()
                turn = " backwards" if way.backwards else ""
                return copy, f"{way.name}{turn} at {places[at].name}"
        except _FAILS:
            continue
    return None
