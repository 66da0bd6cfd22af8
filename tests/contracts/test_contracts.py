"""Each rewrite, on variants of its own example: refused in words, not matched, or right.

`docs/contracts.md` says what is varied and what came of longer runs.
"""

import os

import pytest

from stepwell.checking.contracts.campaign import documented, tally

A_FEW = 10
"""Variants of each rewrite, of as many kinds, in `make test`."""
MANY = int(os.environ.get("SOAK_EXAMPLES", "1500"))


NAMES = list(documented())


@pytest.mark.parametrize("name", NAMES)
def test_a_variant_is_refused_or_computes_what_it_replaced(name: str):
    found = tally(name, A_FEW)
    assert not found.wrong, found
    assert found.outcomes["applied"], found


@pytest.mark.slow
@pytest.mark.parametrize("name", NAMES)
def test_many_variants_are_refused_or_compute_what_they_replaced(name: str):
    found = tally(name, MANY, seed=1)
    assert not found.wrong, found
