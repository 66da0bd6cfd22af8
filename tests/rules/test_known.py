"""Verdicts that are kept are of rules as they are, and the page says the same."""

from pathlib import Path

import pytest

from stepwell.translate.rewrites import building
from stepwell.validation.rules.hashes import hash_of, whole_hash_of
from stepwell.validation.rules.kept_verdicts import covers, known, known_conditions, with_table
from stepwell.validation.rules.verdicts import Verdict, rules

PAGE = Path(__file__).parents[2] / "docs" / "proofs.md"


def test_a_verdict_is_of_a_rule_whose_text_is_what_it_was() -> None:
    now = {hash_of(rewrite) for rewrite in rules().values()}
    changed = [verdict.rule for hash_, verdict in known().items() if hash_ not in now]
    assert not changed, "stepwell prove --new --keep --table docs/proofs.md"


def test_what_is_kept_of_conditions_is_of_rules_as_they_are() -> None:
    now = {whole_hash_of(rewrite) for rewrite in rules().values()}
    changed = {row.rule for row in known_conditions() if row.hash not in now}
    assert not changed, "stepwell prove --guards --new --keep --table docs/proofs.md"


def test_a_rule_whose_function_changes_has_no_proof(monkeypatch: pytest.MonkeyPatch) -> None:
    rewrite = rules()["unit-permute-to-view"]
    assert hash_of.__wrapped__(rewrite) in known()
    monkeypatch.setattr(building, "is_open_once", building.is_known)
    assert hash_of.__wrapped__(rewrite) not in known()


def test_the_page_says_what_is_kept() -> None:
    page = PAGE.read_text()
    assert page == with_table(page, list(known().values()), known_conditions())


def test_a_proof_of_sizes_that_were_tried_covers_no_others() -> None:
    said = {
        "any rank, any size": 9,
        "its rank, any size": 9,
        "any rank, any size, quantized types as in its example": -1,
        "all sizes, up to rank 3": 3,
        "sizes that were tried, up to rank 4": -1,
        "all sizes, up to rank 4, some arguments of each": -1,
    }
    for scope, most in said.items():
        ranks = [rank for rank in range(10) if covers(Verdict("r", "bits", scope), rank)]
        assert max(ranks, default=-1) == most
