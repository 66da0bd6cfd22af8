"""A condition that is dropped shows: by numbers, or by what its label says it is for."""

from dataclasses import replace

import pytest

pytest.importorskip("z3", reason="the extra `prove` is not installed")

from stepwell.validation.rules.guards import conditions, dropped, spelled, taken
from stepwell.validation.rules.kept_verdicts import Dropped
from stepwell.validation.rules.verdicts import rules

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
        ("remove-unit-max-pooling", "where are_ones($k)"),
        ("remove-noop-cast", "unless asks_for_layout($m)"),
        ("remove-proven-assert", "where has_sizes(%x, $size)"),
        ("copy-to-expand", "where is_static(%x)"),  # In sizes that were symbols.
        ("fold-batch-norm", "where takes_in_constants(%c)"),  # By weights that are not all alike.
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
        ("lerp-from-start", "where is_nearer_to_start($w)", "becomes"),
        ("merge-linears", "unless multiplies_more(%a, %b)", "numbers of weights"),
        ("split-linear", "where cost_less_in_parts(%l)", "the same"),
        ("plain-rms-norm-to-means", "where is_single_or_double($E)", "round to f16"),
    ],
)
def test_a_condition_with_a_label_is_for_that(rule: str, condition: str, shown: str) -> None:
    found = without(rule, condition)
    assert found.kind == "labeled" and shown in found.reason, found


def test_a_label_is_not_believed_of_a_condition_that_is_needed() -> None:
    rule = RULES["copy-to-expand"]
    (clause,) = conditions(rule.rule)
    found = dropped("copy-to-expand", rule, replace(clause, label="target"))
    assert found.kind == "open" and "it is needed" in found.reason, found


@pytest.mark.parametrize("name", [n for n, each in RULES.items() if each.rule.misses])
def test_a_rule_leaves_alone_what_its_text_says(name: str) -> None:
    assert not taken(RULES[name])
