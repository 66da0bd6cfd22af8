"""Symbolic sizes: integer expressions over symbols in canonical form.

    n = Size.symbol("s77")
    (n * 64) // 64 == n;  (n + 1) * (n - 1) == n * n - 1;  str(2 * n + 1) == "2*s77 + 1"

A `Size` is a polynomial with integer coefficients over *atoms*: symbols, quotients rounded down,
minima and maxima of sizes, and the text of expressions that only torch evaluates. Sums and products
are expanded. The divisible part of a quotient is split off (`(4*s + 6)//4` is `s + 1`) and common
factors are cancelled. A remainder is written with a quotient (`a % b` is `a - b*(a//b)`). Therefore
sizes that compare equal are equal for all values of the symbols, and a constant difference is a
number. The converse does not hold for every expression with minima or nested quotients: `a != b`
does not imply that the sizes differ.

`//` and `%` are Python's: rounded down, also below zero. A division implies that the divisor is not
0. A dimension of a type is a `Dim`: an int, or a `Size` with symbols. `UNKNOWN` is a dimension
without a known expression.

`ir/sizes/size_text.py` parses the printed form, `ir/sizes/size_ranges.py` analyzes ranges, and
`dialects/symbols.py` converts from and to torch and sympy.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property, reduce
from itertools import product
from math import gcd
from typing import Final

from stepwell.ir.diagnostics import StepwellError
from stepwell.ir.sizes.monomials import Computed, Symbol, common, is_single, over, term_order, times


@dataclass(frozen=True, slots=True)
class Quotient:
    """An atom of a size: `dividend // divisor`, rounded down, without divisible terms."""

    dividend: Size
    divisor: Size

    def __str__(self) -> str:
        return f"({_operand(self.dividend)}//{_operand(self.divisor)})"


@dataclass(frozen=True, slots=True)
class Extreme:
    """An atom of a size: the minimum (`Min`) or the maximum (`Max`) of two or more sizes."""

    kind: str
    sizes: tuple[Size, ...]

    def __str__(self) -> str:
        return f"{self.kind}({', '.join(map(str, self.sizes))})"


Atom = Symbol | Quotient | Extreme | Computed
Monomial = tuple[tuple[Atom, int], ...]
"""A product of atoms with their powers, sorted by name; the empty one is 1."""

_NAME: Final = re.compile(r"\b[A-Za-z_]\w*\b(?!\()")
_ONE: Final[Monomial] = ()
_MOST_TERMS = 512


@dataclass(frozen=True, eq=False)
class Size:
    """An integer expression over symbols: the sum of `terms`, each a monomial and its coefficient.

    `Size.symbol`, `Size.of` and arithmetic create sizes in canonical form: terms are sorted,
    no coefficient is 0.
    """

    terms: tuple[tuple[Monomial, int], ...]

    @classmethod
    def of(cls, value: int | Size) -> Size:
        """Convert a number to a size; a size is returned unchanged."""
        if isinstance(value, Size):
            return value
        return cls(((_ONE, int(value)),)) if value else cls(())

    @classmethod
    def symbol(cls, name: str) -> Size:
        """Return the size that consists of one symbol."""
        return cls(((((Symbol(name), 1),), 1),))

    @cached_property
    def _hash(self) -> int:
        return hash(self.terms)

    def __hash__(self) -> int:
        return self._hash

    def __eq__(self, other: object) -> bool:
        if isinstance(other, int):  # Most dimensions are ints.
            terms = self.terms
            return len(terms) == 1 and terms[0] == (_ONE, other) if terms else other == 0
        if not isinstance(other, Size):
            return False
        return self is other or (self._hash == other._hash and self.terms == other.terms)

    @classmethod
    def computed(cls, text: str) -> Size:
        """Return a size, given as text, that only torch can evaluate."""
        return cls(((((Computed(text), 1),), 1),))

    # Parts

    @property
    def number(self) -> int | None:
        """Return the value of a size without symbols, else None."""
        if not self.terms:
            return 0
        (monomial, coefficient), *rest = self.terms
        return coefficient if monomial == _ONE and not rest else None

    @cached_property
    def atoms(self) -> frozenset[Atom]:
        """Return the atoms of the size, including those nested in atoms."""
        own = frozenset(atom for monomial, _ in self.terms for atom, _ in monomial)
        return own.union(*(size.atoms for atom in own for size in _sizes_in(atom)))

    @cached_property
    def symbols(self) -> frozenset[str]:
        """Return the names of the size's symbols."""
        return frozenset(name for atom in self.atoms for name in _names_in(atom))

    @property
    def constant(self) -> int:
        """Return the constant term of the polynomial."""
        return next((c for monomial, c in self.terms if monomial == _ONE), 0)

    # Arithmetic

    def __add__(self, other: int | Size) -> Size:
        terms = dict(self.terms)
        for monomial, coefficient in Size.of(other).terms:
            terms[monomial] = terms.get(monomial, 0) + coefficient
        return _sum(terms)

    __radd__ = __add__

    def __neg__(self) -> Size:
        return Size(tuple((monomial, -c) for monomial, c in self.terms))

    def __sub__(self, other: int | Size) -> Size:
        return self + -Size.of(other)

    def __rsub__(self, other: int | Size) -> Size:
        return -self + other

    def __mul__(self, other: int | Size) -> Size:
        terms: dict[Monomial, int] = {}
        for (m, c), (n, d) in product(self.terms, Size.of(other).terms):
            both = times(m, n)
            terms[both] = terms.get(both, 0) + c * d
        return _sum(terms)

    __rmul__ = __mul__

    def __pow__(self, exponent: int) -> Size:
        return reduce(lambda power, _: power * self, range(exponent), Size.of(1))

    def __floordiv__(self, other: int | Size) -> Size:
        return _quotient(self, Size.of(other))

    def __rfloordiv__(self, other: int | Size) -> Size:
        return _quotient(Size.of(other), self)

    def __mod__(self, other: int | Size) -> Size:
        return self - Size.of(other) * (self // other)

    def __rmod__(self, other: int | Size) -> Size:
        return Size.of(other) % self

    def exact_quotient(self, other: int | Size) -> Size | None:
        """Return the size whose product with `other` is this one, or None if none is found."""
        divisor = Size.of(other)
        quotient = self // divisor
        return quotient if quotient * divisor == self else None

    # Evaluation

    def evaluate(self, values: Mapping[str, int]) -> int:
        """Return the size's number for given values of its symbols.

        Raises:
            KeyError: a symbol has no value.
            ZeroDivisionError: a divisor is 0.
        """
        total = 0
        for monomial, coefficient in self.terms:
            for atom, power in monomial:
                coefficient *= _value(atom, values) ** power
            total += coefficient
        return total

    def substitute(self, values: Mapping[str, int | Size]) -> Size:
        """Replace some of the symbols by sizes or numbers."""
        if not self.symbols & values.keys():
            return self
        total = Size.of(0)
        for monomial, coefficient in self.terms:
            term = Size.of(coefficient)
            for atom, power in monomial:
                term = term * _substituted(atom, values) ** power
            total = total + term
        return total

    @cached_property
    def _spelled(self) -> str:
        return _text(self)

    def __str__(self) -> str:
        return self._spelled

    def __repr__(self) -> str:
        return self._spelled


Dim = int | Size
"""A dimension of a type: a `Size` only if it is symbolic."""

UNKNOWN: Final = Size.symbol("?")
"""A dimension without a known expression."""

GUESS: Final = Size.symbol("?guess")
"""A dimension that inference fills in, if it can; no inferred type contains it."""


def is_unbacked(name: str) -> bool:
    """Whether a symbol is unbacked, that is, its value depends on data."""
    return name.startswith("u") and name[1:].isdigit()


def is_of_data(size: Dim) -> bool:
    """Whether a size depends on an unbacked symbol."""
    return isinstance(size, Size) and any(map(is_unbacked, size.symbols))


def settled(size: int | Size) -> Dim:
    """Convert a size to a dimension of a type: an int if it has no symbols."""
    if isinstance(size, int):
        return size
    if "?" in size.symbols:
        return UNKNOWN
    number = size.number
    return size if number is None else number


def number_of(size: Dim) -> int:
    """Return a dimension that must be a number.

    Raises:
        StepwellError: the dimension is symbolic.
    """
    if isinstance(size, int):
        return size
    raise StepwellError(f"the size {size} is symbolic where a number is needed")


def minimum(*sizes: int | Size) -> Size:
    """Return the minimum of some sizes."""
    return extreme("Min", sizes)


def maximum(*sizes: int | Size) -> Size:
    """Return the maximum of some sizes."""
    return extreme("Max", sizes)


# Canonical forms


def _sum(terms: Mapping[Monomial, int]) -> Size:
    kept = [(m, c) for m, c in terms.items() if c]
    if len(kept) > _MOST_TERMS:
        raise StepwellError(f"a size has more than {_MOST_TERMS} terms")
    return Size(tuple(sorted(kept, key=term_order)))


def _quotient(dividend: Size, divisor: Size) -> Size:
    """Return `dividend // divisor` in canonical form.

    ⌊(q·d + r)/d⌋ = q + ⌊r/d⌋ for integers q, so the divisible part is split off. A common factor g
    is cancelled in both, and for a number d, ⌊(g·x + c)/(g·d)⌋ = ⌊(x + ⌊c/g⌋)/d⌋ for integers x.
    """
    if not divisor.terms:
        raise StepwellError("a size is divided by 0")
    if divisor.terms[0][1] < 0:
        dividend, divisor = -dividend, -divisor
    whole, rest = _divide(dividend, divisor)
    if not rest.terms:
        return whole
    rest, divisor = _without_common_factor(rest, divisor)
    number, divided = divisor.number, rest.number
    if number is not None and divided is not None:
        return whole + divided // number
    if number == 1:
        return whole + rest
    if number is not None and rest.constant > 0:
        # As torch prints the size of a window's result: ⌊(s − 1)/2⌋ + 1, not ⌊(s + 1)/2⌋.
        whole, rest = whole + 1, rest - number
    if number is not None and (inner := _sole_quotient(rest)) is not None:
        # ⌊(⌊a/b⌋ + k)/c⌋ = ⌊(a + k·b)/(b·c)⌋ for numbers b, c > 0.
        b = inner.divisor.number
        if b is not None and b > 0:
            return whole + (inner.dividend + rest.constant * b) // (b * number)
    return whole + Size(((((Quotient(rest, divisor), 1),), 1),))


def _divide(dividend: Size, divisor: Size) -> tuple[Size, Size]:
    """Return (q, r) with dividend = q·divisor + r; q has all terms that the divisor's first term
    divides.
    """
    leading, coefficient = divisor.terms[0]
    whole = Size.of(0)
    rest = dividend
    done: set[Monomial] = set()
    while True:
        for monomial, c in rest.terms:
            factor = over(monomial, leading)
            if monomial in done or factor is None or not c // coefficient:
                continue
            done.add(monomial)
            part = Size(((factor, c // coefficient),))
            whole, rest = whole + part, rest - part * divisor
            break
        else:
            return whole, rest


def _without_common_factor(dividend: Size, divisor: Size) -> tuple[Size, Size]:
    number = divisor.number
    if number is not None:
        scale = gcd(number, *(c for m, c in dividend.terms if m != _ONE))
        if scale == 1:
            return dividend, divisor
        terms = {m: c // scale for m, c in dividend.terms}
        return _sum(terms), Size.of(number // scale)
    both = (*dividend.terms, *divisor.terms)
    scale = gcd(*(c for _, c in both))
    shared = reduce(common, (m for m, _ in both))
    if scale == 1 and not shared:
        return dividend, divisor

    def reduced(size: Size) -> Size:
        return _sum({over(m, shared) or _ONE: c // scale for m, c in size.terms})

    return reduced(dividend), reduced(divisor)


def _sole_quotient(size: Size) -> Quotient | None:
    """Return the quotient q if a size is q or q + k."""
    inner = [(m, c) for m, c in size.terms if m != _ONE]
    if len(inner) != 1 or inner[0][1] != 1 or len(inner[0][0]) != 1:
        return None
    atom, power = inner[0][0][0]
    return atom if isinstance(atom, Quotient) and power == 1 else None


def extreme(kind: str, sizes: Sequence[int | Size]) -> Size:
    """Build a minimum or maximum; arguments that differ only by a constant are merged."""
    larger = kind == "Max"
    kept: list[Size] = []
    for size in _spread(kind, sizes):
        for index, other in enumerate(kept):
            difference = (size - other).number
            if difference is not None:
                if (difference > 0) == larger:
                    kept[index] = size
                break
        else:
            kept.append(size)
    if not kept:
        raise StepwellError(f"{kind} needs at least one size")
    if len(kept) == 1:
        return kept[0]
    ordered = tuple(sorted(kept, key=lambda size: (size.number is None, str(size))))
    return Size(((((Extreme(kind, ordered), 1),), 1),))


def _spread(kind: str, sizes: Iterable[int | Size]) -> Iterator[Size]:
    """Yield the arguments, with nested extremes of the same kind flattened."""
    for given in sizes:
        size = Size.of(given)
        if len(size.terms) == 1 and size.terms[0][1] == 1 and len(size.terms[0][0]) == 1:
            atom, power = size.terms[0][0][0]
            if isinstance(atom, Extreme) and atom.kind == kind and power == 1:
                yield from atom.sizes
                continue
        yield size


# Queries of atoms


def _sizes_in(atom: Atom) -> tuple[Size, ...]:
    if isinstance(atom, Quotient):
        return atom.dividend, atom.divisor
    return atom.sizes if isinstance(atom, Extreme) else ()


def _names_in(atom: Atom) -> Iterable[str]:
    if isinstance(atom, Symbol):
        return (atom.name,)
    return _NAME.findall(atom.text) if isinstance(atom, Computed) else ()


def _value(atom: Atom, values: Mapping[str, int]) -> int:
    if isinstance(atom, Symbol):
        return values[atom.name]
    if isinstance(atom, Computed):
        return values[atom.text]
    if isinstance(atom, Quotient):
        return atom.dividend.evaluate(values) // atom.divisor.evaluate(values)
    found = [size.evaluate(values) for size in atom.sizes]
    return max(found) if atom.kind == "Max" else min(found)


def _substituted(atom: Atom, values: Mapping[str, int | Size]) -> Size:
    if isinstance(atom, Symbol):
        return Size.of(values[atom.name]) if atom.name in values else Size.symbol(atom.name)
    if isinstance(atom, Computed):
        return Size.computed(_NAME.sub(lambda name: _stands_for(name[0], values), atom.text))
    return rebuilt(atom, lambda size: size.substitute(values))


def _stands_for(name: str, values: Mapping[str, int | Size]) -> str:
    return f"({values[name]})" if name in values else name


def rebuilt(atom: Quotient | Extreme, change: Callable[[Size], Size]) -> Size:
    """Return an atom in which each size is replaced by the result of `change`."""
    if isinstance(atom, Quotient):
        return change(atom.dividend) // change(atom.divisor)
    return extreme(atom.kind, [change(size) for size in atom.sizes])


# Text


def _text(size: Size) -> str:
    if (held := remainder(size)) is not None:
        factor, dividend, divisor, rest = held
        sign, count = "-" if factor < 0 else "", abs(factor)
        text = f"Mod({dividend}, {divisor})"
        first = f"{sign}{count}*{text}" if count != 1 else sign + text
        return first if not rest.terms else f"{first} {_signed(rest)}"
    terms = size.terms
    if len(terms) == 1 and terms[0][1] == 1 and len(terms[0][0]) == 1 and terms[0][0][0][1] == 1:
        return str(terms[0][0][0][0])
    if len(terms) == 2 and terms[0][1] < 0 < terms[1][1] and terms[1][0] == _ONE:
        terms = terms[::-1]  # `1 - s0`, as sympy prints it.
    text = "".join(f" {'-' if c < 0 else '+'} {_term(m, abs(c))}" for m, c in terms)
    return (text[3:] if text.startswith(" +") else "-" + text[3:]) if text else "0"


def _signed(size: Size) -> str:
    text = _text(size)
    return f"- {text[1:]}" if text.startswith("-") else f"+ {text}"


def remainder(size: Size) -> tuple[int, Size, Size, Size] | None:
    """Decompose a size as k·(a mod b) + rest: it contains k·(a − b·(a//b)). Returns (k, a, b,
    rest).
    """
    for monomial, _ in size.terms:
        for atom, power in monomial:
            if not isinstance(atom, Quotient) or power != 1:
                continue
            whole = Size(((((atom, 1),), 1),))
            left = atom.dividend - atom.divisor * whole
            lead, coefficient = (atom.divisor * whole).terms[0]
            factor = -dict(size.terms).get(lead, 0) // coefficient
            rest = size - left * factor
            if factor and len(rest.terms) < len(size.terms) - 1 + (len(size.terms) == 2):
                return factor, atom.dividend, atom.divisor, rest
    return None


def _term(monomial: Monomial, coefficient: int) -> str:
    factors = [_factor(atom) + (f"**{power}" if power > 1 else "") for atom, power in monomial]
    shown = [str(coefficient)] if coefficient != 1 or not factors else []
    return "*".join((*shown, *factors))


def _factor(atom: Atom) -> str:
    """Format a factor of a product; a quotient gets a second pair of brackets, as in sympy."""
    return f"({atom})" if isinstance(atom, Quotient) else str(atom)


def _operand(size: Size) -> str:
    text = _text(size)
    return text if size.terms[0][1] >= 0 and is_single(text) else f"({text})"
