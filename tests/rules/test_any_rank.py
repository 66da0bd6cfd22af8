"""A verdict of any rank needs an argument, which a rule that tells ranks apart does not have."""

import pytest

pytest.importorskip("z3", reason="the extra `prove` is not installed")

from stepwell.validation.rules import any_rank
from stepwell.validation.rules.verdicts import Verdict, prove

from .by_position import POSITION_NAMES, RIGHT, WRONG, WRONG_AT_ONCE
from .by_rank import ANY, BY_RANK, LIMITED, NAMES
from .doubtful import Doubtful
from .source_reader import of_source


@pytest.fixture(autouse=True)
def of_functions_here(monkeypatch: pytest.MonkeyPatch) -> None:
    """The functions of these tests count as looked at, so that their source decides."""
    monkeypatch.setattr(any_rank, "reading", of_source)


def verdict_of(doubtful: Doubtful) -> Verdict:
    return prove(doubtful.rule(0, NAMES | POSITION_NAMES))


def named(rows: list[Doubtful], quick: int) -> list[object]:
    return [
        pytest.param(row, marks=[pytest.mark.slow] * (at % quick > 0), id=f"{at}: {row.after}")
        for at, row in enumerate(rows)
    ]


def slow(rows: list[Doubtful]) -> list[object]:
    return [pytest.param(row, marks=pytest.mark.slow, id=row.after) for row in rows]


@pytest.mark.parametrize("doubtful", named(BY_RANK, 3))
def test_a_rule_that_is_wrong_above_rank_4_is_of_no_other_rank(doubtful: Doubtful) -> None:
    verdict = verdict_of(doubtful)
    assert not verdict.argument, verdict
    assert "any rank" not in verdict.scope


@pytest.mark.parametrize("doubtful", named(LIMITED, 2))
def test_a_condition_on_the_number_of_axes_ends_the_argument(doubtful: Doubtful) -> None:
    verdict = verdict_of(doubtful)
    assert verdict.kind == "bits"
    assert not verdict.argument, verdict


@pytest.mark.parametrize("doubtful", named(ANY, 2))
def test_a_rule_that_treats_ranks_alike_holds_for_any(doubtful: Doubtful) -> None:
    verdict = verdict_of(doubtful)
    assert verdict.kind == "bits", verdict
    assert verdict.argument, verdict


@pytest.mark.parametrize("doubtful", [*named(WRONG_AT_ONCE, 1), *slow(WRONG)])
def test_wrong_positions_sizes_and_repetitions_are_of_no_other_rank(doubtful: Doubtful) -> None:
    verdict = verdict_of(doubtful)
    assert not verdict.argument, verdict


@pytest.mark.parametrize("doubtful", slow(RIGHT))
def test_positions_along_axes_are_tried_for_any_size(doubtful: Doubtful) -> None:
    verdict = verdict_of(doubtful)
    assert verdict.kind == "bits", verdict
    assert verdict.argument, verdict
