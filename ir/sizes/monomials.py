"""Products of atoms with their powers: what the terms of a `Size` are made of.

What an atom is says `ir/sizes/size.py`; here stand those that hold no size, and what is true of
all.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TypeAlias, TypeVar

A = TypeVar("A")
"""An atom."""
Powers: TypeAlias = tuple[tuple[A, int], ...]
"""Atoms with their powers, sorted by name; the empty product is 1."""


@dataclass(frozen=True, slots=True)
class Symbol:
    """A size known only once the program runs."""

    name: str

    def __str__(self) -> str:
        return self.name


@dataclass(frozen=True, slots=True)
class Computed:
    """What no other atom says (`CeilToInt(IntTrueDiv(s0, 3))`): equal to what is spelled so."""

    text: str

    def __str__(self) -> str:
        return self.text


def atom_order(atom: object) -> tuple[bool, str]:
    """Symbols first."""
    return not isinstance(atom, Symbol), str(atom)


def term_order(
    term: tuple[Powers[A], int],
) -> tuple[int, list[tuple[bool, str, int]]]:
    """By falling degree, then by the names of the atoms, as sympy writes sums."""
    monomial, _ = term
    return -sum(power for _, power in monomial), [
        (*atom_order(atom), -power) for atom, power in monomial
    ]


def times(first: Powers[A], second: Powers[A]) -> Powers[A]:
    """The product of two."""
    if not first or not second:
        return first or second
    powers = dict(first)
    for atom, power in second:
        powers[atom] = powers.get(atom, 0) + power
    return tuple(sorted(powers.items(), key=lambda item: atom_order(item[0])))


def over(dividend: Powers[A], divisor: Powers[A]) -> Powers[A] | None:
    """The monomial that times `divisor` gives `dividend`, or None."""
    powers = dict(dividend)
    for atom, power in divisor:
        left = powers.get(atom, 0) - power
        if left < 0:
            return None
        powers[atom] = left
    return tuple((atom, power) for atom, power in powers.items() if power)


def common(first: Powers[A], second: Powers[A]) -> Powers[A]:
    """What divides both."""
    powers = dict(second)
    return tuple((a, min(p, powers[a])) for a, p in first if a in powers)
