"""Canonicalization: merge a permute of a permute into one, or remove both.

rule cancel-permutes
    The outer one takes back what the inner one did.
Before:
    %p = aten.permute.default(%x, $p)
    %y = aten.permute.default(%p, $q)
After:
    %y = %x
where are_inverse($p, $q)
for $p = [1, 2, 0], $q = [2, 0, 1], $x = [2, 3, 4]

rule merge-permutes
    The inner one may have other readers, which keep it.
Before:
    %p = aten.permute.default(%x, $p)
    %y = aten.permute.default(%p, $q)
After:
    %y = aten.permute.default(%x, composed($p, $q))
for $p = [0, 2, 1], $q = [2, 1, 0], $x = [2, 3, 4]
"""

from __future__ import annotations

from collections.abc import Sequence

from stepwell.translate.rewrites.building import axis
from stepwell.translate.rules import read_rules


def composed(first: Sequence[int], second: Sequence[int]) -> list[int]:
    """Return the composition of the permutations `first` and then `second`."""
    rank = len(first)
    return [axis(first[axis(at, rank)], rank) for at in second]


def are_inverse(first: Sequence[int], second: Sequence[int]) -> bool:
    """Whether the second of two permutations is the inverse of the first."""
    return composed(first, second) == list(range(len(first)))


RULES = read_rules(__doc__, globals())
