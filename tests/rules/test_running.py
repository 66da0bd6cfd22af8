"""Verdicts in processes of their own, and programs mutated by what is proved."""

import pytest

pytest.importorskip("z3", reason="the extra `prove` is not installed")

from tools import mutations

from stepwell.cost_model.optimum import ways
from stepwell.validation.rules import running, verdicts
from stepwell.validation.rules.running import prove_each
from stepwell.validation.rules.verdicts import rules

from .planted import RULES

NAMES = ("relu6-to-clamp", "rsub-to-sub", "remove-first-power")


def test_rules_are_proved_in_processes_of_their_own_in_their_order() -> None:
    verdicts = list(prove_each(NAMES, jobs=2))
    assert [verdict.rule for verdict in verdicts] == list(NAMES)
    assert all(verdict.kind == "bits" for verdict in verdicts)


def test_a_refuted_rule_and_a_limit_of_time_end(monkeypatch: pytest.MonkeyPatch) -> None:
    held = {"wrong": RULES[1], "slow": RULES[2], **rules()}
    for module in (verdicts, running):
        monkeypatch.setattr(module, "rules", lambda: held)
    found = list(prove_each(("wrong", NAMES[0]), jobs=2))
    assert [verdict.kind for verdict in found] == ["refuted", "bits"]
    (late,) = prove_each(("slow",), seconds=0)
    assert late.kind == "open"
    assert late.reason.startswith(running.LATE)


def test_an_exception_of_the_prover_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(running, "prove", lambda rule: 1 / 0)
    (failed,) = prove_each(NAMES[:1])
    assert failed.reason == f"{running.FAILED}: ZeroDivisionError: division by zero"


def test_a_mutated_program_gives_what_eager_gives() -> None:
    for seed in (0, 2):
        assert len(mutations.mutated("float32", seed)[1]) > 0
        assert mutations.judged("program", seed) == "agrees"


def test_a_step_is_written_backwards_too() -> None:
    assert {way.backwards for way in ways()} == {False, True}
