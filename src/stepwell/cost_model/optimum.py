"""`stepwell explain --optimum`: search for an equivalent program that lowers to a cheaper result.

Proved rules are applied forwards and backwards at every op, breadth first, up to a given number of
programs. Each program is lowered, and the target's own costs estimate the result. A cheaper result
than that of the original program shows a missing rewrite or a wrong pass order. The rules are not
translated into another tool's patterns: most have conditions on types and numbers that only their
own matchers can check.
"""

import math
from collections import deque
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cache, cached_property
from typing import Any

from xdsl.ir import Operation

from stepwell.dialects.cmsis.costs import LAYOUT as CMSIS
from stepwell.dialects.tosa.costs import LAYOUT as TOSA
from stepwell.dialects.xnnpack.costs import COSTS
from stepwell.dialects.xnnpack.costs.nodes import leaves, nanoseconds
from stepwell.ir.core import WeightOp
from stepwell.ir.diagnostics import StepwellError
from stepwell.ir.program import Program
from stepwell.ir.rewriting.cleanup import RemoveDeadCode
from stepwell.ir.rewriting.rewrite import History
from stepwell.ir.rewriting.rewriter import Rewriter
from stepwell.ir.work import operations
from stepwell.lowering import lower
from stepwell.translate.rules.compiling import Matched, Matcher, compile_rule
from stepwell.translate.rules.notation import Rule
from stepwell.translate.rules.rewrite import RuleRewrite
from stepwell.translate.rules.writing import RuleWriter
from stepwell.validation.certificates.application import FAILS
from stepwell.validation.rules.hashes import hash_of
from stepwell.validation.rules.kept_verdicts import known
from stepwell.validation.rules.verdicts import rules

DIALECTS = ("aten.", "quant.")
"""Prefixes of the names of ops at the program's level."""


@dataclass(frozen=True, eq=False)
class RuleDirection:
    """A proved rule, applied forwards or backwards."""

    name: str
    rewrite: RuleRewrite
    form: Rule
    backwards: bool

    def __str__(self) -> str:
        return f"{self.name}{' backwards' if self.backwards else ''}"

    @cached_property
    def turned(self) -> Rule:
        """Return the rule with pattern and replacement exchanged, without its conditions."""
        return replace(
            self.form, before=self.form.after, after=self.form.before, where=(), proven=()
        )

    @cached_property
    def matcher(self) -> Matcher:
        """Return the matcher that is applied to an op."""
        if self.backwards:
            return compile_rule(self.turned, self.rewrite.namespace)
        return lambda op, program: (
            self.rewrite.match(op, program) if isinstance(op, self.rewrite.anchors) else None
        )

    @property
    def root(self) -> str:
        """Return the operator at which matching starts."""
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
        except FAILS:  # It may be applied backwards to a program that it was not written for.
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
    """Return the values (`%x`) and placeholders (`$c`) in a rule's lines, except in types."""
    return {str(term) for line in lines for _, term in line.arguments for term in _terms(term)}


def _terms(term: Any) -> list[Any]:
    return [each for item in term for each in _terms(item)] if isinstance(term, list) else [term]


def _is_plain(rule: Rule) -> bool:
    """Whether a rule can be inverted: its replacement consists of ops and uses all the pattern's
    inputs and placeholders.
    """
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


FLOAT = 8
"""Byte multiplications that a core performs in the time of one float multiplication."""
WORTH = 0.03
"""Least difference that is reported, as a part of a cost."""


@dataclass(frozen=True)
class Optimum:
    """The result of the search over equivalent programs.

    Attributes:
        target: the target of the lowering.
        pipeline: the cost of the lowered original program.
        best: the least cost of a lowered equivalent program.
        steps: the rules that lead to the program of the least cost.
        program: the program of the least cost, before lowering.
        tried, refused: the number of programs that were lowered, and that could not be lowered.
        applications: the number of rule applications.
    """

    target: str
    pipeline: float
    best: float
    steps: tuple[str, ...]
    program: Program
    tried: int
    refused: int
    applications: int

    @property
    def gain(self) -> float:
        """Return the fraction of the pipeline's cost that the best program saves."""
        return 1 - self.best / self.pipeline if self.pipeline else 0.0

    def __str__(self) -> str:
        seen = f"{self.tried} equal programs, {self.applications} applications of proved rules"
        if self.gain < WORTH:
            return f"{self.target}: nothing better by {WORTH:.0%} among {seen} ({self.gain:.2%})"
        return (
            f"{self.target}: {self.gain:.1%} better by {', '.join(self.steps)} ({seen})\n"
            f"{self.program}"
        )


def cost(program: Program, target: str) -> float:
    """Estimate the cost of a lowered program by its target's own model.

    XNNPACK: nanoseconds of `dialects/xnnpack/costs`. TOSA: operators, then elements. CMSIS-NN:
    multiplications and elements, with the cost of calls from `dialects/cmsis/costs.py`.
    """
    return sum(cost_of(op, target) for op in leaves(program))


def cost_of(op: Operation, target: str) -> float:
    """Estimate the cost of one op, as `cost` does."""
    if target == "xnnpack":
        return nanoseconds(op, COSTS)
    if target.startswith("tosa"):
        return TOSA.op + operations(op)
    return CMSIS.op + _work(op)


def _work(op: Operation) -> float:
    """Estimate the work in integer multiplications; a float multiplication counts as `FLOAT`."""
    return (FLOAT if op.name.startswith("aten.") else 1) * operations(op)


def optimum(program: Program, target: str, most: int = 64, **options: Any) -> Optimum:
    """Lower programs that are equivalent to a program, and return the cheapest result.

    Args:
        program: a program of torch's operators.
        target: as for `lower`.
        most: the largest number of programs that are lowered.
        options: options of `lower`.

    Raises:
        StepwellError: the program itself cannot be lowered.
    """
    pipeline = cost(lower(program, target, **options).program, target)
    best, steps, better = pipeline, (), program
    seen, refused, applications = {str(program)}, 0, 0
    queue: deque[tuple[Program, tuple[str, ...]]] = deque([(program, ())])
    while queue and len(seen) < most:
        start, so_far = queue.popleft()
        for at, way in ways_of(start):
            variant = way.applied(start, at) if len(seen) < most else None
            if variant is None:
                continue
            applications += 1
            text = str(variant)
            if text in seen:
                continue
            seen.add(text)
            taken = (*so_far, str(way))
            queue.append((variant, taken))
            try:
                weight = cost(lower(variant, target, **options).program, target)
            except StepwellError:
                refused, weight = refused + 1, math.inf
            if weight < best:
                best, steps, better = weight, taken, variant
    return Optimum(target, pipeline, best, steps, better, len(seen), refused, applications)
