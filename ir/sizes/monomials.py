"""Monomials: products of atoms with powers, the terms of a `Size`.

Atoms are the indivisible parts of a symbolic size. Those that contain no other size (a symbol, the
text of an expression) are defined here, the others in `ir/sizes/size.py`.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from itertools import accumulate
from typing import TypeAlias, TypeVar

A = TypeVar("A")
"""An atom."""
Powers: TypeAlias = tuple[tuple[A, int], ...]
"""Atoms with their powers, sorted by name; the empty product is 1."""


@dataclass(frozen=True, slots=True)
class Symbol:
    """A size that is known only at run time."""

    name: str

    def __str__(self) -> str:
        return self.name


@dataclass(frozen=True, slots=True)
class Computed:
    """An expression of torch that no other atom represents (`CeilToInt(IntTrueDiv(s0, 3))`); equal
    if the text is equal.
    """

    text: str

    def __str__(self) -> str:
        return self.text


def atom_order(atom: object) -> tuple[bool, str]:
    """Return the sort key of an atom: symbols first."""
    return not isinstance(atom, Symbol), str(atom)


def term_order(
    term: tuple[Powers[A], int],
) -> tuple[int, list[tuple[bool, str, int]]]:
    """Return the sort key of a term: by falling degree, then by the names of atoms, as sympy prints
    sums.
    """
    monomial, _ = term
    return -sum(power for _, power in monomial), [
        (*atom_order(atom), -power) for atom, power in monomial
    ]


def times(first: Powers[A], second: Powers[A]) -> Powers[A]:
    """Return the product of two monomials."""
    if not first or not second:
        return first or second
    powers = dict(first)
    for atom, power in second:
        powers[atom] = powers.get(atom, 0) + power
    return tuple(sorted(powers.items(), key=lambda item: atom_order(item[0])))


def over(dividend: Powers[A], divisor: Powers[A]) -> Powers[A] | None:
    """Return the monomial whose product with `divisor` is `dividend`, or None."""
    powers = dict(dividend)
    for atom, power in divisor:
        left = powers.get(atom, 0) - power
        if left < 0:
            return None
        powers[atom] = left
    return tuple((atom, power) for atom, power in powers.items() if power)


def common(first: Powers[A], second: Powers[A]) -> Powers[A]:
    """Return the greatest common divisor of two monomials."""
    powers = dict(second)
    return tuple((a, min(p, powers[a])) for a, p in first if a in powers)


def is_single(text: str) -> bool:
    """Whether a text is one symbol, number or call: `Mod(s0, 2)`, not `Mod(s0, 2) + Min(1, s0)`."""
    if not re.fullmatch(r"\w+(\(.*\))?", text):
        return False
    depths = accumulate({"(": 1, ")": -1}.get(character, 0) for character in text)
    return "(" not in text or list(depths).index(0, text.index("(")) == len(text) - 1
