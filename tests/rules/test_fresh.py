"""Every fresh wrong rule is refuted, by numbers that give the two results when they are run."""

from typing import Any

import pytest

pytest.importorskip("z3", reason="the extra `prove` is not installed")

from stepwell.validation.rules.verdicts import prove

from .doubtful import Doubtful
from .fresh import FRESH, NAMES
from .test_doubtful import assert_runs


def test_sixty_rules_are_fresh() -> None:
    assert len(FRESH) == 60
    assert len({each.kind for each in FRESH}) == 10


def rows() -> list[Any]:
    return [
        pytest.param(row, marks=[pytest.mark.slow] * (at % 9 > 0), id=f"{at}-{row.kind}")
        for at, row in enumerate(FRESH)
    ]


@pytest.mark.parametrize("doubtful", rows())
def test_a_fresh_wrong_rule_is_refuted_by_what_runs(doubtful: Doubtful) -> None:
    verdict = prove(doubtful.rule(0, NAMES))
    assert verdict.kind == "refuted", verdict
    assert verdict.counterexample is not None
    assert_runs(verdict)
