"""Parse rules that a user types, test them on variants of their examples, and observe them.

The text is parsed, not executed. It may name ops, and the functions and predicates that stepwell's
own rules name, but nothing else.
"""

import time
from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cache
from types import FunctionType
from typing import Any

from xdsl.ir import Operation

from stepwell.inspection.viewer.applications import Application, ApplicationRecorder
from stepwell.ir.declared.engine_behavior import engines
from stepwell.ir.declared.numerics import Deviation
from stepwell.ir.diagnostics import StepwellError
from stepwell.ir.program import Program
from stepwell.ir.rewriting.rewrite import History
from stepwell.translate.rewrites.documentation import module_names, module_of
from stepwell.translate.rules import RuleRewrite, read_rules
from stepwell.translate.rules.examples import examples_of
from stepwell.validation.contracts.draft import draft_of
from stepwell.validation.contracts.trial import try_variant
from stepwell.validation.contracts.variants import Variant, variants_of

MOST_VARIANTS = 60
LEAST_VARIANTS = 4
DEEP_APPLICATIONS = 32
"""The limit of nested applications of a typed rule, so that a non-terminating rule is rejected
soon.
"""
MOST_PICTURES = 20


@cache
def _named_by_rules() -> Mapping[str, Any]:
    """Return the functions, families and number classes that stepwell's own rules may name.

    A name that two modules define differently is excluded.
    """
    held: dict[str, list[Any]] = {}
    for name in module_names():
        module = module_of(name)
        for word, value in vars(module).items() if getattr(module, "RULES", ()) else ():
            is_own = isinstance(value, FunctionType) and value.__module__ == module.__name__
            if not word.startswith("_") and (is_own or _is_family(value) or _is_loss(value)):
                held.setdefault(word, []).append(value)
    return {word: values[0] for word, values in held.items() if len(values) == 1}


def _is_loss(value: Any) -> bool:
    return isinstance(value, Deviation)


def _is_family(value: Any) -> bool:
    return isinstance(value, tuple) and all(
        isinstance(one, type) and issubclass(one, Operation)
        for one in value  # pyright: ignore[reportUnknownVariableType]
    )


def typed(text: str) -> dict[str, type[RuleRewrite]]:
    """Return the rules of a text, by name.

    Raises:
        StepwellError: the text is not a rule, or names an unknown op or function.
    """
    if not text.strip():
        return {}
    rules = read_rules(f"\n{text.strip()}\n", {**_named_by_rules(), "__name__": "typed"})
    if not rules:
        raise StepwellError(
            "no rule begins in the text", help="the first line of a rule is `rule NAME`"
        )
    names = Counter(rule.name for rule in rules)
    twice = [name for name, count in names.items() if count > 1]
    if twice:
        raise StepwellError(f"two rules of the text have the name {twice[0]!r}")
    for rule in rules:
        rule.deep_applications = DEEP_APPLICATIONS
    return {rule.name: rule for rule in rules}


def watched(rule: type[RuleRewrite]) -> tuple[RuleRewrite, list[Application]]:
    """Return the rule as a rewrite, and a list that receives the rule's first applications."""
    applications: list[Application] = []

    class Watched(rule):  # pyright: ignore[reportGeneralTypeIssues, reportUntypedBaseClass]
        def apply(self, program: Program, history: History) -> int:
            recorder, before = ApplicationRecorder({}), history.watch
            history.watch = recorder
            try:
                return super().apply(program, history)
            finally:
                history.watch = before
                applications.extend(recorder.made[:MOST_PICTURES])

    Watched.__name__ = rule.__name__
    return Watched(), applications


@dataclass(frozen=True)
class Tried:
    """The outcomes of variants of a rule's examples.

    Attributes:
        outcomes: outcome → count.
        wrong: the edits of the first wrong variant, and how its result differs.
    """

    outcomes: Mapping[str, int]
    wrong: str | None

    @property
    def words(self) -> str:
        """Describe the outcomes of a rule's variants in one line."""
        counted = ", ".join(f"{count} {outcome}" for outcome, count in self.outcomes.items())
        return f"of {sum(self.outcomes.values())} variants {counted}"


def tried(rule: type[RuleRewrite], seconds: float) -> Tried:
    """Apply a rule to variants of its example, and compare each with the original.

    Args:
        rule: the rule.
        seconds: the time limit for all; a few variants are tried in any case.

    Raises:
        StepwellError: the rule does not match its own example.
    """
    until = time.monotonic() + seconds
    outcomes: Counter[str] = Counter()
    for variant in _variants(rule):
        verdict = try_variant((rule(),), variant.draft, engines=engines())
        outcomes[verdict.outcome] += 1
        if verdict.outcome == "wrong":
            what = " and ".join(variant.labels) or "as the rule has it"
            return Tried(dict(outcomes), f"{what}: {verdict.why}")
        done = outcomes.total()
        if done >= MOST_VARIANTS or (done >= LEAST_VARIANTS and time.monotonic() > until):
            break
    return Tried(dict(outcomes), None)


def _variants(rule: type[RuleRewrite]) -> Iterator[Variant]:
    """Yield variants of each form of a rule, alternately."""
    try:
        drafts = [draft_of(before) for before, _ in examples_of(rule)]
    except AssertionError as error:
        raise StepwellError(
            f"rule {rule.name}: {error}" if str(error) else f"rule {rule.name} has no example",
            help='`for $c = 2.0, %x = "tensor<4xf32>"` gives the holes of its example their values',
        ) from error
    turns = [variants_of(draft, rule.anchors) for draft in drafts]
    while True:
        for turn in turns:
            yield next(turn)
