"""Proved rules, applied forwards and backwards, derive equivalent programs."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cache, cached_property
from typing import Any

from xdsl.ir import Operation

from stepwell.ir.core import WeightOp
from stepwell.ir.diagnostics import StepwellError
from stepwell.ir.program import Program
from stepwell.ir.rewriting.cleanup import RemoveDeadCode
from stepwell.ir.rewriting.rewrite import History
from stepwell.ir.rewriting.rewriter import Rewriter
from stepwell.translate.rules.compiling import Matched, Matcher, compile_rule
from stepwell.translate.rules.notation import Rule
from stepwell.translate.rules.rewrite import RuleRewrite
from stepwell.translate.rules.writing import RuleWriter
from stepwell.validation.rules.hashes import hash_of
from stepwell.validation.rules.kept_verdicts import known
from stepwell.validation.rules.verdicts import rules

DIALECTS = ("aten.", "quant.")
"""Prefixes of the names of ops at the program's level."""
_FAILS = (StepwellError, RuntimeError, ValueError, TypeError, IndexError, KeyError, AttributeError,
          AssertionError, NotImplementedError)  # fmt: skip
"""Exceptions of a rule that is applied backwards to a program it was not written for."""


@dataclass(frozen=True, eq=False)
class RuleDirection:
    """A proved rule in one direction."""

    name: str
    rewrite: RuleRewrite
    form: Rule
    backwards: bool

    def __str__(self) -> str:
        return f"{self.name}{' backwards' if self.backwards else ''}"

    @cached_property
    def turned(self) -> Rule:
        """The inverted rule, without its conditions."""
        return replace(
            self.form, before=self.form.after, after=self.form.before, where=(), proven=()
        )

    @cached_property
    def matcher(self) -> Matcher:
        """The matcher that is applied to an op."""
        if self.backwards:
            return compile_rule(self.turned, self.rewrite.namespace)
        return lambda op, program: (
            self.rewrite.match(op, program) if isinstance(op, self.rewrite.anchors) else None
        )

    @property
    def root(self) -> str:
        """The operator at which matching starts."""
        return (self.turned if self.backwards else self.form).root.op

    def applied(self, program: Program, at: int) -> Program | None:
        """Return a copy of a program with op number `at` rewritten, or None without a match."""
        try:
            if not isinstance(self.matcher(ops(program)[at], program), Matched):
                return None
            copy = program.clone()
            if not self._write(ops(copy)[at], copy):
                return None
            RemoveDeadCode().apply(copy, History())
            copy.verify()
        except _FAILS:
            return None
        return copy

    def _write(self, op: Operation, program: Program) -> bool:
        match = self.matcher(op, program)
        if not isinstance(match, Matched):
            return False
        rw = Rewriter(op, program)
        if not self.backwards:
            self.rewrite.written(match, rw)
            return True
        values = RuleWriter(self.turned, self.rewrite.namespace).write(op, match.found, rw)
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


def ops(program: Program) -> Sequence[Operation]:
    """Return the ops of the method, without weights."""
    return [op for op in program.method().body.block.ops if not isinstance(op, WeightOp)]


def _names(lines: Any) -> set[str]:
    """Return the values and holes that lines name, except types."""
    return {str(term) for line in lines for _, term in line.arguments for term in _terms(term)}


def _terms(term: Any) -> list[Any]:
    return [each for item in term for each in _terms(item)] if isinstance(term, list) else [term]


def _is_plain(rule: Rule) -> bool:
    """Whether the replacement has only ops, which name all that the pattern names."""
    only_ops = bool(rule.after) and all(
        "." in line.op and not line.recipe and not line.is_again for line in rule.after
    )
    reads = {name for name in _names(rule.before) if name[:1] in "%$"}
    written = {f"%{name}" for line in rule.before for name in line.results}
    return only_ops and reads - written <= _names(rule.after) and len(rule.before) > 0


@cache
def ways() -> list[RuleDirection]:
    """Return the proved rules of the program's level, in each direction."""
    every: list[RuleDirection] = []
    for name, rewrite in rules().items():
        verdict = known().get(hash_of(rewrite))
        if verdict is None or not verdict.is_proved:
            continue
        for form in rewrite.rule.forms:
            if all(line.op.startswith(DIALECTS) for line in (*form.before, *form.after)):
                every += [RuleDirection(name, rewrite(), form, False)]
                every += [RuleDirection(name, rewrite(), form, True)] if _is_plain(form) else []
    return every


@cache
def _by_root() -> dict[str, list[RuleDirection]]:
    by_root: dict[str, list[RuleDirection]] = {}
    for way in ways():
        by_root.setdefault(way.root, []).append(way)
    return by_root


def ways_of(program: Program) -> Iterator[tuple[int, RuleDirection]]:
    """Yield each op of a program with each directed rule that may match there."""
    for at, op in enumerate(ops(program)):
        yield from ((at, way) for way in _by_root().get(op.name, ()))
