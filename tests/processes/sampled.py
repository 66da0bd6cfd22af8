"""Parameters of which `make test` takes a sample, and `make soak` all."""

from collections.abc import Iterable
from typing import Any

import pytest


def sampled(every: Iterable[Any], *quick: Any) -> list[Any]:
    """Mark as slow the values that are not listed as quick; a mapping's values are its keys.

    Quick are those that fail where any fails, as far as is known: one of each path through code.
    """
    every = list(every)
    missing = [value for value in quick if value not in every]
    assert not missing, f"no such parameters: {missing}"
    return [
        value if value in quick else pytest.param(value, marks=pytest.mark.slow) for value in every
    ]
