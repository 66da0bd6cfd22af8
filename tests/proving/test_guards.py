"""A condition that is dropped shows: by numbers, or by what its label says it is for."""

from __future__ import annotations

import pytest

pytest.importorskip("z3", reason="the extra `prove` is not installed")

from stepwell.proving.guards import conditions, dropped, spelled
from stepwell.proving.known import Dropped
from stepwell.proving.verdicts import rules

RULES = rules()


def without(name: str, condition: str) -> Dropped:
    rule = RULES[name]
    (clause,) = (c for c in conditions(rule.rule) if spelled(c) == condition)
    return dropped(name, rule, clause)


@pytest.mark.parametrize(
    ("rule", "condition"),
    [
        ("cancel-permutes", "where are_inverse($p, $q)"),
        ("drop-alpha-of-add", "where is_one($a)"),
        ("merge-scalar-products", "where is_single_or_double($E)"),
        ("native-layer-norm-to-layer-norm", "where is_unread(%m, %r)"),
    ],
)
def test_a_rule_is_wrong_without_a_condition_that_it_needs(rule: str, condition: str) -> None:
    found = without(rule, condition)
    assert found.kind == "refuted" and found.reason, found


@pytest.mark.parametrize(
    ("rule", "condition", "shown"),
    [
        ("permute-axes-from-front", "where not are_from_front($d)", "fires on its own"),
        ("merge-scalar-products", "where reads_once(%p)", "2 ops for 2"),
        ("merge-scalar-products", "where are_to_one_side($a, $b)", "inf becomes"),
        ("clamp-to-maximum", "where same_element(%y, %x, %a)", "the same"),
        ("plain-rms-norm-to-means", "where is_single_or_double($E)", "round to f16"),
    ],
)
def test_a_condition_with_a_label_is_for_that(rule: str, condition: str, shown: str) -> None:
    found = without(rule, condition)
    assert found.kind == "labelled" and shown in found.reason, found
