"""Wrong rules are refuted, by numbers on which both sides differ when they are run."""

from typing import Any

import pytest

pytest.importorskip("z3", reason="the extra `prove` is not installed")

from stepwell.validation.rules.verdicts import prove

from .planted import PLANTED, RULES


def test_forty_are_planted() -> None:
    assert len(PLANTED) == 40


@pytest.mark.parametrize(
    "rule",
    [pytest.param(rule, marks=[pytest.mark.slow] * (at % 3 > 0)) for at, rule in enumerate(RULES)],
    ids=lambda rule: rule.name,
)
def test_a_wrong_rule_is_refuted_by_what_runs(rule: Any) -> None:
    verdict = prove(rule)
    assert verdict.kind == "refuted", verdict
    assert verdict.counterexample is not None
