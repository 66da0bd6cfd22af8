"""A condition that is dropped shows: by numbers, or by what its label says it is for."""

from __future__ import annotations

import pytest

pytest.importorskip("z3", reason="the extra `prove` is not installed")

from stepwell.proving.guards import Dropped, spelled, without_each
from stepwell.proving.verdicts import rules

RULES = rules()


def dropped(name: str) -> dict[str, Dropped]:
    return dict(without_each(RULES[name]))


@pytest.mark.parametrize(
    ("rule", "condition"),
    [
        ("cancel-permutes", "where are_inverse"),
        ("remove-noop-permute", "where is_identity"),
        ("drop-alpha-of-add", "where is_one"),
        ("remove-noop-roll", "where are_zeros"),
    ],
)
def test_a_rule_is_refuted_without_a_condition_that_it_needs(rule: str, condition: str) -> None:
    found = dropped(rule)[condition]
    assert found.verdict.kind == "refuted", found


def test_a_rule_holds_without_a_condition_that_has_a_label() -> None:
    found = dropped("permute-axes-from-front")["where not are_from_front"]
    assert found.label == "termination"
    assert found.verdict.is_proved, found


def test_labels_are_read() -> None:
    labels = {
        spelled(clause): clause.label
        for rule in RULES.values()
        for clause in rule.rule.where
        if clause.label
    }
    assert labels["where reads_once"] == "cost"
    assert labels["unless stays_outside"] == "target"
    assert labels["where stays_in_range"] == "overflow"
