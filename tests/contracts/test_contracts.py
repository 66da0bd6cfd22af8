"""Each rewrite, on variants of its own example: refused in words, not matched, or right.

`docs/contracts.md` says what is varied and what came of longer runs.
"""

import os

import pytest
from contract_driver import documented, steps_of, tally

from stepwell.translate.rules.rewrite import RuleRewrite
from stepwell.validation.rules.hashes import hash_of
from stepwell.validation.rules.kept_verdicts import known

A_FEW = 10
"""Variants of each rewrite, of as many kinds, in `make test`."""
OF_PROVED = 2
"""Variants of a rule whose kept proof is of it and its functions as they are."""
MANY = int(os.environ.get("SOAK_EXAMPLES", "1500"))


NAMES = list(documented())


def is_proved(name: str) -> bool:
    """Whether all that is tried are rules as they were proved."""
    for step in steps_of(name):
        verdict = known().get(hash_of(type(step))) if isinstance(step, RuleRewrite) else None
        if verdict is None or not verdict.is_proved:
            return False
    return True


@pytest.mark.parametrize("name", NAMES)
def test_a_variant_is_refused_or_computes_what_it_replaced(name: str):
    found = tally(name, OF_PROVED if is_proved(name) else A_FEW)
    assert not found.wrong, found
    assert found.outcomes["applied"], found


@pytest.mark.slow
@pytest.mark.parametrize("name", NAMES)
def test_many_variants_are_refused_or_compute_what_they_replaced(name: str):
    found = tally(name, MANY, seed=1)
    assert not found.wrong, found
