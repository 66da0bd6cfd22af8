"""Verdicts in processes of their own, and programs mutated by what is proved."""

import argparse
import math
from typing import Any

import pytest

pytest.importorskip("z3", reason="the extra `prove` is not installed")

import torch
from tools import mutations

from stepwell.cli.commands import prove as prove_command
from stepwell.cost_model.optimum import ways
from stepwell.validation.rules import running, verdicts
from stepwell.validation.rules.running import FAILED, prove_each
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


def test_the_command_ends_for_any_mixture_of_verdicts(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    held: dict[str, Any] = {"wrong": RULES[0], "right": rules()[NAMES[0]], "crash": object()}
    for module in (verdicts, running, prove_command):
        monkeypatch.setattr(module, "rules", lambda: held)
    monkeypatch.setattr(prove_command, "hash_of", str)
    monkeypatch.setattr(prove_command, "stored", dict)
    arguments = argparse.Namespace(
        rules=["wrong", "right", "crash"], guards=False, new=False, keep=False, jobs=2,
        seconds=math.inf, tests=None, table=None,
    )  # fmt: skip
    assert prove_command.run(arguments).code == 1
    said = capsys.readouterr().out
    assert "wrong" in said and "import stepwell" in said
    program = said[said.index("import torch") : said.index("print(*both")]
    held = dict[str, Any]()
    exec(program, held)
    assert not torch.equal(*(results[0] for results in held["both"]))
    assert f"open: {FAILED}" in said
    assert "1 proved bit for bit" in said


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
