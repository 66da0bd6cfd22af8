"""No doubtful rule is proved at a strength that it lacks, and right ones are proved."""

from collections import Counter

import pytest

pytest.importorskip("z3", reason="the extra `prove` is not installed")

import torch

import stepwell
from stepwell.validation.rules import running, verdicts
from stepwell.validation.rules.running import FAILED, LATE, prove_each

from .doubtful import DOUBTFUL, Doubtful

SAMPLE = [*DOUBTFUL[::23], next(each for each in DOUBTFUL if "<4 x 5 x i8>" in each.before)]


def wrongly_judged(doubtful: list[Doubtful], monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """What is wrong about the verdicts on some rules, in a sentence each."""
    rules = {str(at): each.rule(at) for at, each in enumerate(doubtful)}
    for module in (verdicts, running):
        monkeypatch.setattr(module, "rules", lambda: rules)
    found: list[str] = []
    for verdict in prove_each(list(rules), jobs=2, seconds=3600):
        each = doubtful[int(verdict.rule)]
        is_right = verdict.kind == each.most if each.is_right else not verdict.is_proved
        has_reason = verdict.is_proved or bool(verdict.reason)
        if not is_right or not has_reason or verdict.reason.startswith((FAILED, LATE)):
            found.append(f"{each.kind}: {each.before} => {each.after} is {verdict}")
        if verdict.kind == "refuted":
            assert verdict.counterexample is not None
            if isinstance(verdict.counterexample.wanted, torch.Tensor):
                assert_runs(verdict)
    return found


def assert_runs(verdict: verdicts.Verdict) -> None:
    """The counterexample, run, gives the two results that it says."""
    held = verdict.counterexample
    assert held is not None
    for text, said in ((held.before, held.wanted), (held.after, held.found)):
        if isinstance(said, torch.Tensor):
            has_nodes = held.engine and f"{held.engine.partition('/')[0]}." in text
            engine = held.engine if has_nodes else None
            found = stepwell.parse(text).run(*held.inputs, engine=engine)
            found = found[0] if isinstance(found, tuple) else found
            torch.testing.assert_close(
                found.reshape(said.shape), said, rtol=0, atol=0, equal_nan=True
            )


def test_the_table_has_enough_of_each_kind() -> None:
    counted = Counter(each.is_right for each in DOUBTFUL)
    assert counted[False] >= 150
    assert counted[True] >= 40


def test_no_doubtful_rule_of_a_sample_is_proved(monkeypatch: pytest.MonkeyPatch) -> None:
    assert not wrongly_judged(SAMPLE, monkeypatch)


@pytest.mark.slow
def test_no_doubtful_rule_is_proved(monkeypatch: pytest.MonkeyPatch) -> None:
    assert not wrongly_judged(DOUBTFUL, monkeypatch)
