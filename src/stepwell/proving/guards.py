"""Conditions dropped one at a time: without one, a rule is wrong, or the condition says what for.

`where reads_once(%a) for cost` is labelled: it is no part of the statement that is proved, which
holds without it. Labels are `termination` (the rule would fire on its own result), `cost` (the
program would be no better), `overflow` (a number on the way leaves the range of its type, which
real numbers do not show) and `target` (the engine that is lowered to does not take it).
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace

from stepwell.proving.verdicts import Verdict, prove
from stepwell.translate.rules.notation import Rule, Where
from stepwell.translate.rules.rewrite import RuleRewrite


@dataclass(frozen=True)
class Dropped:
    """What becomes of a rule without one of its conditions.

    Attributes:
        label: what the rule's text says that the condition is for.
    """

    label: str
    verdict: Verdict

    @property
    def is_right(self) -> bool:
        """A condition is needed, or the rule holds without it, of numbers that do not overflow."""
        if not self.label:
            return self.verdict.kind == "refuted"
        return self.verdict.kind != "refuted" or self.label == "overflow"

    def __str__(self) -> str:
        return f"for {self.label}; {self.verdict}" if self.label else str(self.verdict)


def conditions(rule: Rule) -> list[Where]:
    """The conditions of a rule that can be dropped: what computes a hole cannot."""
    return [clause for clause in rule.where if not clause.binds]


def without(rewrite: type[RuleRewrite], clause: Where) -> tuple[Rule, ...]:
    """The forms of a rule without a condition."""
    return tuple(
        replace(form, where=tuple(c for c in form.where if not _is(c, clause)))
        for form in rewrite.rule.forms
    )


def _is(one: Where, other: Where) -> bool:
    return (one.predicate, one.arguments) == (other.predicate, other.arguments)


def spelled(clause: Where) -> str:
    """A condition in short."""
    kind = "unless" if clause.is_guard else "where not" if clause.negated else "where"
    return f"{kind} {clause.predicate}"


def without_each(rewrite: type[RuleRewrite]) -> Iterator[tuple[str, Dropped]]:
    """Each condition, and what becomes of the rule without it."""
    for clause in conditions(rewrite.rule):
        yield spelled(clause), Dropped(clause.label, prove(rewrite, without(rewrite, clause)))
